"""Columns of Python or numpy values turned into checked arrays, with errors that name the column and the row.

Shapes: N rows, U distinct values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from itertools import count
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

LARGEST_REAL = 1e100
"""Largest magnitude a number may have: sums and squares of such numbers stay inside float64 for any batch size."""

_ALWAYS_EQUAL_TO_THEMSELVES = frozenset({str, bytes, int, bool, tuple, frozenset, type(None)})


def fail(column: str, row: int, problem: str) -> NoReturn:
    """Raise the ValueError of one bad value; `row` counts from 0 in the caller's order."""
    raise ValueError(f"column {column!r}, row {row}: {problem}")


def read(name: str, column: Any) -> list[Any] | NDArray[Any]:
    """Return the column as a list or a one-dimensional numpy array, without converting its values.

    Anything that offers `__array__` (numpy, pandas, pyarrow, torch) is read through it, because iterating such objects
    yields scalars that hash by identity.

    Raises:
        ValueError: the column is not a sequence of values (text, mapping, set, scalar) or is not one-dimensional.
    """
    if isinstance(column, (list, tuple)):
        return list(column)
    if isinstance(column, (str, bytes, bytearray, Mapping, Set)) or column is None:
        raise ValueError(f"column {name!r}: expected a sequence with one value per step, got {type(column).__name__}")
    try:
        array = np.asarray(column) if hasattr(column, "__array__") else None
        values = list(column) if array is None else None
    except Exception as error:
        raise ValueError(f"column {name!r}: cannot be read as a sequence ({error})") from error
    if values is not None:
        return values
    assert array is not None
    if array.ndim != 1:
        raise ValueError(f"column {name!r}: expected one dimension, got shape {array.shape}")
    return array


def intern(name: str, column: list[Any] | NDArray[Any], allow_none: bool) -> tuple[IntArray, tuple[Hashable, ...]]:
    """Number the distinct values of a column 0, 1, … by first appearance.

    Two values get the same number exactly when Python calls them equal (so 1, 1.0 and True are one value). No hash is
    trusted on its own: a dict compares the values themselves.

    Returns:
        ids int64[N], and the U distinct values: `values[ids[row]] == column[row]`.

    Raises:
        ValueError: an unhashable value, a value that does not equal itself (NaN), or None where it is not allowed.
    """
    if isinstance(column, np.ndarray) and column.dtype.kind in "iu":
        return _intern_integers(column)
    values: list[Any] = column.tolist() if isinstance(column, np.ndarray) else column
    number: defaultdict[Any, int] = defaultdict(count().__next__)  # one look-up per row; a new value gets the next
    try:
        ids_N = np.fromiter(map(number.__getitem__, values), dtype=np.int64, count=len(values))
    except Exception as error:
        _fail_at_first_unhashable(name, values)
        raise ValueError(f"column {name!r}: values cannot be compared ({error})") from error
    distinct: tuple[Hashable, ...] = tuple(number)
    _check_keys(name, values, distinct, allow_none)
    return ids_N, distinct


def _intern_integers(column: NDArray[Any]) -> tuple[IntArray, tuple[Hashable, ...]]:
    """Intern an integer array without creating one Python object per row."""
    sorted_U, first_U, inverse_N = np.unique(column, return_index=True, return_inverse=True)
    by_appearance_U = np.argsort(first_U)
    number_U = np.empty(len(sorted_U), dtype=np.int64)
    number_U[by_appearance_U] = np.arange(len(sorted_U))
    return number_U[inverse_N], tuple(sorted_U[by_appearance_U].tolist())


def _fail_at_first_unhashable(name: str, column: list[Any]) -> None:
    seen: dict[Any, None] = {}
    for row, value in enumerate(column):
        try:
            seen.setdefault(value)
        except Exception as error:
            fail(name, row, f"value of type {type(value).__name__} cannot be a key ({error})")


def _check_keys(name: str, column: list[Any], distinct: tuple[Hashable, ...], allow_none: bool) -> None:
    """Reject None, NaN and array-like keys; looks at types first so that columns of text cost nothing."""
    types = set(map(type, distinct))
    if type(None) in types and not allow_none:
        fail(name, column.index(None), "missing value (None)")
    if types <= _ALWAYS_EQUAL_TO_THEMSELVES:
        return
    for row, value in enumerate(column):
        if hasattr(value, "__array__") and not isinstance(value, np.generic):
            fail(name, row, f"an array ({type(value).__name__}) cannot be a key: it is compared by identity")
        try:
            equal = bool(value == value)
        except Exception as error:
            fail(name, row, f"value of type {type(value).__name__} cannot be compared ({error})")
        if not equal:
            fail(name, row, f"{value!r} does not equal itself, so it cannot be a key")


def reals(name: str, column: list[Any] | NDArray[Any]) -> FloatArray:
    """Return a column of finite numbers as float64[N] (a copy).

    Raises:
        ValueError: text, None, NaN, infinity, or a magnitude above `LARGEST_REAL`.
    """
    array = _numeric_array(column)
    if array is None:
        real_N = np.array([_convert(name, row, value, float) for row, value in enumerate(column)], dtype=np.float64)
    else:
        real_N = array.astype(np.float64)
    bad_N = ~(np.abs(real_N) <= LARGEST_REAL)
    if bad_N.any():
        row = int(np.argmax(bad_N))
        fail(name, row, f"expected a finite number of magnitude up to {LARGEST_REAL:g}, got {real_N[row]}")
    return real_N


def whole_numbers(name: str, column: list[Any] | NDArray[Any], limit: int) -> IntArray:
    """Return a column of integers in [0, limit) as int64[N] (a copy); whole floats such as 3.0 are accepted.

    Raises:
        ValueError: a boolean, text, None, NaN, a fraction, a negative number, or one of at least `limit`.
    """
    array = _numeric_array(column)
    if array is None or array.dtype.kind == "b":
        array = np.array([_convert(name, row, value, _whole) for row, value in enumerate(column)], dtype=np.float64)
    bad_N = ~((array >= 0) & (array < limit))
    if array.dtype.kind == "f":
        bad_N |= array != np.floor(array)
    if bad_N.any():
        row = int(np.argmax(bad_N))
        fail(name, row, f"expected an integer from 0 to {limit - 1} (the batch has {limit} rows), got {array[row]}")
    return array.astype(np.int64)


def truths(name: str, column: list[Any] | NDArray[Any]) -> BoolArray:
    """Return a column of True/False (or 1/0) as bool[N].

    Raises:
        ValueError: any other value.
    """
    real_N = reals(name, column)
    bad_N = (real_N != 0) & (real_N != 1)
    if bad_N.any():
        row = int(np.argmax(bad_N))
        fail(name, row, f"expected True or False, got {real_N[row]}")
    truth_N: BoolArray = real_N == 1
    return truth_N


def _numeric_array(column: Iterable[Any]) -> NDArray[Any] | None:
    """Return the column as a one-dimensional boolean, integer or float array, or None if it is not one as it stands."""
    try:
        array = np.asarray(column)
    except Exception:  # ragged or exotic values: the caller converts one by one to find the row
        return None
    return array if array.ndim == 1 and array.dtype.kind in "biuf" else None


def _convert(name: str, row: int, value: Any, to_number: Callable[[Any], float]) -> float:
    try:
        if isinstance(value, (str, bytes, bytearray)) or np.ndim(value) != 0:
            raise TypeError(f"{type(value).__name__} is not a number")
        return to_number(value)
    except Exception as error:
        fail(name, row, f"expected a number, got {type(value).__name__} ({error})")


def _whole(value: Any) -> float:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError("a boolean is not a step index")
    return float(value)
