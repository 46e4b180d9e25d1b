from __future__ import annotations

import pytest

from hgpo.agents.worked_examples import WorkedExample, WorkedTurn, examples_for, load_examples


def example(kind: str, task: str = "") -> WorkedExample:
    return WorkedExample(kind, task, (WorkedTurn("a room", "I look around.", "look"),))


FIRST, SECOND, THIRD, FOURTH = example("put"), example("heat", "one"), example("cool"), example("heat", "two")
ALL = (FIRST, SECOND, THIRD, FOURTH)


@pytest.mark.parametrize("name", ["household", "shop"])
def test_every_example_is_a_whole_game(name: str) -> None:
    loaded = load_examples(name)
    assert loaded == load_examples(name)
    assert len(loaded) >= 8
    for played in loaded:
        assert played.kind
        assert played.task
        assert len(played.turns) >= 5
        assert all(turn.observation and turn.action for turn in played.turns)


@pytest.mark.parametrize(
    ("kind", "count", "expected"),
    [
        ("heat", 1, (SECOND,)),
        ("heat", 3, (SECOND, FOURTH, FIRST)),
        ("cool", 9, (THIRD, FIRST, SECOND, FOURTH)),
        ("cool", 0, ()),
        ("unknown", 2, (FIRST, SECOND)),
    ],
)
def test_those_of_the_kind_come_first_and_then_the_others_in_order(
    kind: str, count: int, expected: tuple[WorkedExample, ...]
) -> None:
    assert examples_for(ALL, kind, count) == expected


def test_those_of_the_form_in_sight_come_before_those_of_the_kind() -> None:
    def of_form(kind: str, observation: str) -> WorkedExample:
        return WorkedExample(kind, "", (WorkedTurn(observation, "I search.", "search[hat]"),))

    text, other_text = (of_form(kind, "WebShop [SEP] Search") for kind in ("fashion", "garden"))
    brief, other_brief = (of_form(kind, "search") for kind in ("home", "fashion"))
    shop = (text, other_text, brief, other_brief)
    assert examples_for(shop, "garden", 3, "Back to Search [SEP] Page 1") == (other_text, text, brief)
    assert examples_for(shop, "fashion", 3, "page 1 #B7 hat 12") == (other_brief, brief, text)
    assert examples_for(shop, "fashion", 2, "WebShop\n[button] Search [button_]") == (text, other_brief)  # none is such
