import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.agents.prompts import MAX_ACTION_CHARACTERS, parse_bare, parse_tagged


def tagged(response: str, fallback: int = 30):
    return parse_tagged(response, fallback_characters=fallback)


def test_the_first_action_is_taken_and_lower_cased():
    parsed = tagged("<think>hm</think><action> Go To Fridge 1 </action><action>look</action>")
    assert (parsed.action, parsed.valid, parsed.fault) == ("go to fridge 1", True, "")


@pytest.mark.parametrize(
    ("response", "fault"),
    [
        ("<think>x</think> go to fridge 1", "no <action></action>"),
        ("<action>look</action>", "no <think></think>"),
        ("<think>x<action>look</action>", "no <think></think>"),
        ("<think>去</think><action>look</action>", "CJK characters"),
        (f"<think>x</think><action>search[{'a' * 600}]</action>", "too long"),
        ("", "no <action></action>"),
    ],
)
def test_faults_of_tagged_responses(response, fault):
    parsed = tagged(response)
    assert not parsed.valid
    assert parsed.fault == fault


def test_without_a_tag_the_last_characters_are_sent_on():
    assert tagged("x" * 100 + "open drawer 1", fallback=13).action == "open drawer 1"
    assert tagged("x" * 100 + "click[buy now]", fallback=20).action == "xxxxxxclick[buy now]"


def test_a_bare_response_is_the_action():
    assert parse_bare("  Take apple 1\u0020 from fridge 1 ").action == "take apple 1 from fridge 1"


@pytest.mark.parametrize("response", ["", "   ", "\x1b[31mlook\x07", "a" * 3_000_000])
def test_hostile_bare_responses_are_invalid_and_harmless(response):
    parsed = parse_bare(response)
    assert not parsed.valid
    assert len(parsed.action) <= MAX_ACTION_CHARACTERS


@given(st.text())
def test_an_action_is_always_one_clean_bounded_line(response):
    for parsed in (parse_bare(response), tagged(response)):
        assert len(parsed.action) <= MAX_ACTION_CHARACTERS
        assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in parsed.action)
        assert parsed.valid == (parsed.fault == "")
