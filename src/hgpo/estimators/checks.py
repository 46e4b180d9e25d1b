"""Options of an estimator that are out of their range, refused by name."""

from __future__ import annotations

import numpy as np

LONGEST_HISTORY = 1_000
"""More steps back than any agent remembers; every one is a column of the batch to sort by."""


def check_choice(option: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise a ValueError that names the option and what it may be."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{option} must be one of {', '.join(choices)}; got {value!r}")


def check_number(option: str, value: object, *, finite: bool = True) -> float:
    """Return the option as a float.

    Raises:
        ValueError: it is not a number of at least 0 (or not finite where `finite` is asked for).
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ValueError(f"{option} must be a number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if not number >= 0.0 or (finite and number == float("inf")):
        raise ValueError(f"{option} must be {'finite and ' if finite else ''}at least 0, got {value!r}")
    return number


def check_integer(option: str, value: object, lowest: int, highest: int | None = None) -> int:
    """Return the option as an int.

    Raises:
        ValueError: it is not an integer in the range.
    """
    wanted = f"an integer of at least {lowest}" if highest is None else f"an integer from {lowest} to {highest}"
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{option} must be {wanted}, got {value!r}")
    if value < lowest or (highest is not None and value > highest):
        raise ValueError(f"{option} must be {wanted}, got {value!r}")
    return int(value)


def check_history(value: object) -> int:
    """Return an option `history_length` as an int; see `check_integer`."""
    return check_integer("history_length", value, lowest=0, highest=LONGEST_HISTORY)
