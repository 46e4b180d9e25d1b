"""From what is written to typed settings, and back.

Nothing heavy is imported here, so a mistake in a recipe is reported within a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from hgpo.config.checks import ENGINES, check_names, default_of, engines_of, leaves, refuse_unread
from hgpo.config.recipes import Written, read_chain
from hgpo.config.settings import Config, ConfigError, WarmStartSettings
from hgpo.utils.text import did_you_mean


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> Config:
    """Read settings with `read_config` and check that every part they name exists.

    Modules that the settings name by path are imported.

    Args:
        path: a recipe; it may extend others. None: the defaults.
        overrides: `section.name=value`, applied last.

    Raises:
        ConfigError: names every setting that is wrong, and the file that it stands in where there is more than one.
    """
    written = _written(path, overrides)
    config = _checked(written)
    try:
        check_names(config)
    except ConfigError as error:
        raise _in_its_file(error, written) from error
    return config


def read_config(path: Path | None, overrides: Sequence[str] = ()) -> Config:
    """A recipe with overrides applied. Nothing that it names is imported.

    Args:
        path: a recipe; it may extend others. None: the defaults.
        overrides: `section.name=value`, applied last.

    Raises:
        ConfigError: names every setting that is wrong, and the file that it stands in where there is more than one.
    """
    return _checked(_written(path, overrides))


def dump_config(config: Config) -> str:
    """The tree as TOML, complete and flat; `load_config` of it gives an equal tree."""
    return tomli_w.dumps(as_tree(config))


def as_tree(section: BaseModel) -> dict[str, Any]:
    """The settings as plain values. TOML has no null: None is omitted if it is the default, else written as "none"."""
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
    """(dotted name, default, description) of every setting; the description ends with the engine if only one uses it.

    Example: `("verl.nodes", "1", "Nodes that train. (verl only)")`.
    """
    return [(name, str(default_of(field)), _description(name, field)) for name, _, field in leaves(_whole())]


def setting_values(settings: BaseModel) -> dict[str, str]:
    """Dotted name -> value, both as `describe_settings` has them."""
    return {name: str(value) for name, value, _ in leaves(settings)}


def _description(name: str, field: FieldInfo) -> str:
    readers, description = engines_of(name), field.description or ""
    return description if readers == ENGINES else f"{description} ({readers[0]} only)"


def _written(path: Path | None, overrides: Sequence[str]) -> Written:
    return Written(() if path is None else read_chain(path), tuple(overrides))


def _checked(written: Written) -> Config:
    tree = written.tree()
    try:
        config = Config.model_validate(tree)
        refuse_unread(config)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(problem, written) for problem in error.errors())) from error
    except ConfigError as error:
        raise _in_its_file(error, written) from error
    return config


def _in_its_file(error: ConfigError, written: Written) -> ConfigError:
    """The same error, with the file of its setting if there are several files."""
    place = None if error.setting is None else written.file_of(error.setting.split("."))
    return ConfigError(str(error) if place is None else f"{place}: {error}", error.setting)


def _names() -> list[str]:
    """Dotted names of all settings and sections."""
    names = [name for name, _, _ in leaves(_whole())]
    parts = [name.split(".") for name in names]
    return [*names, *(".".join(one[:depth]) for one in parts for depth in range(1, len(one)))]


def _whole() -> Config:
    """Any valid tree: its names are wanted."""
    return Config(warm_start=WarmStartSettings(enabled=True))


def _explain(problem: ErrorDetails, written: Written) -> str:
    """One line of what pydantic found."""
    setting = [str(part) for part in problem["loc"]]
    message = problem["msg"].removeprefix("Value error, ")
    given = f"(got {problem['input']!r})"
    if not setting:
        return message
    if problem["type"] == "extra_forbidden":
        meant = did_you_mean(".".join(setting), _names())
        message = f"unknown setting{meant or ';'} `hgpo train --settings` lists all"
    elif problem["type"] == "tuple_type":
        message = f"a list is wanted, e.g. [{problem['input']!r}] {given}"
    else:
        message = f"{message} {given}"
    place = written.file_of(setting)
    return f"{'' if place is None else f'{place}: '}{'.'.join(setting)}: {message}"
