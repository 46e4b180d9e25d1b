"""The worked examples are what their maker makes, can be replayed, and say nothing that is not so."""

from __future__ import annotations

import copy
import re
import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hgpo.agents.worked_examples import WorkedExample, WorkedTurn, examples_for, load_examples
from hgpo.envs.alfworld.game import TASK_TYPES
from hgpo.envs.base import Task
from hgpo.envs.webshop.expert import parse_instruction
from hgpo.envs.webshop.generator import DEPARTMENTS

ROOT = Path(__file__).parents[4]
MAKER = runpy.run_path(str(ROOT / "tools" / "react_examples"))
FILES = ROOT / "src" / "hgpo" / "agents" / "examples"
OFFICIAL = ("fashion", "garden", "beauty", "electronics", "grocery")
KINDS = {"household": TASK_TYPES, "shop": (*OFFICIAL, *DEPARTMENTS)}
LONGEST = {"household": 6000, "shop": 7000}  # characters of two examples, about 2,000 tokens
MARKER = re.compile(
    r"^\W*(?:thought|action|observation|act|obs|question|answer|task|user|assistant)\b[^\n]*?:", re.I | re.M
)
THING = re.compile(r"\b[a-z]+ \d+\b")
STATE = re.compile(r"([a-z]+ \d+) (?:is )?(clean|hot|cool)\b")
VERBS = {"clean": "clean", "hot": "heat", "cool": "cool"}
HOLDING = re.compile(r"\b(?:have|hold|With) ([a-z]+ \d+)\b")


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    """What the maker plays today: name -> games, each a task and its example."""
    return {"household": MAKER["household_games"](), "shop": MAKER["shop_games"]()}


def turns_of_all() -> Iterator[tuple[WorkedExample, int, WorkedTurn]]:
    for name in KINDS:
        for example in load_examples(name):
            for number, turn in enumerate(example.turns):
                yield example, number, turn


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_the_file_is_what_the_maker_makes(name: str, made: dict[str, Any]) -> None:
    text = MAKER["document"](game.example for game in made[name])
    assert (FILES / f"{name}.json").read_text(encoding="utf-8") == text, "run: python tools/react_examples"
    assert load_examples(name) == tuple(game.example for game in made[name])


@pytest.mark.parametrize("name", KINDS)
def test_there_are_two_examples_of_every_kind(name: str) -> None:
    assert Counter(example.kind for example in load_examples(name)) == dict.fromkeys(KINDS[name], 2)


def replay(task: Task, example: WorkedExample) -> Iterator[tuple[WorkedTurn, str, Any]]:
    """Each turn with what the environment says before it, and the environment itself; wins with the last action."""
    environment: Any = task.make()
    observation, info = environment.reset()
    assert info["task"] == example.task
    assert task.kind == example.kind
    for number, turn in enumerate(example.turns, start=1):
        yield turn, observation, environment
        observation, _, terminated, _, info = environment.step(turn.action)
        assert info["won"] == terminated == (number == len(example.turns))


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_replaying_the_actions_gives_the_observations_and_wins(name: str, made: dict[str, Any]) -> None:
    for game in made[name]:
        for turn, observation, _ in replay(game.task, game.example):
            if observation.startswith("-= "):  # the first of the household's: less banner and task
                _, room, task = observation.split("\n\n")
                assert task == f"Your task is to: {game.example.task}"
                observation = room
            assert turn.observation == observation


@pytest.mark.slow
def test_thoughts_of_the_household_hold_what_they_claim_to_hold(made: dict[str, Any]) -> None:
    claims = 0
    for game in made["household"]:
        for turn, _, environment in replay(game.task, game.example):
            claimed = HOLDING.findall(turn.thought)
            claims += len(claimed)
            carried = copy.deepcopy(environment).step("inventory")[0]
            assert all(carried == f"You are carrying: a {thing}." for thing in claimed), turn
    assert claims > 15


def test_things_of_the_household_are_clean_hot_or_cool_once_made_so() -> None:
    claims = 0
    for example in load_examples("household"):
        answers = ""
        for turn in example.turns:
            answers += turn.observation
            for thing, state in STATE.findall(turn.thought.lower()):
                claims += 1
                assert f"You {VERBS[state]} the {thing} using the " in answers, turn
    assert claims > 5


