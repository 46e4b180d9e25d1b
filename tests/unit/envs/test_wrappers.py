from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from corridor import Corridor
from hgpo.envs.base import Task
from hgpo.envs.env_checker import EnvContractError, wrapped_error
from hgpo.envs.wrappers import LimitedEnv, LimitedSuite


def test_the_limit_truncates_on_the_last_step_and_a_reset_counts_anew():
    environment = LimitedEnv(Corridor(goal=5), 2)
    for _ in range(2):
        environment.reset()
        assert [environment.step("go right")[3] for _ in range(2)] == [False, True]


def test_winning_on_the_last_step_is_termination():
    environment = LimitedEnv(Corridor(goal=1), 2)
    environment.reset()
    environment.step("go right")
    assert environment.step("open door")[1:4] == (1.0, True, False)


def test_an_episode_that_ends_at_the_environments_own_limit_is_not_cut():
    environment = LimitedEnv(Returning(START, ("a door", 1.0, True, True, {"won": True})), 9)
    environment.reset()
    assert environment.step("open door")[1:4] == (1.0, True, False)


def test_a_suite_is_limited_lazily_and_can_be_sliced(corridor_suite):
    tasks = LimitedSuite(corridor_suite, 3).tasks("train")
    assert [task.id for task in tasks] == ["train/1", "train/3", "train/5"]
    assert [task.id for task in tasks[:2]] == ["train/1", "train/3"]
    assert isinstance(tasks[0].make(), LimitedEnv)


def test_no_room_for_a_step_is_refused():
    with pytest.raises(ValueError, match="max_steps must be at least 1"):
        LimitedEnv(Corridor(1), 0)


class Returning:
    """Returns what it was given, whatever that is."""

    def __init__(self, start: Any, *results: Any) -> None:
        self.start, self.results = start, list(results)

    def reset(self, *, seed: int | None = None) -> Any:
        return self.start

    def step(self, action: str) -> Any:
        return self.results.pop(0)


START = ("a hall", {"won": False})
TASKS = {"task": "leave"}


@pytest.mark.parametrize(
    ("start", "returned"),
    [
        ("a hall", "a value of type str"),
        ("ab", "an info of type str"),
        (None, "a value of type NoneType"),
        (("a hall", 0.0, {"won": False}), r"3 values \(str, float, dict\)"),
        ((None, {"won": False}), "an observation of type NoneType"),
        (("a hall", None), "an info of type NoneType"),
        (("a hall", TASKS), "an info without 'won'; its keys: task"),
        (("a hall", {"won": "no"}), r"info\['won'\] = 'no'"),
        (("a hall", {"won": False, "admissible_commands": 5}), r"info\['admissible_commands'\] = 5"),
        (("a hall", {"won": False, "tools": [{"name": 5}]}), r"info\['tools'\] = \[\{'name': 5\}\]"),
        (("a hall", {"won": False, "tools": [{"name": "a", "parameters": {"properties": None}}]}), r"info\['tools'\]"),
        (
            ("a hall", {"won": False, "tools": [{"name": "a", "parameters": {"properties": {1: {}}}}]}),
            r"info\['tools'\]",
        ),
        (("a hall", {"won": False, "admissible_commands": "look"}), r"info\['admissible_commands'\] = 'look'"),
        (
            ("a hall", {"won": False, "admissible_commands": ["look", 5]}),
            r"info\['admissible_commands'\] = \['look', 5\]",
        ),
        (("a hall", {"won": False, "task": 7}), r"info\['task'\] = 7"),
    ],
)
def test_a_start_that_is_none_is_refused_with_the_tasks_name(start, returned):
    environment = LimitedEnv(Returning(start), 5, "mine/7")
    wanted = r"task 'mine/7': reset\(seed=…\) has to return \(observation, info\).*; at step 0 it returned "
    with pytest.raises(EnvContractError, match=wanted + returned):
        environment.reset()


