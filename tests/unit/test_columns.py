"""What a whole batch makes of bad columns is tested in test_steps.py."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest

from hgpo.columns import ColumnError, intern, read


class Place(NamedTuple):
    room: str
    height: float


class IdentityHashed:
    """As a torch scalar: equal ones are told apart by a dict."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(1.0)


class BrokenEquality:
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")


def test_an_error_tells_the_place_that_a_row_came_from() -> None:
    error = ColumnError("step", 4, "trajectory 'a' already has step 1", other_row=2)
    assert str(error) == "column 'step', row 4: trajectory 'a' already has step 1 in row 2"
    message = error.message_at(lambda row: f"x.jsonl line {row + 1}")
    assert message == "x.jsonl line 5: column 'step': trajectory 'a' already has step 1 in x.jsonl line 3"
    assert str(ColumnError("reward", 0, "is odd")) == "column 'reward', row 0: is odd"


def test_an_error_can_be_pickled() -> None:
    copy = pickle.loads(pickle.dumps(ColumnError("step", 4, "is odd", 2)))  # noqa: S301
    assert (copy.column, copy.row, copy.problem, copy.other_row) == ("step", 4, "is odd", 2)


def test_a_masked_array_without_masked_values_is_an_array() -> None:
    masked = np.ma.array([3, 4], mask=[False, False])
    assert read("reward", masked).tolist() == [3, 4]  # type: ignore[union-attr]
    assert read("reward", np.ma.array([3, 4])).tolist() == [3, 4]  # type: ignore[union-attr]


def test_a_masked_field_of_a_record_is_a_missing_value() -> None:
    records = np.ma.array([(1, "a"), (2, "b")], dtype=[("x", int), ("y", "U1")], mask=[(0, 0), (0, 1)])
    with pytest.raises(ColumnError, match="column 'observation', row 1: missing value"):
        read("observation", records)


@pytest.mark.parametrize(
    "odd",
    [
        ("k", float("nan")),
        (1, (2, (3, float("nan")))),
        (1.0, frozenset({np.float32("nan")})),
        frozenset({"a", float("nan")}),
        Place("hall", float("nan")),
        ("k", IdentityHashed()),
        ("k", BrokenEquality()),
    ],
)
def test_nan_and_arrays_inside_a_tuple_are_no_keys(odd: Any) -> None:
    with pytest.raises(ColumnError, match=r"column 'observation', row 2: .* contains NaN, an array or an object"):
        intern("observation", ["x", ("k", 1.0), odd], allow_none=False)


def test_tuples_of_what_equals_itself_are_keys() -> None:
    keys = [("k", 1.0, None), ((), (np.float32(2), ("x",))), frozenset({1.5}), Place("hall", 1.0), (), ("k", 1, None)]
    assert intern("observation", keys, allow_none=False)[0].tolist() == [0, 1, 2, 3, 4, 0]


def test_a_deeply_nested_tuple_is_looked_through() -> None:
    deep: tuple[Any, ...] = (float("nan"),)
    for _ in range(500):
        deep = (deep, 1.0)
    with pytest.raises(ColumnError, match="contains NaN"):
        intern("observation", [deep], allow_none=False)
