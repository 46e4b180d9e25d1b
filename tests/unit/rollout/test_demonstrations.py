from functools import partial

import numpy as np
import pytest

from corridor import Corridor, CorridorExpert
from hgpo.agents import TEMPLATES
from hgpo.envs.base import Task, TaskSplits
from hgpo.envs.wrappers import LimitedSuite
from hgpo.rollout.prompts import RolloutRules
from hgpo.rollout.runner import demonstrate

RULES = RolloutRules(TEMPLATES.get("compact"), history_length=2, temperature=1.0)


def shown(suite, noise, seed=0):
    limited = LimitedSuite(suite, 20)
    return demonstrate(limited.tasks("train"), limited.expert(), RULES, np.random.default_rng(seed), noise=noise)


def test_without_noise_every_command_is_the_experts(corridor_suite):
    pairs = shown(corridor_suite, 0.0)
    assert [command for _, command in pairs] == (
        ["go right"] * 1 + ["open door"] + ["go right"] * 3 + ["open door"] + ["go right"] * 5 + ["open door"]
    )
    last, _ = pairs[-1]
    assert last.step == 5
    assert last.history == (("you are at place 3", "go right"), ("you are at place 4", "go right"))


def test_noise_replaces_a_share_of_the_commands_and_is_repeatable(corridor_suite):
    pairs = shown(corridor_suite, 0.5)
    assert pairs == shown(corridor_suite, 0.5)
    assert pairs != shown(corridor_suite, 0.5, seed=1)
    assert {command for _, command in shown(corridor_suite, 1.0)} == {"go left", "go right", "open door"}
    assert len(shown(corridor_suite, 1.0)) > len(shown(corridor_suite, 0.0))


def test_noise_needs_commands_to_choose_from():
    class Silent(Corridor):
        def _info(self, won):
            return {**super()._info(won), "admissible_commands": []}

    [task] = LimitedSuite(TaskSplits({"train": lambda: [Task("t", "corridor", partial(Silent, 1))]}), 20).tasks("train")
    pairs = demonstrate([task], CorridorExpert(), RULES, np.random.default_rng(0), noise=1.0)
    assert [command for _, command in pairs] == ["go right", "open door"]


def test_noise_is_a_probability(corridor_suite):
    with pytest.raises(ValueError, match="noise must be from 0 to 1"):
        shown(corridor_suite, 1.5)


def test_a_suite_without_an_expert_has_none():
    assert LimitedSuite(object(), 5).expert() is None
