"""How good advantages are: against the oracle, and as a policy gradient.

Shapes: B batches, M tasks, N trajectories, 4 contexts (one policy logit each), 2 actions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from chain import CONTEXT_SHARE, Floats, Outcomes, Problem


@dataclass(frozen=True, slots=True)
class Measures:
    """What one estimator achieves on one problem.

    Attributes:
        cosine: mean over batches of the cosine between the batch's gradient and the true one (0 for no gradient).
        cosine_error: its standard error; 0 when enumerated.
        direction_bias: angle between the mean gradient and the true one, radians.
        direction_error: the angle that sampling alone would give (root mean square); 0 when enumerated.
        relative_variance: E|g - E g|^2 / |E g|^2.
        advantage_bias: root mean square over contexts and actions of E[A | c, a] - oracle.
        advantage_variance: mean over contexts and actions of Var[A | c, a].
        advantage_error: mean squared error = advantage_bias^2 + advantage_variance.

    Example: `measure(problem, outcomes, outcomes.reward - 0.5)` is what a constant baseline achieves.
    """

    cosine: float
    cosine_error: float
    direction_bias: float
    direction_error: float
    relative_variance: float
    advantage_bias: float
    advantage_variance: float
    advantage_error: float


def measure(problem: Problem, outcomes: Outcomes, advantage: Floats, sampled: bool = True) -> Measures:
    """Measure advantages float64[B, M, N] of the steps at s.

    The gradient of a batch is the mean over its steps of A * d log pi(a | c), by the logit of each context.
    """
    true = problem.gradient
    score = advantage * (outcomes.action - np.array(problem.policy)[outcomes.context])
    gradient = np.stack([np.where(outcomes.context == c, score, 0.0).mean(axis=(1, 2)) for c in range(4)], axis=1)
    weight = outcomes.weight[:, None]
    count = len(outcomes) if sampled else np.inf

    length = np.linalg.norm(gradient, axis=1)
    some = length > 1e-12
    cosine = np.where(some, gradient @ true / np.where(some, length, 1.0), 0.0) / np.linalg.norm(true)
    mean_cosine = float((outcomes.weight * cosine).sum())
    cosine_variance = float((outcomes.weight * (cosine - mean_cosine) ** 2).sum())

    mean = (weight * gradient).sum(axis=0)
    deviation = gradient - mean
    along = mean / np.linalg.norm(mean)
    across = (weight * (deviation**2)).sum() - (outcomes.weight * (deviation @ along) ** 2).sum()
    angle = np.arctan2(np.linalg.norm(mean - (mean @ true) * true / (true @ true)), mean @ true / np.linalg.norm(true))
    bias, variance = _advantage_moments(problem, outcomes, advantage)
    return Measures(
        cosine=mean_cosine,
        cosine_error=float(np.sqrt(cosine_variance / count)),
        direction_bias=float(angle),
        direction_error=float(np.sqrt(max(across, 0.0) / count) / np.linalg.norm(mean)),
        relative_variance=float((weight * deviation**2).sum() / (mean @ mean)),
        advantage_bias=float(np.sqrt(bias)),
        advantage_variance=float(variance),
        advantage_error=float(bias + variance),
    )


def _advantage_moments(problem: Problem, outcomes: Outcomes, advantage: Floats) -> tuple[float, float]:
    """Mean over contexts and actions of the squared bias and of the variance."""
    cell = (2 * outcomes.context + outcomes.action).reshape(-1)
    weight = np.broadcast_to(outcomes.weight[:, None, None], advantage.shape).reshape(-1)
    total = np.maximum(np.bincount(cell, weight, minlength=8), 1e-300)
    mean = np.bincount(cell, weight * advantage.reshape(-1), minlength=8) / total
    square = np.bincount(cell, weight * advantage.reshape(-1) ** 2, minlength=8) / total
    share = (CONTEXT_SHARE[:, None] * problem.action_share).reshape(-1)
    bias = mean - problem.advantage.reshape(-1)
    return float((share * bias**2).sum()), float((share * (square - mean**2)).sum())
