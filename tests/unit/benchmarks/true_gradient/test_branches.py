"""Advantages of steps from branched rollouts, in a game whose values are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hgpo.agents import TEMPLATES
from hgpo.envs.base import Task
from hgpo.rollout.prompts import RolloutRules
from hgpo.rollout.records import by_trajectory
from hgpo.rollout.runner import collect
from hgpo.steps import StepBatch
from scripted_policy import ScriptedPolicy
from true_gradient.branches import (
    REPETITIONS,
    Branches,
    branch,
    errors,
    mean_over_steps,
    measured_steps,
    repeated,
    repetitions,
)
from true_gradient.contenders import GAMMA
from true_gradient.pools import Player


class TwoTurns:
    """An episode of two turns, which is won if the first action was "left"."""

    def reset(self, *, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        self.taken: list[str] = []
        return "start", self._info(False)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.taken.append(action)
        won = len(self.taken) == 2 and self.taken[0] == "left"
        return "middle", float(won), len(self.taken) == 2, False, self._info(won)

    def _info(self, won: bool) -> dict[str, Any]:
        return {"won": won, "task": "win", "admissible_commands": ["left", "right"]}


@pytest.fixture(scope="module")
def player() -> Player:
    policy = ScriptedPolicy(lambda prompt, rng: str(rng.choice(["left", "right"])))
    rules = RolloutRules(TEMPLATES.get("compact"), 2, 1.0)
    return Player(None, policy, rules, {"t": Task("t", "", TwoTurns)}, 1024)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def rollouts(player: Player) -> list[list[Any]]:
    steps = collect(list(player.tasks.values()), player.policy, player.rules, np.random.default_rng(0), group_size=40)
    return by_trajectory(steps)


def test_values_are_those_of_the_game(player: Player, rollouts: list[list[Any]]) -> None:
    found = branch(player, [*(steps[:1] for steps in rollouts[:6]), *rollouts[:6]], 200, np.random.default_rng(1))
    for first, second in zip(found[:6], found[6:], strict=True):
        left = first.step.action == "left"
        assert first.after.tolist() == [GAMMA * left] * 200
        assert first.advantage == pytest.approx(GAMMA * (left - 0.5), abs=0.15)
        assert second.prefix == [first.step]
        assert second.after.tolist() == second.before.tolist() == [float(left)] * 200
        assert second.variance == 0.0
        assert second.futures == [[]] * REPETITIONS


def own_return(batch: StepBatch) -> dict[str, Any]:
    """The advantage is what follows: reward of the trajectory in units of the game, less one half."""
    total_M = np.add.reduceat(batch.reward[batch.order], batch.trajectory_start[:-1])
    size_N = np.bincount(batch.trajectory_group)[batch.group]
    return {"own": (GAMMA * (total_M[batch.trajectory] - 0.5), size_N), "nothing": (np.zeros(len(batch)), size_N)}


@pytest.mark.slow
def test_errors_of_a_perfect_and_of_a_useless_estimate(player: Player, rollouts: list[list[Any]]) -> None:
    branched = branch(player, [steps[:1] for steps in rollouts], 400, np.random.default_rng(2))
    estimates = repeated(branched, {"t": rollouts}, 4, own_return)
    everything = np.ones(len(branched), dtype=np.bool_)
    measured = measured_steps(branched, estimates)
    own, nothing = (errors(measured, name, everything) for name in ("own", "nothing"))
    assert estimates["own"][0].shape == (40, repetitions(40, 4)) == (40, REPETITIONS)
    assert (estimates["own"][1] == 4).all()
    assert own["squared_error"] == pytest.approx(0.0, abs=0.01)
    assert own["correlation"] == pytest.approx(1.0, abs=0.01)
    assert nothing["squared_bias"] == pytest.approx(nothing["signal"]) == pytest.approx(GAMMA**2 / 4, abs=0.02)
    assert nothing["variance"] == 0.0


def test_noise_is_taken_out_of_bias_and_signal() -> None:
    draws = np.random.default_rng(3)
    true_S = draws.normal(size=4000)
    branched = [
        Branches(None, [], [], draws.normal(size=8), value + draws.normal(size=8))  # type: ignore[arg-type]
        for value in true_S
    ]
    estimate_SR = 0.5 * true_S[:, None] + 0.2 + draws.normal(size=(4000, 4))
    measured = measured_steps(branched, {"half": (estimate_SR, np.ones((4000, 4), dtype=np.int64))})
    found = errors(measured, "half", np.ones(4000, dtype=np.bool_))
    assert found["bias"] == pytest.approx(0.2, abs=0.05)
    assert found["squared_bias"] == pytest.approx(0.04 + 0.25, abs=0.05)
    assert found["variance"] == pytest.approx(1.0, abs=0.05)
    assert found["signal"] == pytest.approx(1.0, abs=0.08)
    assert found["correlation"] == pytest.approx(0.5 / np.sqrt(0.25 + 0.04), abs=0.05)
    assert repetitions(64, 32) == 2


def test_the_interval_of_a_mean_is_over_tasks() -> None:
    """Ten tasks of 20 equal steps: the standard error is that of ten values, not of 200."""
    draws = np.random.default_rng(5)
    value_T = draws.normal(size=10)
    found = mean_over_steps(np.repeat(value_T, 20), np.repeat(np.arange(10), 20), seed=0)
    assert found.value == pytest.approx(value_T.mean())
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * value_T.std() / np.sqrt(10), rel=0.1)
