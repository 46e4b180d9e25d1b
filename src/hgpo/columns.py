"""Conversion of columns to checked arrays, with errors that name the column and the row.

Shapes: N rows, U distinct values.
"""

from __future__ import annotations

import reprlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from enum import Enum
from itertools import chain, count
from operator import ne
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

LARGEST_REAL = 1e100
"""Largest magnitude a number may have: sums and squares of such numbers stay inside float64 for any batch size."""

LARGEST_WHOLE = 2**53 - 1
"""Largest step index: float64 represents every integer up to here exactly."""

_ALWAYS_EQUAL_TO_THEMSELVES = frozenset({str, bytes, int, bool, type(None)})
_CONTAINERS = (tuple, frozenset)
_NOT_NUMBERS = (str, bytes, bytearray, np.complexfloating, np.datetime64, np.timedelta64)
"""Types that `float` accepts nevertheless."""
_KEY_REMEDY = "turn each row into a tuple or text"
IDENTITY_REMEDY = "turn it into text or a tuple"


class ColumnError(ValueError):
    """One value of a batch is not valid.

    Attributes:
        column: Name of the value's column.
        row: Number of the value's row, from 0, in the caller's order.
        problem: What is wrong with the value. If `other_row` is given, the message continues with " in row …".
        other_row: The row with which the value conflicts, None if there is no such row.
    """

    def __init__(self, column: str, row: int, problem: str, other_row: int | None = None) -> None:
        super().__init__(column, row, problem, other_row)  # all arguments, so that it can be pickled
        self.column, self.row, self.problem, self.other_row = column, row, problem, other_row

    def __str__(self) -> str:
        """Column and row, then the problem."""
        return f"column {self.column!r}, row {self.row}: {self.problem}" + self._other(lambda row: f"row {row}")

    def message_at(self, place: Callable[[int], str]) -> str:
        """The message with `place(row)`, such as file and line, instead of the row's number."""
        return f"{place(self.row)}: column {self.column!r}: {self.problem}" + self._other(place)

    def _other(self, place: Callable[[int], str]) -> str:
        return "" if self.other_row is None else f" in {place(self.other_row)}"


def fail(column: str, row: int, problem: str, other_row: int | None = None) -> NoReturn:
    """Raise the `ColumnError` of one value; `row` counts from 0 in the caller's order."""
    raise ColumnError(column, row, problem, other_row)


def fail_where(column: str, bad_N: BoolArray, problem: str, value_N: NDArray[Any] | None = None) -> None:
    """Raise the `ColumnError` of the first bad row, if there is one; its value in `value_N` follows the problem."""
    if bad_N.any():
        row = int(np.argmax(bad_N))
        fail(column, row, problem if value_N is None else f"{problem}, got {value_N[row]}")


def read(name: str, column: Any) -> list[Any] | NDArray[Any]:
    """Return the column as a list or a one-dimensional numpy array, without converting its values.

    Objects with `__array__` (numpy, pandas, pyarrow, torch) are converted through it, because iterating them yields
    scalars that hash by identity.

    Args:
        name: The column, for messages.
        column: One value per row.

    Raises:
        ValueError: The column is not a sequence of values (text, mapping, set, scalar), is not one-dimensional, or has
            masked values.
    """
    if isinstance(column, (list, tuple)):
        return list(column)
    if isinstance(column, (str, bytes, bytearray, Mapping, Set)) or column is None:
        raise ValueError(f"column {name!r}: expected a sequence with one value per step, got {type(column).__name__}")
    try:
        values = as_array(column) if hasattr(column, "__array__") else list(column)
    except Exception as error:
        raise ValueError(f"column {name!r}: cannot be read as a sequence ({error})") from error
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise ValueError(
            f"column {name!r}: expected one dimension, got shape {values.shape}: give one number, text or tuple per row"
        )
    if isinstance(column, np.ma.MaskedArray):
        _check_unmasked(name, column)
    return values


