from __future__ import annotations

from itertools import chain, combinations

import pytest

from hgpo.envs.alfworld import text


def test_names_are_numbered_downwards_in_the_order_of_lower_case_ids() -> None:
    ids = [
        "Mug_bar_b",
        "mug_bar_a",
        "Mug_bar_C",
        "Sink_bar_1",
        "Sink_bar_1_bar_SinkBasin",
        "Bathtub_bar_1_bar_BathtubBasin",
    ]
    assert text.names_from_ids(ids) == {
        "mug_bar_a": "mug 3",
        "Mug_bar_b": "mug 2",
        "Mug_bar_C": "mug 1",
        "Sink_bar_1": "sink 1",
        "Sink_bar_1_bar_SinkBasin": "sinkbasin 1",
        "Bathtub_bar_1_bar_BathtubBasin": "bathtubbasin 1",
    }


def test_an_id_without_position_has_no_name() -> None:
    with pytest.raises(ValueError, match="'Mug' has no '_bar_'"):
        text.names_from_ids(["Mug"])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], "nothing"),
        (["apple 1"], "a apple 1"),
        (["apple 1", "mug 1"], "a apple 1, and a mug 1"),
        (["apple 1", "mug 1", "egg 1"], "a apple 1, a mug 1, and a egg 1"),
    ],
)
def test_enumerations(names: list[str], expected: str) -> None:
    assert text.enumeration_with_articles(names) == expected


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("", "There's nothing special about apple 1."),
        ("clean", "This is a clean apple 1."),
        ("hot", "This is a hot apple 1."),
        ("cool", "This is a cold apple 1."),
        ("sliced", "This is a sliced apple 1."),
        ("toggled", "This apple 1 is on."),
        ("clean hot", "This is a hot and clean apple 1."),
        ("clean cool", "This is a cool and clean apple 1."),
        ("clean sliced", "This is a clean sliced apple 1."),
        ("hot sliced", "This is a hot sliced apple 1."),
        ("cool sliced", "This is a cool sliced apple 1."),
        ("clean hot sliced", "This is a hot and clean sliced apple 1."),
        ("clean cool sliced", "This is a cool and clean sliced apple 1."),
        ("hot cool", "This is a hot apple 1."),
        ("sliced toggled", "This apple 1 is on."),
        ("clean toggled", "This is a clean apple 1."),
    ],
)
def test_what_examining_an_object_says(states: str, expected: str) -> None:
    assert text.plain_object("apple 1", states.split()) == expected


def test_every_combination_of_states_has_its_sentence() -> None:
    states = ("clean", "hot", "cool", "sliced", "toggled")
    subsets = chain.from_iterable(combinations(states, size) for size in range(len(states) + 1))
    assert all("apple 1" in text.plain_object("apple 1", subset) for subset in subsets)


def test_receptacles() -> None:
    assert text.receptacle("fridge 1", ["egg 1"], openable=True, opened=False) == "The fridge 1 is closed."
    assert text.receptacle("desk 1", [], openable=False, opened=False) == "On the desk 1, you see nothing."
    opened = text.receptacle("fridge 1", ["egg 1"], openable=True, opened=True)
    assert opened == "The fridge 1 is open. In it, you see a egg 1."


def test_surroundings() -> None:
    assert (
        text.facing(["shelf 2", "shelf 1"], [])
        == "You are facing the shelf 2, and shelf 1. Next to it, you see nothing."
    )
    assert text.middle_of_room(["desk 1"]).endswith("Looking quickly around you, you see a desk 1.")


def test_help_lists_the_command_words() -> None:
    for verb in ("go to", "open", "close", "take", "move", "use", "heat", "clean", "cool", "slice"):
        assert f"\n  {verb} (" in text.HELP
