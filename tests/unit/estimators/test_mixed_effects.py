"""Mixed effects: the limits in which the answer is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from hgpo.columns import FloatArray
from hgpo.estimators import compute_advantages
from hgpo.steps import StepBatch


def at_s(actions: str, returns: list[float], **options: Any) -> FloatArray:
    """Half of the trajectories reach s by way of x, half by way of y; the return is that of the last step."""
    count = len(returns)
    way = ["x"] * (count // 2) + ["y"] * (count // 2)
    batch = StepBatch.from_columns(
        group=[0] * (2 * count),
        trajectory=[t for t in range(count) for _ in range(2)],
        step=[0, 1] * count,
        observation=[seen for t in range(count) for seen in (way[t], "s")],
        action=[taken for action in actions for taken in ("go", action)],
        reward=[reward for r in returns for reward in (0, r)],
    )
    options = {"history_length": 1, "mode": "mean_norm", **options}
    return compute_advantages(batch, "mixed_effects", 1.0, **options).values[1::2]


def test_a_history_that_moves_only_the_policy_is_not_followed() -> None:
    values = at_s("ttttlllt", [1, 1, 1, 1, 0, 0, 0, 1])
    np.testing.assert_allclose(values, np.array([1, 1, 1, 1, 0, 0, 0, 1]) - 5 / 8)


def test_a_history_that_decides_everything_is_followed() -> None:
    """One action, no noise inside a context: all of the spread is the context's, and nothing is left."""
    values = at_s("tttttttt", [1, 1, 1, 1, 0, 0, 0, 0])
    np.testing.assert_allclose(values, 0, atol=1e-9)


def test_both_effects_are_found() -> None:
    """Returns are 1 for taking plus 2 for coming by x: what is left is the action's, but for a shrinkage of .02.

    x and y themselves are states with an unexplained spread, so the batch's noise is not 0.
    """
    actions = "ttllttll"
    returns = [2.0 * (t < 4) + (action == "t") for t, action in enumerate(actions)]
    values = at_s(actions, returns)
    np.testing.assert_allclose(values, [0.5, 0.5, -0.5, -0.5] * 2, atol=0.02)


def test_actions_that_never_repeat_say_nothing_about_contexts() -> None:
    values = at_s("abcd", [3, 1, -1, -3])
    np.testing.assert_allclose(values, [3, 1, -1, -3])


def test_mean_std_norm_divides_by_the_std_of_level_0() -> None:
    returns = [3.0, 1.0, -1.0, -3.0]
    divided = at_s("abcd", returns, mode="mean_std_norm")
    np.testing.assert_allclose(divided, np.array(returns) / (np.sqrt(5) + 1e-6))
