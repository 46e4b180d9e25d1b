"""Keys for comparing observations and actions of any type.

Two values have equal keys if and only if they have equal contents, with exceptions among containers, which become JSON:
a container and its JSON text (`[1]`, `"[1]"`), a set and the mapping that stands for it, and mapping keys of other
types than text (`{1: 0}` and `{"1": 0}` are equal, `{1: 0}` and `{1.0: 0}` are not). A key never depends on an
object's address or on the order of a mapping or set.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from pathlib import PurePath
from typing import Any
from uuid import UUID

import numpy as np

from hgpo.columns import IDENTITY_REMEDY, as_array, is_array_like, is_compared_by_identity

_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})
_WRITTEN = (date, time, timedelta, Decimal, UUID, PurePath)
"""Types of the standard library whose text identifies the value."""
_EXACT_IN_FLOAT64 = 2**53


def comparison_key(value: Any) -> Hashable:
    """The key of a value: hashable, and equal for equal contents.

    Text, numbers and tuples of them are their own keys, and so is any hashable object whose class defines equality.
    Mappings, lists, sets, arrays, images, dataclasses and pydantic models become canonical JSON text.

    Args:
        value: Text, numbers, containers, numpy or torch arrays, PIL images, dataclasses, pydantic models.

    Raises:
        ValueError: The value, or a value inside it, can be compared by identity only.

    Example:

    >>> comparison_key({"b": 2, "a": [1.0]}) == comparison_key({"a": [1], "b": 2})
    True
    """
    kind = type(value)
    if kind in _PLAIN:
        return value  # type: ignore[no-any-return]
    if isinstance(value, (tuple, frozenset)):
        if all(type(part) in _PLAIN for part in value):
            return tuple(value) if isinstance(value, tuple) else value
        parts = map(comparison_key, value)
        return tuple(parts) if isinstance(value, tuple) else frozenset(parts)
    if isinstance(value, np.generic):
        return comparison_key(_scalar(value))
    if not is_array_like(kind) and not is_compared_by_identity(kind):
        try:
            hash(value)
        except TypeError:
            pass  # a mapping, list or set, or a dataclass that is not frozen
        else:
            return value  # type: ignore[no-any-return]
    return canonical_json(value)


def canonical_json(value: Any) -> str:
    """JSON text with sorted keys; arrays, images and bytes are represented by a digest of their contents.

    Whole floats are written as integers, because 1.0 equals 1. Half of a surrogate pair, which UTF-8 cannot encode, is
    escaped as in JSON.

    Raises:
        ValueError: The value contains an object that can be compared by identity only.
    """
    return escaped(json.dumps(_json_value(value), sort_keys=True, ensure_ascii=False))


def escaped(text: str) -> str:
    """The text with an escape such as `\\ud83d` for half of a surrogate pair."""
    return text.encode("utf-8", "backslashreplace").decode()


def _json_value(value: Any) -> Any:
    """The value in JSON's types."""
    if isinstance(value, Enum):
        return [type(value).__qualname__, value.name]
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, Mapping):
        return {_json_key(name): _json_value(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(part) for part in value]
    if isinstance(value, Set):
        return {"set": sorted(map(canonical_json, value))}
    if isinstance(value, np.generic):
        return _json_value(_scalar(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": sha256(value).hexdigest()}
    if isinstance(value, _WRITTEN):
        return [type(value).__name__, str(value)]
    return _json_object(value)


def _json_object(value: Any) -> Any:
    """An image, array, pydantic model or dataclass in JSON's types."""
    kind = type(value)
    if all(hasattr(value, name) for name in ("mode", "size", "tobytes")):  # a PIL image
        colours = bytes(value.getpalette()) if value.mode in ("P", "PA") else b""
        return {"image": [value.mode, list(value.size), sha256(value.tobytes() + colours).hexdigest()]}
    if is_array_like(kind):
        return _json_array(as_array(value))
    if hasattr(value, "model_dump"):
        return {kind.__qualname__: _json_value(value.model_dump())}
    if is_dataclass(value):
        return {kind.__qualname__: {field.name: _json_value(getattr(value, field.name)) for field in fields(value)}}
    raise ValueError(f"a value of type {kind.__name__} is compared by identity: {IDENTITY_REMEDY}")


def _json_array(array: np.ndarray[Any, Any]) -> Any:
    """Shape and digest of a numeric array, equal for equal numbers of any type; other arrays as nested lists."""
    if array.dtype.kind in "OSUTMm" or array.dtype.names:
        return _json_value(array.tolist())
    if array.dtype.kind not in "iu" or not array.size or np.abs(array.astype(np.float64)).max() < _EXACT_IN_FLOAT64:
        array = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64) + 0.0  # -0.0 equals 0.0
    return {"array": [list(array.shape), sha256(array.tobytes()).hexdigest()]}


def _scalar(value: np.generic) -> Any:
    """A numpy scalar as a Python scalar; types that numpy does not define, such as bfloat16, as float."""
    plain = value.item()
    return float(plain) if isinstance(plain, np.generic) else plain


def _json_key(name: Any) -> str:
    """A mapping's key as text; an integer as JSON writes it."""
    if isinstance(name, str):
        return name
    key = comparison_key(name)
    return str(key) if type(key) is int else canonical_json(["key", name])
