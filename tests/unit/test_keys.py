"""Comparison keys: equal contents have equal keys, other contents have other keys, identity is rejected."""

from __future__ import annotations

import enum
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from hgpo.keys import canonical_json, comparison_key
from hgpo.steps import StepBatch

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=1), inner, max_size=3),
    max_leaves=6,
)


@dataclass
class Page:
    title: str
    links: list[str]


@dataclass(frozen=True)
class Place:
    room: str


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Sheet:
    title: str
    links: list[str]


class Hall(BaseModel):
    name: str


class Yard(BaseModel):
    name: str


class Screen:
    """Compared by identity."""


class Equal:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def __hash__(self) -> int:
        return 0


def board(middle: int) -> np.ndarray[Any, Any]:
    cells = np.zeros((40, 40))
    cells[20, 20] = middle
    return cells


SAME = {
    "order of a mapping": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "order of a nested mapping": ([{"a": 1, "b": 2}], [{"b": 2, "a": 1}]),
    "order of a set": ({"z", "a", "m"}, {"m", "z", "a"}),
    "arrays": (board(1), board(1)),
    "records": (np.array([(1, 0.5)], "i4,f4"), np.array([(1, 0.5)], "i8,f8")),
    "texts of numpy": (np.array(["a"]), np.array(["a"], np.dtypes.StringDType())),
    "large whole numbers": ([2.0**53], [2**53]),
    "arrays of other types": (np.zeros(3, np.int32), np.zeros(3, np.float32)),
    "order of a set of numbers": ([{0, 8}], [{8, 0}]),
    "minus zero in an array": (np.array([-0.0]), np.array([0.0])),
    "an array's memory order": (board(1), np.asfortranarray(board(1))),
    "numpy scalars": (np.int64(3), 3),
    "numpy scalars inside": ({"x": np.float32(0.5)}, {"x": 0.5}),
    "whole floats": ({"x": 1.0}, {"x": 1}),
    "dataclasses": (Page("a", ["b"]), Page("a", ["b"])),
    "frozen dataclasses": (Place("hall"), Place("hall")),
    "members of an enumeration": (Colour.RED, Colour.RED),
    "members inside": ([Colour.RED], [Colour.RED]),
    "objects with equality": (Equal(), Equal()),
    "times": ([datetime(2026, 1, 1, tzinfo=UTC)], [datetime(2026, 1, 1, tzinfo=UTC)]),
    "tuples with mappings": (("a", {"b": 1, "c": 2}), ("a", {"c": 2, "b": 1})),
}
OTHER = {
    "an array's middle": (board(1), board(2)),
    "an array's shape": (np.zeros((2, 3)), np.zeros((3, 2))),
    "large integers": (np.array([2**53]), np.array([2**53 + 1])),
    "imaginary parts": (np.array([1j]), np.array([2j])),
    "a day and its number": (np.array(["1970-01-02"], "M8[D]"), np.array([1])),
    "true and 1 inside": ([True], [1]),
    "text and number inside": (["1"], [1]),
    "bytes inside": ([b"a"], [b"b"]),
    "a path and its text": ([PurePath("a")], ["a"]),
    "a member and its name": ([Colour.RED], ["RED"]),
    "dataclasses": (Page("a", ["b"]), Page("a", ["c"])),
    "dataclasses of one form": (Page("a", ["b"]), Sheet("a", ["b"])),
    "models of one form": (Hall(name="a"), Yard(name="a")),
    "members of an enumeration inside": ([Colour.RED], [Colour.BLUE]),
    "null and absent": ({"a": None}, {}),
}


@pytest.mark.parametrize("pair", SAME.values(), ids=SAME)
def test_equal_contents_have_equal_keys(pair: tuple[Any, Any]) -> None:
    one, other = map(comparison_key, pair)
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize("pair", OTHER.values(), ids=OTHER)
def test_other_contents_have_other_keys(pair: tuple[Any, Any]) -> None:
    assert comparison_key(pair[0]) != comparison_key(pair[1])


def test_half_of_a_surrogate_pair_stays_escaped() -> None:
    assert canonical_json({"\ud83d": ["\\ud83d", "\\\udc00", "é 😀"]}) == r'{"\ud83d": ["\\ud83d", "\\\udc00", "é 😀"]}'


def test_pictures_are_compared_by_content() -> None:
    image = pytest.importorskip("PIL.Image")
    red, again, blue = (image.new("RGB", (4, 4), colour) for colour in ("red", "red", "blue"))
    assert comparison_key(red) == comparison_key(again) != comparison_key(blue)
    assert comparison_key(red) != comparison_key(image.new("RGB", (2, 8), "red"))
    red, again, blue = (picture.quantize(2) for picture in (red, again, blue))  # the same indices into other palettes
    assert red.tobytes() == blue.tobytes()
    assert comparison_key(red) == comparison_key(again) != comparison_key(blue)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int64", "bool"])
def test_tensors_are_compared_by_content(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    one, again, other = (torch.tensor([1, number], dtype=getattr(torch, dtype)) for number in (0, 0, 1))
    assert comparison_key(one) == comparison_key(again) != comparison_key(other)
    assert comparison_key({"screen": one}) == comparison_key({"screen": again}) != comparison_key({"screen": other})


@pytest.mark.parametrize("value", [Screen(), [Screen()], {"a": Screen()}, (1, Screen()), lambda: 0, object()])
def test_identity_is_rejected(value: Any) -> None:
    with pytest.raises(ValueError, match="compared by identity: turn it into text or a tuple"):
        comparison_key(value)


@pytest.mark.parametrize("value", [Screen(), (1, Screen()), frozenset({Screen()})])
def test_a_batch_rejects_identity_by_row(value: Any) -> None:
    columns = {"group": [0, 0], "trajectory": [0, 0], "step": [0, 1], "reward": [0.0, 1.0]}
    with pytest.raises(ValueError, match=r"column 'observation', row 1: .*identity"):
        StepBatch.from_columns(**columns, observation=["hall", value])
    StepBatch.from_columns(**columns, observation=[Colour.RED, Place("hall")])


@given(JSON, JSON)
def test_keys_are_equal_exactly_if_the_json_is(one: Any, other: Any) -> None:
    assert (canonical_json(one) == canonical_json(other)) == (_typed(one) == _typed(other))


def _typed(value: Any) -> Any:
    """Like the value, but true is not 1."""
    if isinstance(value, dict):
        return {name: _typed(part) for name, part in value.items()}
    return [_typed(part) for part in value] if isinstance(value, list) else (type(value), value)


@pytest.mark.slow
def test_a_key_is_the_same_in_every_process() -> None:
    """Hash seeds and addresses differ between processes."""
    code = "from hgpo.keys import comparison_key as key; print(key({'s': {'b', 'a', 'c'}, 'x': [1.0, None]}))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1
