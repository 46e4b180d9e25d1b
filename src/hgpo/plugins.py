"""Look-up of the parts that a recipe names: environments, estimators, templates, policy backends.

A `Registry` contains the parts of one kind. A name refers, in this order, to

1. a part registered in this process (`Registry.register`);
2. a part of this package;
3. an entry point of an installed package in the registry's group, such as `hgpo.envs`;
4. `"openenv:ADDRESS"`, in a registry whose parts have an address;
5. `"package.module:attribute"`, importable from the working folder or installed.

The last four work in any process. A registered part is found only after the module that registers it was imported: if a
recipe names one part of that module by path, all of its parts are found (`import_named`).

Importing a module runs its code, so look up only names from a trusted source. `Registry.loaded` imports no such module.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, Generic, TypeVar, cast

from hgpo.utils.text import did_you_mean

Part = TypeVar("Part")

ADDRESSED = frozenset({"openenv"})
"""Words before a colon that is followed by an address and not by an attribute of a module."""

BREAKS = (Exception, SystemExit)
"""Exceptions caught from the user's code; `sys.exit()` in it would otherwise end a run as if it were complete."""


class Registry(Generic[Part]):
    """The parts of one kind, by name."""

    def __init__(
        self,
        kind: str,
        group: str,
        built_in: Mapping[str, str] | None = None,
        *,
        addressed: Mapping[str, str] | None = None,
        check: Callable[[Any], str | None] = lambda part: None,
    ) -> None:
        """Create a registry without registered parts.

        Args:
            kind: Name of the kind, for messages.
            group: The entry-point group in which packages list their parts.
            built_in: name -> "module:attribute" of the parts of this package, imported on first use.
            addressed: A word of `ADDRESSED` -> "module:attribute" of a function whose first argument is the address.
            check: Returns what is wrong with a part that is not registered, as a message that follows the part's name
                ("is no …"), or None if the part may be used.
        """
        self.kind, self.group = kind, group
        self._built_in = dict(built_in or {})
        self._addressed = dict(addressed or {})
        self._check = check
        self._parts: dict[str, Part] = {}
        self._by_path: dict[str, Part] = {}

    def register(self, name: str, part: Part) -> Part:
        """Make `part` available under `name` in this process.

        Raises:
            ValueError: Another part has the name.
        """
        if self._parts.get(name, part) is not part or name in self._built_in:
            raise ValueError(f"{self.kind} {name!r} is already registered; choose another name")
        self._parts[name] = part
        return part

    def names(self) -> list[str]:
        """All names that can be looked up without a path, sorted."""
        return sorted({*self._parts, *self._built_in, *installed_parts(self.group).names})

    def check(self, name: object) -> None:
        """Check that a name exists, without importing parts of this package or of entry points.

        Raises:
            ValueError: As `get`.
        """
        if not isinstance(name, str) or not (name in self._built_in or self._entry_point(name) is not None):
            self.get(name)

    def loaded(self, name: str) -> Part | None:
        """The part if it is registered, built in or already imported, else None; imports no code of other packages."""
        if name in self._parts or name in self._built_in:
            return self.get(name)
        return self._by_path.get(name)

    def get(self, name: object) -> Part:
        """The part called `name`.

        Raises:
            ValueError: There is no such part, or it cannot be imported or used; the message has the known names or the
                reason.
        """
        if not isinstance(name, str):
            raise ValueError(f"unknown {self.kind} {name!r}; known: {', '.join(self.names())}")
        if name in self._parts:
            return self._parts[name]
        if name in self._built_in:
            part = self._parts[name] = self._from_path(name, self._built_in[name])
        elif (point := self._entry_point(name)) is not None:
            part = self._parts[name] = self._from_path(name, f"{point.module}:{point.attr or ''}")
        elif (word := name.partition(":")[0]) in self._addressed and ":" in name:
            make: Any = self._from_path(name, self._addressed[word])
            part = self._by_path[name] = cast(Part, partial(make, name.partition(":")[2]))
        elif names_module(name):
            _search_working_folder()
            part = self._by_path[name] = self._from_path(name, name)
        else:
            meant = did_you_mean(name, self.names())
            own = (
                re.sub(r"[.](\w+)$", r":\1", name)
                if re.fullmatch(r"\w+([.]\w+)+", name)
                else "package.module:attribute"
            )
            raise ValueError(
                f"unknown {self.kind} {name!r}{meant}{' Known' if meant else '; known'}: "
                f"{', '.join(self.names()) or 'none'}. Custom: an entry point in the group {self.group!r}, or {own!r}"
            )
        return part

    def _entry_point(self, name: str) -> EntryPoint | None:
        return next(iter(installed_parts(self.group).select(name=name)), None)

    def _from_path(self, name: str, path: str) -> Part:
        module_name, _, attribute = path.partition(":")
        module = _imported(module_name, f"{self.kind} {name!r}")
        part: Any = module
        for known in attribute.split("."):
            try:
                part = getattr(part, known)
            except AttributeError as error:
                public = [other for other in dir(part) if not other.startswith("_")]
                raise ValueError(
                    f"{self.kind} {name!r}: {module_name!r} has no {attribute!r}{did_you_mean(known, public)}"
                ) from error
        if (problem := self._check(part)) is not None:
            raise ValueError(f"{self.kind} {name!r}: {(attribute if path == name else path)!r} {problem}")
        return cast(Part, part)


def installed_parts(group: str) -> EntryPoints:
    """The entry points of one group in all packages on `sys.path`."""
    return _installed_parts(group, tuple(sys.path))


@lru_cache(maxsize=32)
def _installed_parts(group: str, path: tuple[str, ...]) -> EntryPoints:
    """Reading the metadata of every installed package takes 20 ms, so it is read once per group and search path."""
    return entry_points(group=group)


def names_module(name: str) -> bool:
    """Whether a name is a path, whose module is imported to find the part."""
    return ":" in name and name.partition(":")[0] not in ADDRESSED


def import_named(names: Iterable[str]) -> None:
    """Import the module of every name that is a path, so that the parts that it registers are found.

    Raises:
        ValueError: A module cannot be imported.
    """
    for name in names:
        if names_module(name):
            _search_working_folder()
            _imported(name.partition(":")[0], repr(name))


def _search_working_folder() -> None:
    """Make modules in the working folder importable, which a console script does not search by default."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def _imported(module: str, what: str) -> Any:
    if "" in module.split(".") or not all(part.isidentifier() for part in module.split(".")):  # relative, or a path
        raise ValueError(f"{what}: {module!r} is not the name of a module; write 'package.module:attribute'")
    try:
        return importlib.import_module(module)
    except BREAKS as error:  # a module of the user's, which may raise anything
        file = f"; the module of that file is {module.removesuffix('.py')!r}" if module.endswith(".py") else ""
        if isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0] and not file:
            file = "; it must be installed, or a file in the working folder"
        reason = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise ValueError(f"{what}: cannot import {module!r} ({reason}){file}") from error
