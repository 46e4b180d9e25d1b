"""Reads recipes: finds them by name, resolves `extends`, and applies `section.name=value` overrides.

hgpo's recipes are the files under recipes/: a wheel has them as `hgpo/recipes/`, a checkout in its root (see
pyproject.toml). A recipe's name is its path without the ending, and a folder's name means its `hgpo.toml`, as for
`quickstart`. Files in a folder called `base` have no name; other recipes extend them. A package with an entry
point in the group `hgpo.envs` may have a folder `recipes/` next to its `__init__.py`; the package is located, not
imported. `--env NAME` takes `NAME-tiny.toml`, or `NAME-language-model.toml` for a language model.

    extends = "alfworld.toml"         # above the first table; relative to the file
    extends = "quickstart"            # or the name of a recipe

A path of `agent.template` is relative to the file, too.

A recipe contains what differs from its base. Tables are merged at every depth; values and lists are replaced. Options
belong to the part that takes them: where a recipe changes `environment.name`, `agent.name`, `policy.backend` or
`advantage.estimator`, the base's `options` of that section are dropped. A base may extend another. An override changes
the one setting that it names.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hgpo.agents.text_template import is_file
from hgpo.config.settings import Config, ConfigError
from hgpo.envs.registry import SUITES
from hgpo.plugins import installed_parts
from hgpo.utils.text import did_you_mean

Tree = dict[str, Any]

EXTENDS = "extends"
_OPTIONS_OF = {"environment": "name", "agent": "name", "policy": "backend", "advantage": "estimator"}
"""Section -> the setting that its `options` belong to."""
_MAIN = "hgpo"
_FOR_OTHERS = "base"


_OWN = {
    "alfworld": ("quickstart", "language-models/alfworld"),
    "webshop": ("webshop-tiny", "language-models/webshop"),
}


def starters() -> dict[str, tuple[str, str]]:
    """The recipes of `hgpo train --env` for a tiny policy and for a language model, by environment."""
    names = [point.name for point in installed_parts("hgpo.envs")]
    found = {name: (f"{name}-tiny", f"{name}-language-model") for name in names}
    return {name: pair for name, pair in found.items() if set(pair) <= _recipes().keys()} | _OWN


def starter_recipe(environment: str, model: str = "tiny") -> Path:
    """The recipe of an environment for a model, as `policy.model` names it."""
    tiny, language_model = starters()[environment]
    return _recipes()[tiny if model == "tiny" else language_model]


def starter_settings(environment: str, model: str = "tiny") -> list[str]:
    """Settings of `hgpo train --env` for an environment without recipes, such as "package.module:factory".

    A tiny policy first imitates the suite's expert and has the quickstart's learning rate; a language model gets a
    prompt that explains the format. If the suite is a class with a tuple `splits`, training uses the first split and
    evaluation the last.

    Raises:
        ValueError: there is no such environment.
    """
    template = "agent.template=compact" if model == "tiny" else "agent.template=reasoning"
    settings = [f"environment.name={environment!r}", template, f"warm_start.enabled={str(model == 'tiny').lower()}"]
    settings += ["training.learning_rate=5e-4"] if model == "tiny" else []
    splits = getattr(SUITES.get(environment), "splits", ())
    if isinstance(splits, tuple) and splits:
        settings += [f"environment.train_split={splits[0]!r}", f"evaluation.split={splits[-1]!r}"]
    return settings


def recipe_named(name: str) -> Path | None:
    """The file of a recipe of hgpo or of an environment package, or None."""
    return _recipes().get(name)


def recipe_names() -> list[str]:
    """All names, those without a folder first."""
    return sorted(_recipes(), key=lambda name: ("/" in name, name))


@cache
def _recipes() -> dict[str, Path]:
    return {
        _name(path.relative_to(folder)): path
        for folder in (*_folders_of_packages(), _folder())  # hgpo's own names win
        for path in folder.rglob("*.toml")
        if _FOR_OTHERS not in path.relative_to(folder).parts
    }


def _name(path: Path) -> str:
    return (path.parent if path.stem == _MAIN else path.with_suffix("")).as_posix()


def _folder() -> Path:
    package = Path(__file__).parents[1]
    installed, checkout = package / "recipes", package.parents[1] / "recipes"
    return installed if installed.is_dir() else checkout


def _folders_of_packages() -> Iterator[Path]:
    """The folders `recipes/` of packages with environments. `find_spec` does not import a top-level package."""
    packages = {point.module.partition(".")[0] for point in installed_parts("hgpo.envs")} - {"hgpo"}
    for package in sorted(packages):
        spec = find_spec(package)
        for place in (spec and spec.submodule_search_locations) or ():
            yield Path(place) / "recipes"


def written_settings(path: Path | None, overrides: Sequence[str]) -> Tree:
    """The settings of a recipe, its bases and the overrides, as nested dictionaries without `extends`; not validated.

    Args:
        path: a recipe, see `read_chain`; None: overrides alone.
        overrides: `section.name=value`, applied in this order.

    Raises:
        ConfigError: a file or an override is malformed.
    """
    tree: Tree = {}
    for changes in [] if path is None else read_chain(path):
        tree = _merged(_without_options_of_others(tree, changes), changes)
    for override in overrides:
        if override.partition("=")[0].strip() == EXTENDS:
            raise ConfigError(f"override {override!r}: `extends` can be set in a recipe file only")
        apply_override(tree, override)
    return tree


def read_chain(path: Path) -> list[Tree]:
    """The settings of the recipe at `path` and of all that it extends, the outermost base first.

    Args:
        path: a file; or, if no such file exists, the name of a recipe of the package.

    Raises:
        ConfigError: a file is missing or broken, or extends itself through others; the message contains the chain.
    """
    chain: list[Path] = []
    trees: list[Tree] = []
    following: Path | None = _found(path, path.as_posix())
    while following is not None:
        chain.append(following)
        shown = " extends ".join(map(str, chain))
        if following.resolve() in {known.resolve() for known in chain[:-1]}:
            raise ConfigError(f"a recipe cannot extend itself: {shown}")
        try:
            tree = read_toml(following)
        except ConfigError as error:
            raise ConfigError(f"{error} ({shown})" if trees else str(error)) from error
        base = tree.pop(EXTENDS, None)
        if base is not None and not isinstance(base, str):
            raise ConfigError(f"{following}: {EXTENDS} = {base!r} is not the path of a recipe")
        agent = tree.get("agent")
        if isinstance(agent, dict) and is_file(agent.get("template")):
            agent["template"] = str(following.parent / os.path.expanduser(agent["template"]))
        trees.append(tree)
        following = None if base is None else _found(following.parent / base, base)
    return trees[::-1]


def _found(path: Path, name: str) -> Path:
    """The path itself if it is a file, else the recipe of that name."""
    shipped = None if path.is_file() else recipe_named(name)
    return path if shipped is None else shipped


def read_toml(path: Path) -> Tree:
    """The file as nested dictionaries.

    Raises:
        ConfigError: the file is missing, cannot be read, or is not TOML; the message names file and line.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        name = path.as_posix().removeprefix("recipes/").removesuffix(".toml").removesuffix("/hgpo")
        meant = did_you_mean(name, recipe_names()) or "; `hgpo train --help` lists the recipes"
        raise ConfigError(f"no such recipe: {path}{meant}") from error
    except IsADirectoryError as error:
        hint = f"; a run continues with `--resume {path}`" if (path / "config.toml").exists() else ""
        raise ConfigError(f"{path} is a folder, not a recipe{hint}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def apply_override(tree: Tree, override: str) -> None:
    """Apply one override.

    Args:
        tree: nested dictionaries, changed in place.
        override: `a.b.c=value`; the value is read as TOML, else taken as a string.

    Raises:
        ConfigError: the override is not of that form, or names a value as if it were a section.
    """
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"{override!r} is not of the form NAME=VALUE")
    try:
        read = tomllib.loads(f"value = {text}")
        value = read["value"] if len(read) == 1 else text  # later lines of the text can be TOML, too
    except tomllib.TOMLDecodeError:
        value = text
    except RecursionError as error:
        raise ConfigError(f"override {override[:100]!r}…: {error}") from error
    *sections, name = key.strip().split(".")
    node = tree
    for section in sections:
        node = node.setdefault(section, {})
        if not isinstance(node, dict):
            raise ConfigError(f"override {override!r}: {section!r} is a value, not a section")
    node[name] = value


def _merged(base: Tree, changes: Tree) -> Tree:
    result = dict(base)
    for name, value in changes.items():
        below = base.get(name)
        result[name] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def _without_options_of_others(base: Tree, changes: Tree) -> Tree:
    """`base` without the options of parts that `changes` replaces."""
    result = dict(base)
    for section, chosen_by in _OPTIONS_OF.items():
        below, above = base.get(section), changes.get(section)
        if isinstance(below, dict) and isinstance(above, dict) and chosen_by in above:
            default = getattr(Config.model_fields[section].default, chosen_by)
            if above[chosen_by] != below.get(chosen_by, default):
                result[section] = {name: value for name, value in below.items() if name != "options"}
    return result
