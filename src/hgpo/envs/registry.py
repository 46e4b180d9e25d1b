"""Task suites by name.

A name is registered by `register("corridor", factory)` or by an entry point in the group `hgpo.envs`, or is
`"openenv:URL"` for a server or `"package.module:factory"`. A factory is a class with `splits` and `tasks`, or a
function annotated to return one. See `hgpo.plugins` for the order of the look-up.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from hgpo.envs.base import TaskSuite
from hgpo.options import converted_options
from hgpo.plugins import Registry

SuiteFactory = Callable[..., TaskSuite]


def register(name: str, factory: SuiteFactory) -> None:
    """Make `factory` available under `name` in this process. A taken name is a `ValueError`."""
    SUITES.register(name, factory)


def names() -> list[str]:
    """All registered names."""
    return SUITES.names()


def make(name: str, /, **options: Any) -> TaskSuite:
    """Build the suite called `name` with its own `options`.

    Raises:
        ValueError: an unknown name, or as `hgpo.options.converted_options`.
    """
    factory = SUITES.get(name)
    return factory(**converted_options(f"environment {name!r}", factory, options))


def _why_not_factory(part: Any) -> str | None:
    if not callable(part):
        return "is not callable"
    if not _makes_suites(part):
        return (
            "is neither a class with `splits` and `tasks` nor a function annotated to return such a class "
            "(`-> TaskSuite`), so it is not called"
        )
    return None


def _makes_suites(factory: Callable[..., Any]) -> bool:
    """Whether a callable is declared to return suites.

    Names in recipes and stored runs are untrusted, and their options become keyword arguments: not every importable
    callable may be called with them.
    """
    if inspect.isclass(factory):
        fields = {*dir(factory), *getattr(factory, "__annotations__", ())}
        return {"splits", "tasks"} <= fields
    try:
        made = get_type_hints(factory).get("return")
    except (NameError, TypeError):
        return False
    return inspect.isclass(made) and _makes_suites(made)


SUITES: Registry[SuiteFactory] = Registry(
    "environment",
    "hgpo.envs",
    addressed={"openenv": "hgpo.envs.openenv.suite:openenv_suite"},
    check=_why_not_factory,
)
