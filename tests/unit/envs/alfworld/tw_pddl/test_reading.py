from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hgpo.envs.alfworld import Game, GameFileError, load_game, parse_game
from hgpo.envs.alfworld.tw_pddl.reading import MAX_BYTES
from unit.envs.alfworld.kitchen import PLACE_GOAL, game_file, grammar, kitchen, problem_text


def test_a_whole_game_is_read() -> None:
    walkthrough = tuple(json.loads(game_file())["walkthrough"])
    assert parse_game(game_file(), "kitchen") == kitchen(walkthrough=walkthrough)


def test_a_file_is_read_and_gives_the_game_its_name(tmp_path: Path) -> None:
    file = tmp_path / "game.tw-pddl"
    file.write_text(game_file(), encoding="utf-8")
    assert load_game(file).name == str(file)
    assert replace(load_game(str(file)), name="x") == parse_game(game_file().encode(), "x")


def test_task_sentence_may_hold_quotes() -> None:
    game = parse_game(game_file(grammar=grammar(r"put the \"apple\" on shelf.")), "x")
    assert game.task == 'put the "apple" on shelf.'


def test_things_in_several_places() -> None:
    more = "(inReceptacle Apple_bar_1 Shelf_bar_1) (inReceptacleObject Fork_bar_1 Apple_bar_1)"
    by_name = {item.name: item for item in with_facts(more).objects}
    assert by_name["apple 2"].receptacles == ("Shelf_bar_1", "CounterTop_bar_1")
    assert by_name["fork 1"].inside == ("Apple_bar_1", "Plate_bar_1")


def test_a_thing_without_kind_still_counts_when_things_are_named() -> None:
    game = with_facts("(pickupable Apple_bar_0)", "Apple_bar_0 - object Apple_bar_00 - object")
    assert {item.id: (item.name, item.kind) for item in game.objects if "Apple" in item.id} == {
        "Apple_bar_0": ("apple 3", ""),
        "Apple_bar_1": ("apple 2", "Apple"),
        "Apple_bar_2": ("apple 1", "Apple"),
    }


def test_costs_are_passed_over_and_open_receptacles_are_open() -> None:
    game = with_facts("(= (total-cost) 0) (= (distance loc_bar_1 loc_bar_2) 3) (opened Fridge_bar_1)")
    assert [receptacle.name for receptacle in game.receptacles if receptacle.opened] == ["fridge 1"]


@pytest.mark.parametrize(
    ("fact", "problem"),
    [
        ("(flies Apple_bar_1)", "unknown predicate 'flies'"),
        ("(pickupable Ghost_bar_1)", r"'Ghost_bar_1' in \(pickupable Ghost_bar_1\) is not declared as object"),
        ("(inReceptacle Apple_bar_1 Plate_bar_1)", "'Plate_bar_1' .* is not declared as receptacle"),
        ("(pickupable (Apple_bar_1))", "is not declared as object"),
        ("(pickupable)", "has 0 arguments; pickupable takes 1"),
        ("()", "has no predicate"),
        ("word", "has no predicate"),
        ("(objectType Apple_bar_1 ForkType)", "'Apple_bar_1' has two values of objectType"),
        ("(atLocation agent1 loc_bar_1)", "starts at 2 places"),
    ],
)
def test_unknown_facts_are_refused(fact: str, problem: str) -> None:
    with pytest.raises(GameFileError, match=problem):
        with_facts(fact)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("(:init", "(:start", "no :init section"),
        ("(define", "(defined", "no define section"),
        ("(:domain alfred)", "((:domain) alfred)", None),
        ("Fork_bar_1", "Fork", "'Fork' has no '_bar_'"),
        ("agent1 - agent", "agent1 - (agent)", "without a type"),
        ("agent1 - agent", "(agent1) - agent", "is not a name"),
        ("WindowType - otype", "WindowType", "'WindowType' in :objects has no type"),
        ("(receptacleAtLocation Shelf_bar_1 loc_bar_1)", "", "'Shelf_bar_1' has no kind or no location"),
        ("(:goal", "(:goal (forall (?x) (p ?x))", "a part that no template has"),
        ("))))))", "))))", "are never closed"),
        ("(:goal", "(:goal" + "(" * 100, "nested more than 64 deep"),
    ],
)
def test_damaged_problems(old: str, new: str, problem: str | None) -> None:
    text = problem_text(kitchen(), PLACE_GOAL)
    assert old in text
    if problem is None:
        assert parse_game(game_file(text.replace(old, new)), "x")
    else:
        with pytest.raises(GameFileError, match=problem):
            parse_game(game_file(text.replace(old, new)), "x")


@pytest.mark.parametrize("key", ["pddl_domain", "grammar", "pddl_problem", "solvable", "walkthrough"])
def test_every_entry_is_needed(key: str) -> None:
    with pytest.raises(GameFileError, match=f"^some file: the entry '{key}' is missing; download the games again"):
        parse_game(game_file(**{key: None}), "some file")
    with pytest.raises(GameFileError, match=f"the entry '{key}' is int, not"):
        parse_game(game_file(**{key: 3}), "some file")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "not JSON, or cut short"),
        (game_file()[:2000], "not JSON, or cut short"),
        ("[]", "expected a JSON object, found list"),
        ("[" * 200_000, "nested too deep"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b" " * (MAX_BYTES + 1), "more than 524,288 bytes"),
        (game_file(walkthrough=["\ud800"]), "'walkthrough' contains an unpaired surrogate"),
        (game_file(grammar=grammar("x") + "\ud800"), "the entry 'grammar' contains an unpaired surrogate"),
        (game_file(grammar=grammar(r"\ud800")), "the task sentence contains an unpaired surrogate"),
        (game_file(walkthrough=[1]), "'walkthrough' has an element that is not text"),
        (game_file(pddl_domain="(:action fly)"), "another version of the game"),
        (
            game_file(grammar=grammar("x").replace("move {o} to", "put {o} in/on")),
            "with the unknown 'PutObject: put in/on'",
        ),
        (game_file(grammar=grammar("x").replace("Your task", "My task")), "has 0 sentences that begin with"),
        (game_file(grammar=grammar("x") + grammar("y")), "has 2 sentences"),
    ],
)
def test_other_files_are_refused(content: str | bytes, problem: str) -> None:
    with pytest.raises(GameFileError, match=problem):
        parse_game(content, "some file")


def test_a_missing_file_is_named_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(GameFileError, match=r"nowhere: cannot be read .* give the path of a game\.tw-pddl file"):
        load_game(tmp_path / "nowhere")
    with pytest.raises(GameFileError, match="cannot be read"):
        load_game(tmp_path)


def with_facts(facts: str, declarations: str = "") -> Game:
    problem = (
        problem_text(kitchen()).replace("(:init", f"(:init {facts}").replace("(:objects", f"(:objects {declarations}")
    )
    return parse_game(game_file(problem), "some file")
