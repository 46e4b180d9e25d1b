"""NestedTD: its values, ends and corrections by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hgpo.estimators import compute_advantages
from hgpo.estimators.nested_td import variance_ratio
from hgpo.estimators.pooled import Partition
from hgpo.steps import StepBatch

PLAIN: dict[str, Any] = {
    "history_length": 0,
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


def hubs(wins: list[float]) -> StepBatch:
    """Two trajectories reach the hub from the left and two from the right; `wins` are their rewards there."""
    return StepBatch.from_columns(
        group=[0] * 8,
        trajectory=list("aabbccdd"),
        step=[0, 1] * 4,
        observation=["start", "hub"] * 4,
        next_observation=["hub", "end"] * 4,
        action=["left", "go", "left", "go", "right", "go", "right", "go"],
        reward=[value for win in wins for value in (0.0, win)],
        success=[flag for win in wins for flag in (False, win > 0)],
        response_log_prob=[-0.7] * 8,
    )


def test_histories_that_tell_outcomes_apart_have_values_of_their_own() -> None:
    """All trajectories from the left win, none from the right: the histories keep almost their own values."""
    found = advantages(hubs([1, 1, 0, 0]), gamma=0.5, history_length=1, shrinkage=1.0)
    assert found == pytest.approx([0.25, 0, 0.25, 0, -0.25, 0, -0.25, 0], abs=0.03)
    alone = advantages(hubs([1, 1, 0, 0]), gamma=0.5, history_length=1, shrinkage=0.0)
    assert alone == pytest.approx([0.25, 0, 0.25, 0, -0.25, 0, -0.25, 0], abs=1e-4)


def test_histories_that_say_nothing_are_averaged() -> None:
    """Both ways win once: one value, but for the weight 2 / (2 + 64) of each history's own mean, which is the same."""
    found = advantages(hubs([1, 0, 1, 0]), gamma=0.5, history_length=1, shrinkage=1.0)
    assert found == pytest.approx([0, 0.5, 0, -0.5] * 2, abs=1e-4)


def test_the_ratio_of_variances_by_hand() -> None:
    """Values 3 1 | 0 0 below one parent: sigma^2 = 2 / 2; sum of (m_c - m_p)^2 = 4, tau^2 = (4 - 1) / 2."""
    one, two, four = (Partition.of(np.array(parts)) for parts in ([0] * 4, [0, 0, 1, 1], [0, 1, 2, 3]))

    def ratio(values: list[float], coarse: Partition, fine: Partition) -> float:
        return variance_ratio(coarse.spread(np.array(values)), fine.spread(np.array(values)))

    assert ratio([3.0, 1, 0, 0], one, two) == pytest.approx(1 / 1.5)
    assert ratio([1.0, -1, 1, -1], one, two) == 64
    assert ratio([1.0, 1, 0, 0], one, two) == 0
    assert ratio([3.43, -0.57, 0.57, -3.43], one, two) == 64  # 8 / .09 otherwise
    assert ratio([1.0, 2, 3, 4], one, four) == 64  # no spread inside: nothing to compare with
    assert ratio([1.0, 2, 3, 4], one, one) == 64  # one group below each parent


def test_values_of_histories_are_shrunk_towards_those_of_states() -> None:
    """From the left 3 and 1, from the right 0 and 0; before, all 0.

    sigma^2 = 2 / 5: 3 degrees of freedom at the start and 2 at the hub. tau^2 = (4 - 2 / 5) / 2 = 9 / 5. A history's
    own mean has the weight 2 / (2 + 2 / 9) = .9 beside that of the hub, 1.
    """
    found = advantages(hubs([3, 1, 0, 0]), gamma=0.0, history_length=1, shrinkage=1.0)
    left, right = 0.9 * 2 + 0.1, 0.1
    assert found[1::2] == pytest.approx([3 - left, 1 - left, -right, -right], abs=1e-3)


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