@pytest.mark.parametrize(
    ("result", "returned"),
    [
        (("a hall", 0.0, False, {"won": False}), r"4 values \(str, float, bool, dict\)"),
        (None, "a value of type NoneType"),
        ((b"a hall", 0.0, False, False, {"won": False}), "an observation of type bytes"),
        (("a hall", 0.0, False, False, None), "an info of type NoneType"),
        (("a hall", 0.0, True, False, {}), "an info without 'won'; its keys: none"),
        (("a hall", 0.0, True, False, {"won": "yes"}), r"info\['won'\] = 'yes'"),
        (("a hall", 0.0, True, False, {"won": 1}), r"info\['won'\] = 1"),
        (("a hall", 0.0, True, False, {"won": None}), r"info\['won'\] = None"),
        (("a hall", "1", True, False, {"won": True}), "the reward '1'"),
        (("a hall", None, True, False, {"won": True}), "the reward None"),
        (("a hall", True, True, False, {"won": True}), "the reward True"),
        (("a hall", 10**400, True, False, {"won": True}), "the reward 1000"),
        (("a hall", 1e308, True, False, {"won": True}), r"the reward 1e\+308"),
        (("a hall", float("nan"), True, False, {"won": True}), "the reward nan"),
        (("a hall", 0.0, "no", False, {"won": True}), "terminated = 'no'"),
        (("a hall", 0.0, False, 0, {"won": True}), "truncated = 0"),
        (("a hall", 0.0, True, False, {"won": True, "score": 1e308}), r"info\['score'\] = 1e\+308"),
        (("a hall", 0.0, True, False, {"won": True, "score": -0.1}), r"info\['score'\] = -0.1"),
    ],
)
def test_a_step_that_is_none_is_refused_with_the_tasks_name(result, returned):
    environment = LimitedEnv(Returning(START, ("a hall", 0.0, False, False, {"won": False}), result), 5, "mine/7")
    environment.reset()
    environment.step("wait")
    wanted = r"task 'mine/7': step\(action\) has to return \(observation, reward, terminated, truncated, info\).*"
    with pytest.raises(EnvContractError, match=wanted + "; at step 2 it returned " + returned):
        environment.step("wait")


def test_what_stands_for_text_mapping_and_bool_will_do():
    class Text(str):
        __slots__ = ()

    info = {
        "won": np.bool_(True),
        "score": np.float32(0.5),
        "admissible_commands": ("look", Text("wait")),
        "task": None,
    }
    result = (Text("a hall"), np.float64(1.0), np.bool_(True), False, MappingProxyType(info))
    environment = LimitedEnv(Returning(["a hall", {"won": False}], list(result)), 5)
    environment.reset()
    assert environment.step("leave") == result


def test_an_error_of_the_environment_names_task_call_and_line():
    class Failing(Corridor):
        def reset(self, *, seed=None):
            if seed == 1:
                raise OSError("the disk is gone")
            return super().reset(seed=seed)

        def step(self, action):
            raise KeyError("oops")

    environment = LimitedSuite(SuiteOf(lambda: Failing(goal=1)), 3).tasks("train")[0].make()
    with pytest.raises(EnvContractError, match=r"task 'train/1': reset\(\) raised OSError: the disk is gone"):
        environment.reset(seed=1)
    environment.reset(seed=2)
    wanted = r"task 'train/1': step\('go right'\) raised KeyError: 'oops' \(test_wrappers.py, line \d+\)"
    with pytest.raises(EnvContractError, match=wanted) as caught:
        environment.step("go right")
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_environment_that_cannot_be_made_names_the_task():
    def broken():
        raise RuntimeError("no licence")

    with pytest.raises(EnvContractError, match=r"task 'train/1': making it raised RuntimeError: no licence"):
        LimitedSuite(SuiteOf(broken), 3).tasks("train")[0].make()


