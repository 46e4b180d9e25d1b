"""Settings from TOML and from `section.name=value` overrides, and back.

Nothing heavy is imported here, so a mistake in a recipe is reported within a second.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError

from hgpo.config.names import check_names
from hgpo.config.problems import ConfigError
from hgpo.config.settings import Config, WarmStartSettings


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> Config:
    """Settings to run with: `read_config`, and every part they name is there.

    Modules that the settings name by path are imported.

    Raises:
        ConfigError: names every setting that is wrong.
    """
    config = read_config(path, overrides)
    check_names(config)
    return config


def read_config(path: Path | None, overrides: Sequence[str] = ()) -> Config:
    """A recipe with `section.name=value` overrides applied. Nothing that it names is imported.

    Raises:
        ConfigError: names every setting that is wrong.
    """
    tree: dict[str, Any] = {} if path is None else read_toml(path)
    for override in overrides:
        apply_override(tree, override)
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from error


def read_toml(path: Path) -> dict[str, Any]:
    """The file as nested dictionaries, or a `ConfigError` that names file and line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"no such recipe: {path}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def apply_override(tree: dict[str, Any], override: str) -> None:
    """Set `a.b.c=value` in place; the value is read as TOML, else taken as a string."""
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"override {override!r} is not of the form section.name=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *sections, name = key.strip().split(".")
    node = tree
    for section in sections:
        node = node.setdefault(section, {})
        if not isinstance(node, dict):
            raise ConfigError(f"override {override!r}: {section!r} is a value, not a section")
    node[name] = value


def dump_config(config: Config) -> str:
    """The tree as TOML, complete; `load_config` of it gives an equal tree."""
    return tomli_w.dumps(as_tree(config))


def as_tree(section: BaseModel) -> dict[str, Any]:
    """The settings as plain values. TOML has no null: what is None is left out, or "none" where that is no default."""
    tree: dict[str, Any] = {}
    plain = section.model_dump(mode="json")
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            tree[name] = as_tree(value)
        elif value is not None:
            tree[name] = plain[name]
        elif field.default is not None:
            tree[name] = "none"
    return tree


def describe_settings() -> list[tuple[str, str, str]]:
    """(dotted name, default, description) of every setting, for `--help`."""
    rows: list[tuple[str, str, str]] = []
    _describe(Config(warm_start=WarmStartSettings(enabled=True)), "", rows)
    return rows


def _describe(section: BaseModel, prefix: str, rows: list[tuple[str, str, str]]) -> None:
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            _describe(value, f"{prefix}{name}.", rows)
        else:
            rows.append((f"{prefix}{name}", str(field.get_default(call_default_factory=True)), field.description or ""))


def _explain(error: ValidationError) -> str:
    lines = []
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"]) or "config"
        if problem["type"] == "extra_forbidden":
            lines.append(f"{where}: unknown setting; `hgpo train --settings` lists all")
        elif problem["type"] == "tuple_type":
            lines.append(f"{where}: a list is wanted, e.g. [{problem['input']!r}] (got {problem['input']!r})")
        else:
            message = problem["msg"].removeprefix("Value error, ")
            lines.append(f"{where}: {message} (got {problem['input']!r})" if problem["loc"] else message)
    return "\n".join(lines)
