"""Finds a task suite by name, so that a user's own environment trains without a change to this code.

Three ways to name one, tried in this order:

1. `register("corridor", factory)` in the running process;
2. an entry point in the group `hgpo.envs` of any installed package (`alfworld` itself is one);
3. `"package.module:factory"`, importable from the working folder: a class with `splits` and `tasks`, or a
   function annotated to return one. To import a module is to run it, so a run's or recipe's name is trusted that far.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, get_type_hints

from hgpo.envs.base import TaskSuite

SuiteFactory = Callable[..., TaskSuite]
ENTRY_POINT_GROUP = "hgpo.envs"
_registered: dict[str, SuiteFactory] = {}


def register(name: str, factory: SuiteFactory) -> None:
    """Make `factory` available under `name` in this process. A taken name is a `ValueError`."""
    if name in _registered and _registered[name] is not factory:
        raise ValueError(f"environment {name!r} is already registered; choose another name")
    _registered[name] = factory


def names() -> list[str]:
    """All names that `make` knows without a module path."""
    return sorted({*_registered, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))})


def make(name: str, **options: Any) -> TaskSuite:
    """Build the suite called `name` with its own `options`.

    Raises `ValueError` for an unknown name or for options that the suite's factory does not take.
    """
    factory = find_factory(name)
    check_options(name, factory, options)
    return factory(**options)


def find_factory(name: str) -> SuiteFactory:
    """The factory behind `name`; `ValueError` says which names there are."""
    if name in _registered:
        return _registered[name]
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name == name:
            loaded: SuiteFactory = point.load()
            return loaded
    if ":" in name:
        return _import_factory(name)
    raise ValueError(
        f"unknown environment {name!r}; known: {', '.join(names()) or 'none'}. "
        "Your own: hgpo.envs.register(name, factory), an entry point in 'hgpo.envs', or 'package.module:factory'"
    )


def check_options(name: str, factory: SuiteFactory, options: dict[str, Any]) -> None:
    """Refuse options that the factory does not take: a setting that nothing reads is a mistake."""
    parameters = inspect.signature(factory).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    unknown = sorted(set(options) - set(parameters))
    if unknown:
        raise ValueError(f"environment {name!r} has no option {', '.join(unknown)}; it takes {', '.join(parameters)}")


def _import_factory(path: str) -> SuiteFactory:
    module_name, _, attribute = path.partition(":")
    if "" not in sys.path:  # a console script does not search the working folder by itself
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f"environment {path!r}: cannot import {module_name!r} ({error})") from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise ValueError(f"environment {path!r}: {module_name!r} has no callable {attribute!r}")
    if not _makes_suites(factory):
        raise ValueError(
            f"environment {path!r}: {attribute!r} is neither a class with `splits` and `tasks` nor a function "
            "annotated to return such a class (`-> TaskSuite`), so it is not called"
        )
    return factory  # type: ignore[no-any-return]


def _makes_suites(factory: Callable[..., Any]) -> bool:
    """Whether a callable says of itself that it makes suites.

    A recipe and the settings of a stored run are text from elsewhere, and their options become keyword arguments: not
    everything that can be imported may be called with them.
    """
    if inspect.isclass(factory):
        fields = {*dir(factory), *getattr(factory, "__annotations__", ())}
        return {"splits", "tasks"} <= fields
    try:
        made = get_type_hints(factory).get("return")
    except (NameError, TypeError):
        return False
    return inspect.isclass(made) and _makes_suites(made)