class Mute(Exception):
    """Cannot say what is wrong."""

    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "said"),
    [(SystemExit(0), "SystemExit: 0"), (Mute(), r"Mute: \(its message cannot be shown: RuntimeError\)")],
)
def test_no_way_of_failing_passes_for_success(error, said):
    class Failing(Corridor):
        def step(self, action):
            raise error

        def reset(self, *, seed=None):
            if seed == 1:
                raise error
            return super().reset(seed=seed)

    def unmakeable():
        raise error

    environment = LimitedSuite(SuiteOf(lambda: Failing(goal=1)), 3).tasks("train")[0].make()
    environment.reset()
    for call in (
        lambda: environment.step("look"),
        lambda: environment.reset(seed=1),
        LimitedSuite(SuiteOf(unmakeable), 3).tasks("train")[0].make,
    ):
        with pytest.raises(EnvContractError, match=f"task 'train/1': .* raised {said}"):
            call()


class Value:
    def __repr__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (Task("train/1", 7, Corridor), "task 'train/1': its kind has to be text, and is 7"),
        (Task(7, "corridor", Corridor), "task 7: its id has to be text, and is 7"),
        (Task("train/1", Value(), Corridor), "is a value of type Value that cannot be shown"),
        (Task("train/1", "corridor", 5), "`make` has to build its environment"),
        ("train/1", "its id has to be text"),
    ],
)
def test_a_task_that_is_none_is_refused(task, said):
    class Suite:
        splits = ("train",)

        def tasks(self, split):
            return [task]

    with pytest.raises(EnvContractError, match=said):
        LimitedSuite(Suite(), 3).tasks("train")[0]


def test_a_task_may_be_any_object_with_id_kind_and_make():
    class Suite:
        splits = ("train",)

        def tasks(self, split):
            return [SimpleNamespace(id="train/1", kind="corridor", make=lambda: Corridor(1))]

    [task] = LimitedSuite(Suite(), 3).tasks("train")
    assert (task.id, task.kind, task.make().reset(seed=0)[0]) == ("train/1", "corridor", "you are at place 0")


@pytest.mark.parametrize(
    ("splits", "tasks"), [(5, []), ("train", []), (["train", 5], []), (["train"], None), (["train"], {"a": 1})]
)
def test_a_suite_that_is_none_is_refused(splits, tasks):
    class Suite:
        def tasks(self, split):
            return tasks

    Suite.splits = splits

    def ask():
        return LimitedSuite(Suite(), 3).splits, LimitedSuite(Suite(), 3).tasks("train")

    with pytest.raises(EnvContractError, match="the suite's"):
        ask()


def test_an_unknown_split_is_said_in_the_suites_own_words(corridor_suite):
    with pytest.raises(ValueError, match="unknown split 'x'; the splits are"):
        LimitedSuite(corridor_suite, 3).tasks("x")


@pytest.mark.parametrize("command", [None, 5, ["look"]])
def test_an_experts_command_is_text(corridor_suite, command):
    class Expert:
        def reset(self, observation, info):
            if command == 5:
                raise SystemExit(0)

        def act(self, observation, info):
            return command

    class Suite:
        splits = ("train",)

        def expert(self):
            return Expert()

    expert = LimitedSuite(Suite(), 3).expert()

    def ask():
        expert.reset("here", {})
        return expert.act("here", {})

    with pytest.raises(EnvContractError, match=r"expert: reset\(\) raised SystemExit|expert's act\(\) has to return a"):
        ask()


class SuiteOf:
    """One task."""

    splits = ("train",)

    def __init__(self, make: Any) -> None:
        self.make = make

    def tasks(self, split: str) -> list[Task]:
        return [Task("train/1", "corridor", self.make)]


def test_a_fault_that_says_itself_what_is_wrong_is_passed_on_with_the_task() -> None:
    fault = wrapped_error(
        "task 'train/0'", "step('go')", EnvContractError("the server is gone. Start it again"), below=""
    )
    assert str(fault) == "task 'train/0': the server is gone. Start it again"
