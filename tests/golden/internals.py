"""The only names of the package that these tests use and that are not public: change them here when they move."""

from __future__ import annotations

from typing import Any

import hgpo.envs


def alfworld_expert() -> Any:
    """The player that the warm start imitates in household games: `reset` and `act`, both of (observation, info)."""
    suite: Any = hgpo.envs.make("alfworld", size="small")
    return suite.expert()


def webshop_expert() -> Any:
    """The same for shops."""
    suite: Any = hgpo.envs.make("webshop")
    return suite.expert()


def catalog_of(environment: Any) -> Any:
    """The catalogue behind an environment of the suite "webshop"."""
    return environment.catalog
