"""Which modules, servers, environment variables and paths a run's settings may use, and whose pickle files are read.

A run's settings may name parts by path, `"package.module:attribute"`, and importing a module runs its code. A run
that this user made here is trusted. A run from elsewhere may name any module, so its modules are imported only with
`--trust`. The same holds for a server that such a run names: it is contacted only with `--trust`. And for the
checkpoints of verl, which are pickle files: reading them can run code.

A run made here is recognised by a signature of `config.toml`, made with a random key in the user's home directory.
Reading a run (inspect, advantages, compare, export, `--dry-run`) imports nothing and needs no trust.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from hgpo.agents.text_template import is_text
from hgpo.config import Config
from hgpo.config.loading import leaves
from hgpo.plugins import names_module

SIGNATURE_FILE = "made_here"
_PARTS = ("environment.name", "agent.name", "agent.template", "advantage.estimator", "policy.backend", "rollout.state")
WRITTEN_OPTION = "keep_in"
"""The option in which an environment takes a folder to write to."""
_OUTSIDE = re.compile(r"\$(?!(?:ALFWORLD|WEBSHOP)_DATA\b)|%\w+%|//|\\\\|:\d")
"""In an option: an environment variable (other than those of data folders, which are only read), or an address."""

logger = logging.getLogger(__name__)


class UntrustedRunError(ValueError):
    """A run from elsewhere needs `--trust`; the message lists what for."""


def sign(run: Path, settings: str) -> None:
    """Write the signature of `settings`, the future content of the run's `config.toml`, to the run's folder.

    If the home directory is not writable, nothing is signed, and the run needs `--trust` later.
    """
    try:
        (run / SIGNATURE_FILE).write_text(_signature(settings, _key(make=True)) + "\n", encoding="ascii")
    except OSError as error:
        logger.warning("the run is not signed (%s): using it later needs --trust", error)


def made_here(run: Path) -> bool:
    """Whether the settings are as they were when this user's process signed them."""
    try:
        written = (run / SIGNATURE_FILE).read_text(encoding="ascii").strip()
        settings = (run / "config.toml").read_text(encoding="utf-8")
        return hmac.compare_digest(written, _signature(settings, _key(make=False)))
    except (OSError, ValueError):
        return False


def settings_to_trust(config: Config, *, trains: bool = False) -> dict[str, str]:
    """{setting: value} of all settings that a run from elsewhere may use only with `--trust`.

    They name a part by path; or, in options, a server, an environment variable or a path to write to. What a policy
    backend does with its options is not known here, so all of its options but numbers count.

    Args:
        config: the run's settings.
        trains: whether training goes on, which contacts trackers (TensorBoard has no server) and the Ray cluster.
    """
    values = {name: value for name, value, _ in leaves(config)}
    found = {name: values[name] for name in _PARTS if ":" in values[name]}
    if is_text(config.agent.template):
        found.pop("agent.template", None)
    for section in ("environment.options", "agent.options", "advantage.options", "policy.options"):
        for name, value in values[section].items():
            is_opaque = section == "policy.options" and not isinstance(value, (int, float))
            if is_opaque or name == WRITTEN_OPTION or _OUTSIDE.search(str(value)):
                found[f"{section}.{name}"] = str(value)
    if trains:
        trackers = ", ".join(name for name in config.tracking.to or () if name != "tensorboard")
        ray = config.verl.ray_address if config.run.engine == "verl" else None
        found |= {name: used for name, used in (("tracking.to", trackers), ("verl.ray_address", ray)) if used}
    return found


def allow_settings(
    run: Path,
    named: Mapping[str, str],
    *,
    trusted: bool,
    say: Callable[[str], object],
    names_given: bool = False,
) -> None:
    """Print what the run's settings import or use outside of the run; reject it if the run is not trusted.

    A run with folders that are links is rejected as well: files would be written to and deleted from their targets.

    Args:
        run: the run's folder.
        named: `settings_to_trust` of the run's settings.
        trusted: whether the user trusts the run (`--trust`).
        say: shows a line.
        names_given: whether the user gave equal settings now; then only the links are checked.

    Raises:
        UntrustedRunError: the run is not trusted, was made elsewhere or changed since, and `named` is not empty or a
            folder of it is a link.
    """
    linked = [
        f"{path.name} to {path.resolve()}" for path in sorted(run.iterdir()) if path.is_symlink() and path.is_dir()
    ]
    if linked and not (trusted or made_here(run)):
        raise UntrustedRunError(
            f"{run} has links in place of folders, and files would be written to and deleted from their targets: "
            f"{', '.join(linked)}. If these links are yours, add --trust"
        )
    if not named:
        return
    listed = ", ".join(f"{value!r} ({setting})" for setting, value in named.items())
    code = any(names_module(named.get(setting, "")) for setting in _PARTS)
    if not (trusted or names_given or made_here(run)):
        what, remedy = (
            ("code that would be run", "Read the installed code of these modules, then add --trust to run them")
            if code
            else ("servers, environment variables or paths that would be used", "If you trust them, add --trust")
        )
        raise UntrustedRunError(
            f"{run} was made elsewhere, or its config.toml was changed since, and names {what}: {listed}. {remedy}"
        )
    say(f"{'Importing' if code else 'Using'} what the run names: {listed}")


def allow_pickles(run: Path, *, trusted: bool) -> None:
    """Reject a run trained on verl that was made elsewhere, unless the user trusts it: verl unpickles its checkpoints.

    Raises:
        UntrustedRunError: the run was made elsewhere, or its `config.toml` was changed since.
    """
    if not (trusted or made_here(run)):
        raise UntrustedRunError(
            f"{run} was made elsewhere, or its config.toml was changed since, and was trained on verl, whose "
            "checkpoints are pickle files that can run code. If you trust whoever made it, add --trust"
        )


def _signature(settings: str, key: bytes) -> str:
    return hmac.new(key, settings.encode("utf-8"), hashlib.sha256).hexdigest()


def _key(*, make: bool) -> bytes:
    """Return the user's key; with `make`, create it if it does not exist.

    Raises:
        OSError: the key does not exist or cannot be read, or cannot be written.
    """
    path = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "hgpo" / "key"
    if make and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn = path.with_name(f".key.{os.getpid()}")
        descriptor = os.open(drawn, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32))
        try:
            os.link(drawn, path)  # another process may have created it first
        except FileExistsError:
            pass
        finally:
            drawn.unlink()
    return path.read_bytes()
