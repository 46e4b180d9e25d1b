"""Errors of the user's code, such as environments, state keys and estimators, and its values in messages."""

from __future__ import annotations

import traceback
from pathlib import Path

BREAKS = (Exception, SystemExit)
"""Exceptions caught from the user's code; `sys.exit()` in it would otherwise end a run as if it were complete."""


def describe_error(call: str, error: BaseException, *, below: str) -> str:
    """An error with the file and line that raised it.

    Args:
        call: the call that failed.
        error: the error.
        below: the file of this package that made the call; its lines are not reported.
    """
    place = traceback.extract_tb(error.__traceback__)[-1]
    line = "" if place.filename == below else f" ({Path(place.filename).name}, line {place.lineno})"
    return f"{call} raised {type(error).__name__}: {safe_text(error)}{line}"


def safe_text(value: object) -> str:
    """`str(value)`, or a placeholder if that fails."""
    try:
        return str(value)
    except Exception as error:
        return f"(its message cannot be shown: {type(error).__name__})"


def safe_repr(value: object, most: int = 200) -> str:
    """The beginning of `repr(value)`, or a placeholder if that fails."""
    try:
        text = repr(value)
    except Exception as error:
        return f"a value of type {type(value).__name__} that cannot be shown ({type(error).__name__})"
    return text if len(text) <= most else text[: most - 1] + "…"
