from __future__ import annotations

import pytest

from hgpo.envs.alfworld.expert import TaskSentence, parse_task


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("put a apple in fridge.", TaskSentence("pick_and_place_simple", "apple", "fridge")),
        ("put some cd on safe.", TaskSentence("pick_and_place_simple", "cd", "safe")),
        ("put two mug in desk.", TaskSentence("pick_two_obj_and_place", "mug", "desk")),
        ("find two mug and put them in desk.", TaskSentence("pick_two_obj_and_place", "mug", "desk")),
        ("look at bowl under the desklamp.", TaskSentence("look_at_obj_in_light", "bowl", "desklamp")),
        ("examine the bowl with the desklamp.", TaskSentence("look_at_obj_in_light", "bowl", "desklamp")),
        ("put a clean pan in shelf.", TaskSentence("pick_clean_then_place_in_recep", "pan", "shelf", "clean")),
        (
            "clean some pan and put it in shelf.",
            TaskSentence("pick_clean_then_place_in_recep", "pan", "shelf", "clean"),
        ),
        ("put a hot egg in shelf.", TaskSentence("pick_heat_then_place_in_recep", "egg", "shelf", "heat")),
        ("heat some egg and put it in shelf.", TaskSentence("pick_heat_then_place_in_recep", "egg", "shelf", "heat")),
        ("put a cool egg in shelf.", TaskSentence("pick_cool_then_place_in_recep", "egg", "shelf", "cool")),
        ("Cool some egg and put it in shelf", TaskSentence("pick_cool_then_place_in_recep", "egg", "shelf", "cool")),
    ],
)
def test_known_wordings(sentence: str, expected: TaskSentence) -> None:
    assert parse_task(sentence) == expected


def test_another_sentence_is_quoted() -> None:
    with pytest.raises(ValueError, match=r"'juggle three apples\.' has none of the known forms"):
        parse_task("juggle three apples.")