def test_thoughts_of_the_household_name_only_what_was_observed() -> None:
    for example in load_examples("household"):
        observed: set[str] = set()
        for turn in example.turns:
            observed.update(THING.findall(turn.observation))
            assert set(THING.findall(turn.thought.lower())) <= observed, turn


def test_thoughts_of_the_household_miss_only_what_is_not_there() -> None:
    missed = 0
    for example in load_examples("household"):
        for turn in example.turns:
            for kind in re.findall(r"\b[Nn]o ([a-z]+)\b", turn.thought):
                missed += 1
                assert not re.search(rf"\b{kind} \d", turn.observation), turn
    assert missed > 10


def test_thoughts_of_the_shop_name_only_what_the_pages_and_the_task_say() -> None:
    for example in load_examples("shop"):
        read = example.task
        for turn in example.turns:
            read += f" {turn.observation}"
            for named in re.findall(r"\b[A-Z0-9]*\d[A-Z0-9]*\b", turn.thought):
                assert re.search(rf"\b{named}\b", read), turn


def test_shop_examples_search_choose_and_buy() -> None:
    for example in load_examples("shop"):
        actions = [turn.action for turn in example.turns]
        assert actions[0].startswith("search[")
        assert actions[-1] == "click[buy now]"
        values = parse_instruction(example.task).options
        assert values
        assert {f"click[{value}]" for value in values} <= set(actions)


def test_shop_examples_show_both_forms_a_way_back_and_a_second_page() -> None:
    shop = load_examples("shop")
    for kind in KINDS["shop"]:
        back, second_page = (example for example in shop if example.kind == kind)
        assert "click[< prev]" in [turn.action for turn in back.turns]
        assert "click[next >]" in [turn.action for turn in second_page.turns]
        for example in (back, second_page):
            is_official = kind in OFFICIAL
            assert all(("[SEP]" in turn.observation) == is_official for turn in example.turns)
            assert example.task.startswith("Find me ") == is_official
            assert bool(re.search(r", and price lower than \d+\.00 dollars$", example.task)) == is_official
    assert [example.kind in OFFICIAL for example in shop] == [True] * 10 + [False] * 8


def test_shop_examples_of_the_official_form_have_one_option_and_then_two() -> None:
    shop = load_examples("shop")
    for kind in OFFICIAL:
        assert [len(parse_instruction(one.task).options) for one in shop if one.kind == kind] == [1, 2]


def test_thoughts_are_short_sentences() -> None:
    for _, _, turn in turns_of_all():
        assert 0 < len(turn.thought) <= 300
        assert turn.thought == turn.thought.strip()
        assert turn.thought.isascii()
        assert 1 <= turn.thought.count(". ") + 1 <= 2, turn
        assert turn.thought.endswith(".")
        assert turn.thought[0].isupper()


def test_no_example_says_the_same_twice() -> None:
    for name in KINDS:
        for example in load_examples(name):
            thoughts = [turn.thought for turn in example.turns]
            assert len(set(thoughts)) == len(thoughts)


def test_no_text_has_the_marks_of_a_prompt() -> None:
    assert MARKER.search("I see.\nThought: go on")
    assert MARKER.search("> Action 2: look")
    for example, _, turn in turns_of_all():
        for text in (example.task, turn.observation, turn.thought, turn.action):
            assert not MARKER.search(text), text


@pytest.mark.parametrize("name", KINDS)
def test_two_examples_of_a_kind_are_short_enough_for_a_prompt(name: str) -> None:
    loaded = load_examples(name)
    for kind in (*KINDS[name], "a kind without examples"):
        texts = [
            text
            for example in examples_for(loaded, kind, 2)
            for text in (example.task, *(part for turn in example.turns for part in parts_of(turn)))
        ]
        assert sum(map(len, texts)) < LONGEST[name]


def parts_of(turn: WorkedTurn) -> tuple[str, str, str]:
    return turn.observation, turn.thought, turn.action
