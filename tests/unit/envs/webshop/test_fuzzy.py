from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.envs.webshop.reward import token_set_ratio

PHRASES = st.text(alphabet="abc _-É1 ", max_size=12)


@pytest.mark.parametrize(
    ("one", "other", "score"),
    [
        ("long sleeve", "Sleeve, long and warm", 100),  # all words of one are in the other
        ("red", "blue", 29),  # "e" is common: 2 / 7
        ("abc", "abd", 67),  # 4 / 6
        ("a b", "a c", 67),  # "a b" and "a c": 4 / 6; "a" and "a b": 2 / 4
        ("light blue shoes", "dark blue shoes", 80),  # "blue shoes" and "blue shoes dark": 20 / 25
        ("café", "caf", 100),  # what is not ASCII does not count
        ("a_b", "a b", 100),  # nor does an underscore
        ("", "red", 0),
        ("--", "--", 0),
    ],
)
def test_by_hand(one: str, other: str, score: int) -> None:
    assert token_set_ratio(one, other) == score


def test_halves_are_rounded_to_even_from_exact_values() -> None:
    assert token_set_ratio("a" * 17 + "b" * 23, "a" * 17 + "c" * 23) == 42  # 2 · 17 / 80 = 42.5 per cent


@given(PHRASES, PHRASES)
def test_symmetric_and_bounded(one: str, other: str) -> None:
    assert token_set_ratio(one, other) == token_set_ratio(other, one)
    assert 0 <= token_set_ratio(one, other) <= 100


@given(st.lists(st.sampled_from(["red", "wool", "warm", "8"]), min_size=1))
def test_order_and_repetition_do_not_count(words: list[str]) -> None:
    assert token_set_ratio(" ".join(words), " ".join(sorted(set(words), reverse=True))) == 100


@given(PHRASES, PHRASES)
def test_as_the_library_has_it(one: str, other: str) -> None:
    thefuzz = pytest.importorskip("thefuzz.fuzz", reason="thefuzz is not installed")
    assert token_set_ratio(one, other) == thefuzz.token_set_ratio(one, other)
