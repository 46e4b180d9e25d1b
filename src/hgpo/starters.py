"""The recipes that come with the package, by name, and those that `hgpo train --env NAME` starts from.

They are the files under recipes/: a wheel has them as `hgpo/recipes/`, a checkout where they lie (see pyproject.toml).
A recipe's name is its path there without the ending, and a folder's name means its `hgpo.toml`: `quickstart`,
`smollm2/alfworld`, `verl/webshop`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

_MAIN = "hgpo"


@dataclass(frozen=True, slots=True)
class Starter:
    """What an environment is begun with; nothing has to be downloaded for either but the model itself.

    Attributes:
        tiny: name of the recipe that builds a tiny policy.
        language_model: name of the recipe for a language model, which reads and writes at length and learns slowly.
    """

    tiny: str
    language_model: str


STARTERS = {
    "alfworld": Starter("quickstart", "language-models/alfworld"),
    "webshop": Starter("webshop-tiny", "language-models/webshop"),
}
"""By environment."""


def starter_recipe(environment: str, model: str = "tiny") -> Path:
    """The recipe of an environment for a model, as `policy.model` names it.

    Raises:
        FileNotFoundError: the installation has lost its recipes.
    """
    starter = STARTERS[environment]
    name = starter.tiny if model == "tiny" else starter.language_model
    found = recipe_named(name)
    if found is None:
        raise FileNotFoundError(f"no recipe {name!r} in {_folder()}; install hgpo again")
    return found


def recipe_named(name: str) -> Path | None:
    """The file of a recipe that comes with the package, or None."""
    return _recipes().get(name)


def recipe_names() -> list[str]:
    """All names, those without a folder first."""
    return sorted(_recipes(), key=lambda name: ("/" in name, name))


@cache
def _recipes() -> dict[str, Path]:
    folder = _folder()
    return {_name(path.relative_to(folder)): path for path in folder.rglob("*.toml")}


def _name(path: Path) -> str:
    return (path.parent if path.stem == _MAIN else path.with_suffix("")).as_posix()


def _folder() -> Path:
    package = Path(__file__).parent
    installed, checkout = package / "recipes", package.parents[1] / "recipes"
    return installed if installed.is_dir() else checkout
