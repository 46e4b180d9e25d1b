"""Is there a verl that this integration was written for, and what it was released with? Asked without importing it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

from hgpo.config import ConfigError

LOWEST, BELOW = (0, 9, 1), (0, 10)
NEEDED = "verl>=0.9.1,<0.10"
GUIDE = "docs/scaling.md, Installation"
_PINNED = re.compile(r'^([A-Za-z0-9_.-]+)==([^;\s]+)\s*;\s*extra == "([^"]+)"')
_PIN_EXTRAS = ("vllm", "fsdp", "flash-attn-cu130torch211")
_CPU_BUILD = "+cpu"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a run on verl meets here.

    Attributes:
        what: that was looked at.
        found: there.
        remedy: what to change; empty where nothing has to be.
        fatal: a run would fail or hang.

    Example: `Finding("vllm", "missing", "pip install 'hgpo[verl-gpu]'", fatal=True)`.
    """

    what: str
    found: str
    remedy: str = ""
    fatal: bool = False


def require_verl() -> str:
    """The installed version of verl.

    verl's internals move between minor versions, so a newer one is refused instead of failing hours later.

    Raises:
        ConfigError: verl or what it needs is missing or another version; the message says what to install.
    """
    installed = installed_version("verl")
    if installed is None:
        raise ConfigError(f"--engine verl needs {NEEDED}, which is not installed: pip install 'hgpo[verl]'")
    if not LOWEST <= _numbers(installed) < BELOW:
        raise ConfigError(f"--engine verl needs {NEEDED}, but verl {installed} is installed: pip install '{NEEDED}'")
    for package in ("ray", "TransferQueue"):
        if installed_version(package) is None:
            raise ConfigError(f"--engine verl needs {package}, which is not installed: pip install 'hgpo[verl]'")
    return installed


def installed_version(package: str) -> str | None:
    """The version of an installed package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def gpu_pins(requirements: list[str] | None = None) -> dict[str, str]:
    """The versions that the installed verl was released with for GPUs, by package: torch, vllm, flash-attn, ….

    Args:
        requirements: as package metadata has them; default: those of the installed verl, none where there is none.
    """
    if requirements is None:
        requirements = requires("verl") or [] if installed_version("verl") else []
    found = (_PINNED.match(line) for line in requirements)
    return {match[1].lower(): match[2] for match in found if match and match[3] in _PIN_EXTRAS}


def gpu_packages() -> tuple[str, ...]:
    """What decides whether a GPU run starts."""
    return ("torch", "vllm", "flash-attn", "transformers")


def package_findings(installed: Mapping[str, str | None], pins: Mapping[str, str], needed: set[str]) -> list[Finding]:
    """What is to be said of the packages of a machine with GPUs.

    Args:
        installed: versions of `gpu_packages()`, None where one is missing.
        pins: what verl was released with (`gpu_pins`).
        needed: those without which this run fails: `vllm` as rollout engine, `flash-attn` as attention.
    """
    return [_package_finding(package, installed.get(package), pins.get(package), needed) for package in gpu_packages()]


def _package_finding(package: str, found: str | None, pin: str | None, needed: set[str]) -> Finding:
    install = f"{package}=={pin}" if pin else package
    if found is None:
        return Finding(package, "missing", _remedy_of_missing(package, install), fatal=package in needed)
    if package == "torch" and found.endswith(_CPU_BUILD):
        return Finding(package, found, f"a build without CUDA: install {install} for GPUs ({GUIDE})", fatal=True)
    if pin and _numbers(found) != _numbers(pin):
        return Finding(package, found, f"verl was released with {install}, and another may fail: {GUIDE}")
    return Finding(package, found)


def _remedy_of_missing(package: str, install: str) -> str:
    if package == "flash-attn":
        return (
            f"pip install --no-build-isolation '{install}', once torch is there ({GUIDE}), or do without: "
            "verl.overrides.actor_rollout_ref.model.override_config.attn_implementation=sdpa"
        )
    return f"pip install 'hgpo[verl-gpu]' ({GUIDE})"


def _numbers(text: str) -> tuple[int, ...]:
    """`0.9.1.dev3` as (0, 9, 1): the leading numbers alone."""
    numbers = []
    for part in text.split("+")[0].split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
