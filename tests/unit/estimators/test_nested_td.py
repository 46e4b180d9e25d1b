"""NestedTD: its values, ends and corrections by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hgpo.estimators import compute_advantages
from hgpo.steps import StepBatch

PLAIN: dict[str, Any] = {
    "history_length": 0,
    "value_prior": 0.0,
    "action_power": 0.0,
    "difference_power": 1.0,
    "mode": "none",
}


def batch(**changed: Any) -> StepBatch:
    """a: hall, cellar, won. b: hall, yard, cut in the hall."""
    columns: dict[str, Any] = {
        "group": [0] * 4,
        "trajectory": ["a", "a", "b", "b"],
        "step": [0, 1, 0, 1],
        "observation": ["hall", "cellar", "hall", "yard"],
        "next_observation": ["cellar", "end", "yard", "hall"],
        "action": ["down", "take", "out", "in"],
        "reward": [0.0, 1.0, 0.0, 0.0],
        "success": [False, True, False, False],
        "truncated": [False, False, False, True],
        "response_log_prob": np.log([0.5, 1.0, 0.5, 1.0]).tolist(),
    }
    return StepBatch.from_columns(**(columns | changed))


def advantages(steps: StepBatch, gamma: float = 0.9, **options: Any) -> list[float]:
    found: list[float] = compute_advantages(steps, "nested_td", gamma, **(PLAIN | options)).values.tolist()
    return found


def test_an_episode_that_was_cut_has_the_value_of_where_it_was_cut() -> None:
    # V(hall) = g (V(cellar) + V(yard)) / 2 with V(cellar) = 1 and V(yard) = g V(hall)
    hall = 0.9 / 2 / (1 - 0.9**2 / 2)
    assert advantages(batch()) == pytest.approx([0.9 - hall, 0, 0.81 * hall - hall, 0], abs=1e-4)


@pytest.mark.parametrize("steps", [batch(truncated=None), batch(truncated=[False] * 4)])
def test_an_episode_that_ended_has_no_value_after_its_end(steps: StepBatch) -> None:
    assert advantages(steps) == pytest.approx([0.45, 0, -0.45, 0])
    assert advantages(batch(), bootstrap_truncated=False) == advantages(steps)


def test_a_state_in_which_nobody_acted_says_nothing() -> None:
    steps = batch(observation=["hall", "yard", "hall", "yard"], next_observation=["yard", "end", "yard", "attic"])
    # V(yard) = (1 + 0) / 2: the cut counts as a loss in the mean, and teaches nothing itself.
    assert advantages(steps) == pytest.approx([0, 0.5, 0, 0])


def test_a_value_of_few_trajectories_is_distrusted() -> None:
    steps = batch(truncated=[False] * 4)
    assert advantages(steps, value_prior=1.0) == pytest.approx([0.225, 0, -0.225, 0])


def test_values_of_histories_are_shrunk_towards_those_of_states() -> None:
    """Both ways lead to the hub; only from the left did it go on to a win."""
    columns: dict[str, Any] = {
        "group": [0] * 8,
        "trajectory": list("aabbccdd"),
        "step": [0, 1] * 4,
        "observation": ["start", "hub"] * 4,
        "next_observation": ["hub", "end"] * 4,
        "action": ["left", "go", "left", "go", "right", "go", "right", "go"],
        "reward": [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
        "success": [False, True, False, True, False, False, False, False],
        "response_log_prob": [-0.7] * 8,
    }
    steps = StepBatch.from_columns(**columns)
    for prior, share in ((0.0, 1.0), (2.0, 0.5), (8.0, 0.2)):
        found = advantages(steps, gamma=0.5, history_length=1, history_prior=prior)
        assert found[::2] == pytest.approx([share / 4] * 2 + [-share / 4] * 2, abs=1e-4)


def test_frequencies_are_corrected_by_probabilities() -> None:
    """`left` was taken three times of four, and has probability one half."""
    columns: dict[str, Any] = {
        "group": [0] * 4,
        "trajectory": list("abcd"),
        "step": [0] * 4,
        "observation": ["start"] * 4,
        "action": ["left", "left", "left", "right"],
        "reward": [1.0, 1.0, 1.0, 0.0],
        "response_log_prob": np.log([0.5] * 4).tolist(),
    }
    steps = StepBatch.from_columns(**columns)
    found = advantages(steps, action_power=1.0)
    # Both actions count one half: V = 1/2, and the three steps share the weight of two.
    assert found == pytest.approx([0.5 * 2 / 3] * 3 + [-0.5 * 2])
    assert advantages(steps) == pytest.approx([0.25] * 3 + [-0.75])


def test_improbable_responses_say_little_of_their_actions() -> None:
    """Free text: the probability of an action is spread over many responses."""
    columns: dict[str, Any] = {
        "group": [0] * 10,
        "trajectory": list(range(10)),
        "step": [0] * 10,
        "observation": ["start"] * 10,
        "action": ["go"] * 9 + ["stop"],
        "reward": [1.0] * 9 + [0.0],
        "response_log_prob": [-50.0] * 10,
    }
    steps = StepBatch.from_columns(**columns)
    assert advantages(steps, action_power=1.0) == pytest.approx([0.1] * 9 + [-0.9])


def test_tasks_do_not_affect_each_other() -> None:
    """However different their rewards are."""

    def columns(group: int, reward: float) -> dict[str, Any]:
        return {
            "group": [group] * 4,
            "trajectory": [(group, name) for name in "aabb"],
            "step": [0, 1, 0, 1],
            "observation": ["hall", "cellar", "hall", "yard"],
            "action": ["down", "take", "out", "in"],
            "reward": [0.0, reward, 0.0, 0.0],
        }

    small, large = columns(0, 1.0), columns(1, 1e6)
    both = StepBatch.from_columns(**{name: small[name] + large[name] for name in small})
    assert advantages(both)[:4] == advantages(StepBatch.from_columns(**small)) == pytest.approx([0.45, 0, -0.45, 0])
    assert advantages(both)[4:] == pytest.approx([0.45e6, 0, -0.45e6, 0])


def test_a_distant_reward_reaches_the_first_step() -> None:
    """Two rollouts of 200 steps that part at once, at the largest discount."""
    length = 200
    columns: dict[str, Any] = {
        "group": [0] * 2 * length,
        "trajectory": [name for name in "ab" for _ in range(length)],
        "step": [*range(length)] * 2,
        "observation": ["start" if not t else (name, t) for name in "ab" for t in range(length)],
        "action": ["go"] * 2 * length,
        "reward": [float(name == "a" and t == length - 1) for name in "ab" for t in range(length)],
    }
    found = advantages(StepBatch.from_columns(**columns), gamma=0.99)
    assert found[0] == pytest.approx(0.99 ** (length - 1) / 2, rel=1e-3)
    with pytest.raises(ValueError, match=r"gamma of at most 0\.99"):
        advantages(StepBatch.from_columns(**columns), gamma=1.0)


def test_penalties_are_compared_inside_the_state_and_reach_no_other() -> None:
    steps = batch(truncated=[False] * 4, penalty=[0.1, 0.0, 0.0, 0.3])
    assert advantages(steps) == pytest.approx([0.45 - 0.05, 0, -0.45 + 0.05, 0])


def test_the_power_keeps_order_and_sign() -> None:
    plain, bent = advantages(batch()), advantages(batch(), difference_power=0.5)
    assert bent == pytest.approx([np.sign(value) * abs(value) ** 0.5 for value in plain])


def test_levels_hold_the_targets() -> None:
    levels = compute_advantages(batch(), "nested_td", 0.9).levels
    assert [level.name for level in levels] == ["same state", "same state and 1 step before"]
    assert levels[0].size.tolist() == [2, 1, 2, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"action_power": 1.5}, "action_power must be at most 1"),
        ({"difference_power": 0.0}, "difference_power must be above 0"),
        ({"value_prior": -1.0}, "value_prior must be finite and at least 0"),
        ({"bootstrap_truncated": 1}, "bootstrap_truncated must be True or False"),
        ({"mode": "mean_norm"}, "mode must be one of none, batch_std"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compute_advantages(batch(), "nested_td", **options)
