from hypothesis import given
from hypothesis import strategies as st

from hgpo.utils.text import visible, visible_lines


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
