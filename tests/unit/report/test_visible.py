from hypothesis import given
from hypothesis import strategies as st

from hgpo.report.visible import visible


def test_what_acts_is_replaced():
    assert visible("a\x1b[31mb\nc") == "a�[31mb c"
    assert visible("\u202etxt.exe\u200b\ud800") == "�txt.exe��"


@given(st.text())
def test_the_result_is_one_printable_line(text):
    shown = visible(text, most=40)
    assert len(shown) <= 40
    assert "\n" not in shown
    assert not any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for character in shown)
