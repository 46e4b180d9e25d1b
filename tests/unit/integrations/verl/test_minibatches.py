from __future__ import annotations

import pytest

pytest.importorskip("verl", reason="verl is missing: make verl-test")

from hypothesis import given
from hypothesis import strategies as st

from hgpo.integrations.verl.trainer import Cut, cut


@pytest.mark.parametrize(
    ("steps", "size", "ranks", "expected"),
    [
        (1000, 256, 4, Cut(4, 252, 8)),
        (256, 256, 2, Cut(1, 256, 0)),
        (257, 256, 2, Cut(2, 130, 3)),
        (1, 64, 8, Cut(1, 8, 7)),
        (17, 8, 8, Cut(3, 8, 7)),
    ],
)
def test_by_hand(steps: int, size: int, ranks: int, expected: Cut) -> None:
    assert cut(steps, size, ranks) == expected


@given(st.integers(1, 5000), st.integers(1, 40), st.integers(1, 16))
def test_equal_parts_no_larger_than_asked_and_none_of_padding_alone(steps: int, parts: int, ranks: int) -> None:
    found = cut(steps, parts * ranks, ranks)
    assert found.mini_batches * found.size == steps + found.padding
    assert found.size <= parts * ranks
    assert found.size % ranks == 0
    assert 0 <= found.padding < found.size
    assert (found.mini_batches - 1) * parts * ranks < steps  # no more mini-batches than needed


@pytest.mark.parametrize(("steps", "size", "ranks"), [(10, 6, 4), (10, 2, 4), (0, 4, 4)])
def test_what_cannot_be_cut_is_refused(steps: int, size: int, ranks: int) -> None:
    with pytest.raises(ValueError, match=r"multiple of the|no steps"):
        cut(steps, size, ranks)