def as_array(value: Any) -> NDArray[Any]:
    """Convert an array-like to numpy; torch tensors are detached, and bfloat16, which numpy lacks, becomes float32."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
    return np.asarray(value)


def _check_unmasked(name: str, column: np.ma.MaskedArray[Any, Any]) -> None:
    """Reject masked values, which numpy would read as ordinary ones."""
    mask = np.ascontiguousarray(np.ma.getmaskarray(column))
    masked_N = np.asarray(mask.view(np.bool_).reshape(len(mask), -1).any(axis=1))  # a record has one flag per field
    fail_where(name, masked_N, "missing value (masked); fill it in, or leave the row out")


def intern(name: str, column: list[Any] | NDArray[Any], allow_none: bool) -> tuple[IntArray, tuple[Hashable, ...]]:
    """Number the distinct values of a column 0, 1, … by first appearance.

    Two values get the same number if and only if they are equal in Python (so 1, 1.0 and True are one value). Values
    are compared, not only their hashes.

    Returns:
        ids int64[N], and the U distinct values: `values[ids[row]] == column[row]`.

    Raises:
        ValueError: An unhashable value, a value that does not equal itself (NaN), or None if `allow_none` is false.
    """
    if isinstance(column, np.ndarray) and column.dtype.kind in "iu":
        return _intern_integers(column)
    values: list[Any] = column.tolist() if isinstance(column, np.ndarray) else column
    number: defaultdict[Any, int] = defaultdict(count().__next__)  # a new value gets the next number
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


def is_compared_by_identity(kind: type) -> bool:
    """Whether an object of a class equals only itself; False for None and for members of an enumeration."""
    equality: Any = kind.__eq__
    return equality is object.__eq__ and not issubclass(kind, (Enum, type(None)))


def _fail_at_first_unhashable(name: str, column: list[Any]) -> None:
    seen: dict[Any, None] = {}
    for row, value in enumerate(column):
        try:
            seen.setdefault(value)
        except Exception as error:
            fail(name, row, f"value of type {type(value).__name__} cannot be a key ({error}): {_KEY_REMEDY}")


def _check_keys(name: str, column: list[Any], distinct: tuple[Hashable, ...], allow_none: bool) -> None:
    """Reject None unless allowed, and NaN, arrays and objects compared by identity, also in tuples and frozensets."""
    types = set(map(type, distinct))
    if type(None) in types and not allow_none:
        fail(name, column.index(None), "missing value (None)")
    if types <= _ALWAYS_EQUAL_TO_THEMSELVES or _can_be_keys(distinct):
        return
    for row, value in enumerate(column):
        if not _can_be_keys((value,)):
            fail(name, row, _key_problem(value))


def _can_be_keys(values: Iterable[Any]) -> bool:
    """Whether values contain no NaN, array or object compared by identity at any depth; no Python loop over values."""
    while values := list(values):
        types = set(map(type, values))
        if types <= _ALWAYS_EQUAL_TO_THEMSELVES:
            return True
        try:
            if any(map(is_array_like, types)) or any(map(is_compared_by_identity, types)):
                return False
            if any(map(ne, values, values)):
                return False
        except Exception:  # a value that cannot be compared
            return False
        values = chain.from_iterable(value for value in values if isinstance(value, _CONTAINERS))
    return True


def _key_problem(value: Any) -> str:
    """What is wrong with a value that `_can_be_keys` rejects."""
    kind = type(value)
    if isinstance(value, _CONTAINERS):
        return (
            f"{reprlib.repr(value)} contains NaN, an array or an object that is compared by identity, so it cannot "
            "be a key; use None, numbers or text instead"
        )
    if is_array_like(kind):
        return f"an array ({kind.__name__}) is compared by identity as a key: {_KEY_REMEDY}"
    if is_compared_by_identity(kind):
        return f"value of type {kind.__name__} is compared by identity as a key: {IDENTITY_REMEDY}"
    try:
        bool(value != value)
    except Exception as error:
        return f"value of type {kind.__name__} cannot be compared ({error})"
    return f"{value!r} does not equal itself, so it cannot be a key; write a missing value as text"


def is_array_like(kind: type) -> bool:
    """Whether objects of a class are arrays; numpy's scalars are not."""
    return hasattr(kind, "__array__") and not issubclass(kind, np.generic)


def as_floats(name: str, column: list[Any] | NDArray[Any]) -> FloatArray:
    """Return a column of finite numbers as float64[N] (a copy).

    Raises:
        ValueError: Text, None, NaN, infinity, or a magnitude above `LARGEST_REAL`.
    """
    real_N = _as_floats(name, column, "a number")
    bad_N = ~(np.abs(real_N) <= LARGEST_REAL)
    fail_where(name, bad_N, f"expected a finite number of magnitude up to {LARGEST_REAL:g}", real_N)
    return real_N


