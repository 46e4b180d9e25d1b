"""The values of verl's dumps, which keep what JSON does not know as text.

Each function raises TypeError or ValueError for what it cannot convert.
"""

from __future__ import annotations

import json
from math import isfinite

_TRUTHS = {"True": True, "true": True, "False": False, "false": False}  # as Python and JSON spell them


def identifier(value: object) -> str:
    """An id as text; it has to be text that UTF-8 can hold, or an integer."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise TypeError(f"expected text or an integer as an id, got {value!r}")
    return str(value).encode("utf-8").decode()  # a replacement, as in `text`, might make two ids one


def text(value: object) -> str:
    """Text that UTF-8 can hold; what it cannot becomes a question mark."""
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value.encode("utf-8", "replace").decode()


def text_or_json(value: object) -> str:
    """Text as it is, any other JSON value as JSON text with sorted keys."""
    return text(value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False))


def number(value: object) -> float:
    """A finite number, which may have been written as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError(f"expected a number, got {value!r}")
    if not isfinite(converted := float(value)):
        raise ValueError(f"expected a finite number, got {value!r}")
    return converted


def whole(value: object) -> int:
    """An integer of at least 0 and below 2**31."""
    if (converted := number(value)) != int(converted) or not 0 <= converted < 2**31:
        raise ValueError(f"expected an integer of at least 0 and below 2**31, got {value!r}")
    return int(converted)


def truth(value: object) -> bool:
    """true, false, 1, 0, or the text of one of them."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _TRUTHS:
        return _TRUTHS[value]
    if (converted := number(value)) not in (0.0, 1.0):
        raise ValueError(f"expected true or false, got {value!r}")
    return converted == 1.0
