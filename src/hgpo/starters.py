"""The recipes that `hgpo train --env NAME` starts from: small policies on environments that need no download.

They are files under recipes/; an installed package has copies of them in `starters/` (see pyproject.toml) and no other
recipe, so they extend none.
"""

from __future__ import annotations

from pathlib import Path

STARTERS = {"alfworld": "quickstart", "webshop": "webshop-tiny"}
"""Environment -> folder under recipes/."""


def starter_recipe(environment: str) -> Path:
    """The recipe of an environment.

    Raises:
        FileNotFoundError: the installation has lost its recipes.
    """
    package = Path(__file__).parent
    installed = package / "starters" / f"{environment}.toml"
    checkout = package.parents[1] / "recipes" / STARTERS[environment] / "hgpo.toml"
    found = next((path for path in (installed, checkout) if path.is_file()), None)
    if found is None:
        raise FileNotFoundError(f"no recipe for {environment!r} at {installed} or {checkout}; install hgpo again")
    return found