def whole_numbers(name: str, column: list[Any] | NDArray[Any]) -> IntArray:
    """Return a column of integers from 0 as int64[N] (a copy); whole floats such as 3.0 are accepted.

    Raises:
        ValueError: A boolean, text, None, NaN, a fraction, a negative number, or one above `LARGEST_WHOLE`.
    """
    array = _numeric_array(column)
    # NumPy makes integers of booleans in a list of integers.
    mixed = isinstance(column, (list, tuple)) and any(isinstance(value, (bool, np.bool_)) for value in column)
    if array is None or array.dtype.kind == "b" or mixed:
        array = _converted(name, column, _whole, "a number")
    elif array.dtype.kind == "f":
        array = array.astype(np.float64)  # float16 has no number as large as the limit
    bad_N = ~((array >= 0) & (array <= LARGEST_WHOLE))
    if array.dtype.kind == "f":
        bad_N |= array != np.floor(array)
    fail_where(name, bad_N, "expected an integer from 0 to 2**53 - 1", array)
    return array.astype(np.int64)


def as_bools(name: str, column: list[Any] | NDArray[Any]) -> BoolArray:
    """Return a column of True/False (or 1/0) as bool[N].

    Raises:
        ValueError: Any other value.
    """
    real_N = _as_floats(name, column, "True or False")
    fail_where(name, (real_N != 0) & (real_N != 1), "expected True or False", real_N)
    truth_N: BoolArray = real_N == 1
    return truth_N


def vectors(name: str, column: Any) -> NDArray[np.floating[Any]]:
    """Return rows of finite numbers as an array of two dimensions, of float32 or float64 (a copy).

    Raises:
        ValueError: Another shape, other values than numbers, masked values, NaN, infinity, or a magnitude above
            `LARGEST_REAL`.
    """
    if isinstance(column, np.ma.MaskedArray):
        _check_unmasked(name, column)
    try:
        array = as_array(column)
        if array.dtype.kind in "cmMSU":
            raise TypeError(f"{array.dtype} is not a number")
        array = array.astype(np.float32 if array.dtype in (np.float16, np.float32) else np.float64)
    except Exception as error:
        raise ValueError(f"column {name!r}: expected rows of numbers of one length ({error})") from error
    if array.ndim != 2 or not array.shape[1]:
        raise ValueError(f"column {name!r}: expected two dimensions, N steps and D numbers, got shape {array.shape}")
    most = min(LARGEST_REAL, float(np.finfo(array.dtype).max))
    fail_where(name, ~(np.abs(array) <= most).all(axis=1), f"expected finite numbers of magnitude up to {most:g}")
    return array


def _numeric_array(column: Iterable[Any]) -> NDArray[Any] | None:
    """The column as a one-dimensional boolean, integer or float array, None if it needs conversion."""
    try:
        array = np.asarray(column)
    except Exception:  # ragged or unusual values: the caller converts one by one to find the row
        return None
    return array if array.ndim == 1 and array.dtype.kind in "biuf" else None


def _as_floats(name: str, column: list[Any] | NDArray[Any], expected: str) -> FloatArray:
    array = _numeric_array(column)
    return _converted(name, column, float, expected) if array is None else array.astype(np.float64)


def _converted(name: str, column: Iterable[Any], to_number: Callable[[Any], float], expected: str) -> FloatArray:
    """The values as float64[N], converted one by one so that an error names the row; `expected` is for its message."""
    return np.array([_convert(name, row, value, to_number, expected) for row, value in enumerate(column)], np.float64)


def _convert(name: str, row: int, value: Any, to_number: Callable[[Any], float], expected: str) -> float:
    if value is None:
        fail(name, row, f"missing value (None), expected {expected}")
    try:
        if isinstance(value, _NOT_NUMBERS) or np.ndim(value) != 0:
            raise TypeError(f"{type(value).__name__} is not a number")
        return to_number(value)
    except Exception as error:
        fail(name, row, f"expected {expected}, got {type(value).__name__} ({error})")


def _whole(value: Any) -> float:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError("a boolean is not a step index")
    return float(value)
