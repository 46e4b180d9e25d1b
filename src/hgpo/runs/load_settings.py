"""Settings for playing with any policy: a run's own settings, or an environment's defaults for a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hgpo.config import Config, ConfigError, load_config
from hgpo.runs.folder import open_run_directory
from hgpo.runs.trust import allow_settings, settings_to_trust

_OF_AN_ENVIRONMENT = {"alfworld": (), "webshop": ("agent.template=shop-reasoning", "environment.max_steps=30")}
"""Environment -> overrides of the default settings, as published."""
_OF_OTHERS = ("agent.template=reasoning",)


def as_overrides(given: Mapping[str, object]) -> list[str]:
    """Settings from a command line as overrides; those that are None, which means not given, are left out.

    Example: `as_overrides({"agent.name": "react", "evaluation.split": None}) == ['agent.name="react"']`.
    """
    # The JSON of texts, numbers and lists is valid TOML; Python's notation of a backslash is not
    return [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in given.items() if value is not None]


def is_run(source: str) -> bool:
    """Whether a policy's name is that of a run directory."""
    return (Path(source) / "config.toml").is_file()


def settings_for(
    source: str,
    *,
    environment: str | None = None,
    server: str | None = None,
    overrides: Sequence[str] = (),
    trusted: bool = False,
    say: Callable[[str], object] = lambda line: None,
) -> Config:
    """The settings for playing with a run's policy or with a model.

    Args:
        source: a run directory or, with `environment`, a model: a folder, a .gguf file, a hub name or, with `server`,
            the model's name on the server.
        environment: name of the environment that a model plays.
        server: base address of the server that has the model.
        overrides: `section.name=value`, applied last.
        trusted: whether a run from elsewhere may use the modules, servers, variables and paths that it names.
        say: shows what a run uses.

    Raises:
        UntrustedRunError: the run was made elsewhere, names what needs trust, and is not trusted.
        ConfigError: an environment is given for a run, or none for a model, or a setting is invalid.
    """
    if server is None and is_run(source):
        if environment is not None:
            raise ConfigError(f"{source} is a run and has its own environment; omit {environment!r}")
        run, config = open_run_directory(Path(source))
        allow_settings(run.path, settings_to_trust(config), trusted=trusted, say=say)
        return load_config(run.config, overrides)
    if environment is None and server is not None:
        raise ConfigError("name the environment that the server's model plays: --env alfworld")
    if environment is None:
        raise ConfigError(
            f"{source} is not a run directory (it has no config.toml); if it is a model, name its environment: "
            "--env alfworld"
        )
    backend = None if server is None else "server"
    played = {
        "environment.name": environment,
        "policy.model": source,
        "policy.backend": backend,
        "policy.options.url": server,
    }
    defaults = _OF_AN_ENVIRONMENT.get(environment, _OF_OTHERS)
    return load_config(None, [*defaults, *as_overrides(played), *overrides])
