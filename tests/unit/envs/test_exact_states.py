"""The exact states that the simulators give for `rollout.state = "simulator"`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.envs.alfworld.engine import AlfworldEnv, Engine
from hgpo.envs.base import Task, TaskSplits
from hgpo.envs.env_checker import EnvContractError
from hgpo.envs.webshop import WebShopEnv
from hgpo.envs.wrappers import LimitedSuite
from hgpo.rollout.state_keys import Visit, make_key
from unit.envs.alfworld.kitchen import kitchen
from unit.envs.webshop.shop import small_catalog

choices = st.lists(st.integers(0, 30), max_size=12)
SEARCHES = ["search[mug]", "search[red mug]", "search[<r>]", "search[soap]"]


def walked(chosen: list[int]) -> Engine:
    engine = Engine(kitchen())
    for number in chosen:
        engine.act(engine.commands[number % len(engine.commands)])
    return engine


@given(choices, choices)
def test_keys_of_household_games_are_equal_exactly_where_the_worlds_are(one: list[int], other: list[int]) -> None:
    first, second = walked(one), walked(other)
    assert (first.state_key() == second.state_key()) == (first.__getstate__() == second.__getstate__())


@pytest.mark.parametrize(
    ("commands", "change"),
    [
        (["look", "inventory", "help", "unknown"], ""),
        (["go to shelf 1"], "countertop 1, shelf 1"),
        (["go to fridge 1", "open fridge 1"], "opened fridge 1"),
        (["go to fridge 1", "open fridge 1", "close fridge 1"], "at fridge 1"),
        (["go to shelf 1", "take apple 2 from countertop 1"], "carries apple 2"),
        (["go to shelf 1", "use desklamp 1"], "desklamp 1 toggled"),
        (
            [
                "go to fridge 1",
                "open fridge 1",
                "take apple 1 from fridge 1",
                "go to microwave 1",
                "heat apple 1 with microwave 1",
            ],
            "apple 1 hot ; apple 1 not cool ; fridge 1 holds fork 1, plate 1 ; apple 1 left fridge 1"
            " ; apple 1 near nothing",
        ),
    ],
)
def test_a_key_says_what_differs_from_the_start(commands: list[str], change: str) -> None:
    engine = Engine(kitchen())
    start = engine.state_key()
    for command in commands:
        engine.act(command)
    assert change in engine.state_key()
    assert (engine.state_key() == start) == (not change)


def shopped(chosen: list[int], mode: str) -> tuple[str, Callable[[str], str]]:
    """The key after some actions, and what the shop shows after one more."""
    environment = WebShopEnv(small_catalog(), mode, goal=0)
    _, info = environment.reset()
    for number in chosen:
        actions = [*SEARCHES, *info["admissible_commands"]]
        action = actions[number % len(actions)]
        if action != "click[buy now]":
            _, _, _, _, info = environment.step(action)
    return environment.state_key(), lambda action: environment.step(action)[0]


@given(choices, choices, st.sampled_from([*SEARCHES, "click[next >]", "click[buy now]", "click[mug1]", "click[red]"]))
def test_shops_of_equal_keys_show_the_same(one: list[int], other: list[int], action: str) -> None:
    (first, show_first), (second, show_second) = (shopped(chosen, "text_rich") for chosen in (one, other))
    if first == second:
        assert show_first(action) == show_second(action)


def test_the_state_after_the_purchase_can_be_asked_for() -> None:
    environment = WebShopEnv(small_catalog(), "brief", goal=0)
    with pytest.raises(RuntimeError, match=r"reset"):
        environment.state_key()
    environment.reset()
    for action in ("search[mug]", "click[mug1]", "click[buy now]"):
        _, _, bought, _, _ = environment.step(action)
    assert bought
    assert '"done"' in environment.state_key()


def test_a_choice_and_a_random_search_change_the_key_of_a_shop() -> None:
    environment = WebShopEnv(small_catalog(), "brief", goal=0)
    environment.reset()
    keys = [environment.state_key()]
    for action in ("search[mug]", "click[mug1]", "click[red]", "click[back to search]", "search[<r>]", "search[<r>]"):
        environment.step(action)
        keys.append(environment.state_key())
    assert keys.index(keys[4]) == 0
    assert len(set(keys)) == len(keys) - 1


def test_it_is_the_key_of_a_state() -> None:
    suite = LimitedSuite(TaskSplits({"train": lambda: [Task("kitchen", "", lambda: AlfworldEnv(kitchen()))]}), 5)
    environment = suite.tasks("train")[0].make()
    start, info = environment.reset()
    key = make_key("simulator")
    first = key(Visit(start, None, info))
    nothing, _, _, _, info = environment.step("look")
    assert key(Visit(nothing, "look", info)) == first == "at loc_bar_0"


class Told:
    """Gives `key` as its state in the info; None: no state."""

    def __init__(self, key: Any) -> None:
        self.key = key

    def reset(self, *, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        return "here", {"won": False} | ({} if self.key is None else {"state_key": self.key})


class Asked(Told):
    """Gives its state when asked."""

    def reset(self, *, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        return "here", {"won": False}

    def state_key(self) -> Any:
        if self.key is None:
            raise KeyError("lost")
        return self.key


def started(environment: Any) -> str:
    suite = LimitedSuite(TaskSplits({"train": lambda: [Task("t", "", lambda: environment)]}), 5)
    observation, info = suite.tasks("train")[0].make().reset()
    return make_key("simulator")(Visit(observation, None, info))


def test_a_state_is_in_the_info_or_asked_for() -> None:
    assert started(Told("place 3")) == started(Asked("place 3")) == "place 3"


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (Told(3), r"'t'.*info\['state_key'\] text.*3"),
        (Told(None), r"simulator.* needs info\['state_key'\]"),
        (Asked(3), r"'t': state_key\(\) has to return text, and returned 3"),
        (Asked(None), r"'t': state_key\(\) raised KeyError: 'lost' \(test_exact_states.py"),
    ],
)
def test_a_wrong_state_names_task_and_remedy(environment: Told, message: str) -> None:
    with pytest.raises(EnvContractError, match=message):
        started(environment)