def test_a_response_may_have_no_probability_at_all() -> None:
    """e^-1000 is 0 in floating point; the other action, of probability .6, is corrected as if it were the only one."""
    columns: dict[str, Any] = {
        "group": [0] * 3,
        "trajectory": list("abc"),
        "step": [0] * 3,
        "observation": ["start"] * 3,
        "action": ["go", "go", "stop"],
        "reward": [1.0, 0.0, 0.0],
        "response_log_prob": [np.log(0.6), np.log(0.6), -1000.0],
    }
    found = advantages(StepBatch.from_columns(**columns), action_power=1.0)
    # "stop" is as improbable as it is rare: p / (1 - (1 - p)^n) is 1 / n, "go" has .6 / (1 - .4^3).
    go, stop = 0.6 / (1 - 0.4**3) / 2, 1 / 3
    share = np.array([go, go, stop]) / (2 * go + stop) * 3
    value = share[0] / 3
    assert found == pytest.approx((share * (np.array([1.0, 0, 0]) - value)).tolist(), abs=1e-6)


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


@pytest.mark.parametrize("unit", [1.0, -1.0, 100.0, -100.0])
def test_differences_that_may_be_errors_are_0(unit: float) -> None:
    """Up to 1/10,000 of the state's largest target (x), and up to 1/100,000 of the task's largest reward (y, not z)."""
    columns: dict[str, Any] = {
        "group": [0] * 6,
        "trajectory": list("abcdef"),
        "step": [0] * 6,
        "observation": list("xxyyzz"),
        "action": ["go"] * 6,
        "reward": [unit * reward for reward in (1.0, 0.9999, 0.0, 1.5e-5, 0.0, 3e-5)],
    }
    found = advantages(StepBatch.from_columns(**columns))
    assert found == [0.0] * 4 + [pytest.approx(-1.5e-5 * unit), pytest.approx(1.5e-5 * unit)]


def test_values_of_a_long_loop_are_exact() -> None:
    """99 of 100 steps lead back to the state: V = .01 + .99 * .99 V."""
    columns: dict[str, Any] = {
        "group": [0] * 100,
        "trajectory": [0] * 100,
        "step": range(100),
        "observation": ["x"] * 100,
        "action": ["go"] * 100,
        "reward": [0.0] * 99 + [1.0],
    }
    value = 0.01 / (1 - 0.99**2)
    found = advantages(StepBatch.from_columns(**columns), gamma=0.99)
    assert found == pytest.approx([0.99 * value - value] * 99 + [1 - value], abs=2e-6)


def test_penalties_are_compared_inside_the_state_and_reach_no_other() -> None:
    steps = batch(truncated=[False] * 4, penalty=[0.1, 0.0, 0.0, 0.3])
    assert advantages(steps) == pytest.approx([0.45 - 0.05, 0, -0.45 + 0.05, 0])


def test_the_power_keeps_order_and_sign() -> None:
    plain, bent = advantages(batch()), advantages(batch(), difference_power=0.5)
    assert bent == pytest.approx([np.sign(value) * abs(value) ** 0.5 for value in plain])


def test_levels_compare_the_targets_and_add_nothing_to_the_advantage() -> None:
    levels = compute_advantages(batch(), "nested_td", 0.9).levels
    names = ["same state", "same state and 1 step before", "same state and 2 steps before"]
    assert [level.name for level in levels] == names
    assert levels[0].size.tolist() == [2, 1, 2, 1]
    assert not any(level.weight.any() for level in levels)
    large = compute_advantages(batch(reward=[0.0, 100.0, 0.0, 0.0]), "nested_td", 0.9).levels
    for one, other in zip(levels, large, strict=True):
        assert other.mean == pytest.approx(100 * one.mean)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"action_power": 1.5}, "action_power must be at most 1"),
        ({"difference_power": 0.0}, "difference_power must be above 0"),
        ({"shrinkage": -1.0}, "shrinkage must be finite and at least 0"),
        ({"bootstrap_truncated": 1}, "bootstrap_truncated must be True or False"),
        ({"mode": "mean_norm"}, "mode must be one of none, batch_std"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compute_advantages(batch(), "nested_td", **options)
