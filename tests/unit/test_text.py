from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.utils.text import counted, did_you_mean, suggestions, visible, visible_lines

SETTINGS = ["policy", "policy.lora", "policy.lora.rank", "policy.lora.alpha", "rollout.group_size", "training.updates"]


def test_nouns_agree_with_their_counts():
    assert [counted(number, "update") for number in (0, 1, 2000)] == ["0 updates", "1 update", "2,000 updates"]
    assert counted(2, "trajectory", "trajectories") == "2 trajectories"


def test_what_acts_is_replaced():
    assert visible("a\x1b[31mb\nc") == "a�[31mb c"
    assert visible("\u202etxt.exe\u200b\ud800") == "�txt.exe��"


def test_lines_stay_lines():
    assert visible_lines("a\x1b[31mb\n\tc  d\r\n") == "a�[31mb\n\tc  d�\n"
    assert visible_lines("\u200fright\u202e\u200b") == "�right��"


@given(st.text())
def test_lines_are_the_text_but_for_what_acts(text):
    shown = visible_lines(text)
    assert len(shown) == len(text)
    assert all(new in (old, "�") for old, new in zip(text, shown, strict=True))
    assert shown.count("\n") == text.count("\n")


@given(st.text())
def test_the_result_is_one_printable_line(text):
    shown = visible(text, most=40)
    assert len(shown) <= 40
    assert "\n" not in shown
    assert not any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for character in shown)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("policy.lora.rnk", ["policy.lora.rank"]),  # misspelt in its section
        ("training.group_size", ["rollout.group_size"]),  # of another section
        ("lora", ["policy.lora"]),  # without the section around it
        ("polcy", ["policy"]),
        ("trainin.updates", ["training.updates"]),  # no such section
        ("training.zzz", []),
        ("zzz", []),
    ],
)
def test_of_settings(given: str, meant: list[str]) -> None:
    assert suggestions(given, SETTINGS) == meant


def test_what_is_much_less_alike_is_left_out() -> None:
    assert suggestions("quikstart", ["quickstart", "start"]) == ["quickstart"]


def test_the_sentence() -> None:
    assert did_you_mean("trian", ["train", "eval"]) == "; did you mean train?"
    assert did_you_mean("a.x", ["b.x", "c.x"]) == "; did you mean b.x or c.x?"
    assert did_you_mean("zzz", ["train"]) == ""
