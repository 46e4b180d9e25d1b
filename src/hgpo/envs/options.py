"""Checks of the options that recipes and `--option` hand to an environment.

TOML and the command line bring any type, so a factory checks before it computes: what is wrong is a `ValueError` with
the option's name, its value and what is allowed. None stands for an option that was left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from os import PathLike

MOST = 10**9
"""A count above it is a slip of the keyboard, and would fill the memory before anything else is said."""

LARGEST_SEED = 2**63 - 1


def check_whole_number(name: str, value: object, least: int | None = 0, most: int = MOST) -> None:
    """Refuse anything but a whole number of at least `least`, which may be None; a bool is no number here."""
    if value is None:
        return
    whole = None if isinstance(value, bool) or not isinstance(value, Integral) else int(value)
    if whole is None or (least is not None and whole < least):
        raise ValueError(f"{name} = {value!r}; give a whole number{'' if least is None else f', {least} or more'}")
    if whole > most:
        raise ValueError(f"{name} = {value!r}; give a whole number of at most {most}")


def check_counts(name: str, value: object, example: str) -> None:
    """Refuse anything but a mapping of names to whole numbers from 0 on."""
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} = {value!r}; give a table, e.g. {example}")
    for key, count in value.items():
        check_whole_number(f"{name}.{key}", count)


def check_path(name: str, value: object) -> None:
    """Refuse anything but a path."""
    if value is not None and not isinstance(value, str | PathLike):
        raise ValueError(f"{name} = {value!r}; give a path")


def check_type(name: str, value: object, allowed: tuple[type, ...], wanted: str) -> None:
    """Refuse what is of none of the allowed types; `wanted` says in words what is."""
    if value is not None and not isinstance(value, allowed):
        raise ValueError(f"{name} = {value!r}; give {wanted}")
