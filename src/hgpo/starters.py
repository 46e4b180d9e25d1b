"""The recipes of hgpo and of installed environment packages by name, and those that `hgpo train --env NAME` takes.

hgpo's are the files under recipes/: a wheel has them as `hgpo/recipes/`, a checkout in its root (see pyproject.toml). A
recipe's name is its path there without the ending, and a folder's name means its `hgpo.toml`: `quickstart`,
`smollm2/alfworld`, `verl/webshop-7b-k2-hgpo`. Files in a folder called `base` have no name; other recipes extend them.

A package with an entry point in the group `hgpo.envs` may have a folder `recipes/` beside its `__init__.py`. The files
in it are named in the same way, and `--env NAME` takes `NAME-tiny.toml`, or `NAME-language-model.toml` for a language
model. The package is located, not imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

_MAIN = "hgpo"
_FOR_OTHERS = "base"


@dataclass(frozen=True, slots=True)
class Starter:
    """The recipes of an environment. They download nothing but the language model.

    Attributes:
        tiny: name of the recipe that builds a tiny policy.
        language_model: name of the recipe for a language model, with long prompts and small learning rates.
    """

    tiny: str
    language_model: str


_OWN = {
    "alfworld": Starter("quickstart", "language-models/alfworld"),
    "webshop": Starter("webshop-tiny", "language-models/webshop"),
}


def starters() -> dict[str, Starter]:
    """The recipes of `hgpo train --env`, by environment."""
    names = [point.name for point in entry_points(group="hgpo.envs")]
    found = {name: Starter(f"{name}-tiny", f"{name}-language-model") for name in names}
    return {name: one for name, one in found.items() if {one.tiny, one.language_model} <= _recipes().keys()} | _OWN


def starter_recipe(environment: str, model: str = "tiny") -> Path:
    """The recipe of an environment for a model, as `policy.model` names it.

    Raises:
        FileNotFoundError: the installation lacks its recipes.
    """
    starter = starters()[environment]
    name = starter.tiny if model == "tiny" else starter.language_model
    found = recipe_named(name)
    if found is None:
        raise FileNotFoundError(f"no recipe {name!r} in {_folder()}; install hgpo again")
    return found


def recipe_named(name: str) -> Path | None:
    """The file of a recipe that hgpo or an environment package brings, or None."""
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
    package = Path(__file__).parent
    installed, checkout = package / "recipes", package.parents[1] / "recipes"
    return installed if installed.is_dir() else checkout


def _folders_of_packages() -> Iterator[Path]:
    """The folders `recipes/` of packages with environments. `find_spec` does not import a top-level package."""
    packages = {point.module.partition(".")[0] for point in entry_points(group="hgpo.envs")} - {"hgpo"}
    for package in sorted(packages):
        spec = find_spec(package)
        for place in (spec and spec.submodule_search_locations) or ():
            yield Path(place) / "recipes"
