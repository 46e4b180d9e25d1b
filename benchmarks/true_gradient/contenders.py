"""The estimators that are compared, and candidates for one of our own.

Shapes: N steps, V nodes of the transition graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from hgpo import compute_advantages
from hgpo.columns import FloatArray, IntArray
from hgpo.estimators.transition_graph import TransitionGraph, transition_graph, won
from hgpo.steps import StepBatch

GAMMA = 0.95
"""Of every estimator, as in the recipes."""
_SWEEPS = 400
Advantage = Callable[[StepBatch], FloatArray]


def shipped(estimator: str, gamma: float = GAMMA, **options: Any) -> Advantage:
    """An estimator of the package with options."""
    return lambda batch: compute_advantages(batch, estimator, gamma=gamma, **options).values


nested = partial(shipped, "nested_td", mode="none")
"""NestedTD with options, in units of the return: a pool's parts are scaled alike."""
_PLAIN = {"mode": "mean_norm"}
PUBLISHED: Mapping[str, Advantage] = {
    "grpo": shipped("grpo"),
    "grpo, no std": shipped("grpo", **_PLAIN),
    "gigpo": shipped("gigpo"),
    "gigpo, no std": shipped("gigpo", **_PLAIN),
    "hgpo paper": shipped("hgpo"),
    "hgpo paper, no std": shipped("hgpo", **_PLAIN),
    "hgpo level 0": shipped("hgpo", history_length=0),
    "hgpo level 0, no std": shipped("hgpo", history_length=0, **_PLAIN),
    "hgpo pooled": shipped("hgpo", weight_type="pooled", **_PLAIN),
    "mixed_effects": shipped("mixed_effects"),
    "atd": shipped("atd:ATD"),
    "gagpo, lambda .5": shipped("atd:ATD", trust=0.0, lambda_min=0.5),
    "g2po": shipped("g2po"),
    "g2po, no std": shipped("g2po", **_PLAIN),
    "graphgpo": shipped("graphgpo"),
    "graphgpo, no std": shipped("graphgpo", **_PLAIN),
}


# Candidates: temporal differences on the graph of all rollouts of a task.


def node_means(graph: TransitionGraph, value_N: FloatArray) -> FloatArray:
    """The mean over the steps taken in each node, float64[V]; 0 where none is."""
    count_V = np.bincount(graph.source_N, minlength=len(graph))
    sum_V: FloatArray = np.bincount(graph.source_N, weights=value_N, minlength=len(graph))
    return sum_V / np.maximum(count_V, 1)


def fixed_point(graph: TransitionGraph, reward_N: FloatArray) -> FloatArray:
    """V(s) = mean over the steps taken in s of r + gamma V(s'), float64[V]; 0 at nodes without steps."""
    value_V = np.zeros(len(graph))
    for _ in range(_SWEEPS):
        new_V = node_means(graph, reward_N + GAMMA * value_V[graph.target_N])
        if np.abs(new_V - value_V).max() < 1e-9 * max(1.0, float(np.abs(new_V).max())):
            break
        value_V = new_V
    return new_V


def trajectories_acting(batch: StepBatch, graph: TransitionGraph) -> FloatArray:
    """How many different trajectories act in each node, float64[V]."""
    pairs = np.unique(graph.source_N * (int(batch.trajectory.max()) + 1) + batch.trajectory)
    counts = np.bincount(pairs // (int(batch.trajectory.max()) + 1), minlength=len(graph))
    return counts.astype(np.float64)


def certainty_equivalent(batch: StepBatch, ends: str = "observed") -> FloatArray:
    """delta = r + gamma V(s') - V(s) with V of `fixed_point`."""
    return errors_on(transition_graph(batch, ends), batch.reward)


def errors_on(graph: TransitionGraph, reward_N: FloatArray) -> FloatArray:
    """r + gamma V(s') - V(s), float64[N]."""
    value_V = fixed_point(graph, reward_N)
    return reward_N + GAMMA * value_V[graph.target_N] - value_V[graph.source_N]


def unit(value_N: FloatArray) -> FloatArray:
    """Divided by their root mean square."""
    return value_N / max(float(np.sqrt(np.mean(value_N**2))), 1e-12)


def shrunk(batch: StepBatch) -> FloatArray:
    """D = delta m / (m + 1) with m the trajectories that act in s'; 1 at a win."""
    graph = transition_graph(batch)
    acting_V = trajectories_acting(batch, graph)
    trust_V = np.where(graph.goal_V, 1.0, acting_V / (acting_V + 1.0))
    return errors_on(graph, batch.reward) * trust_V[graph.target_N]


def proposal_1(batch: StepBatch, weight: float = 1.0, **options: float) -> FloatArray:
    """D/rms(D) + weight G/rms(G) with D of `shrunk` and G GraphGPO's with these options."""
    return unit(shrunk(batch)) + weight * unit(shipped("graphgpo", **options)(batch))


def proposal_2(batch: StepBatch) -> FloatArray:
    """As `proposal_1` with D = delta / sqrt(mean squared delta of s + that of the batch)."""
    graph = transition_graph(batch)
    delta_N = errors_on(graph, batch.reward)
    square_V = node_means(graph, delta_N**2)
    scaled_N = delta_N / np.sqrt(square_V[graph.source_N] + np.mean(delta_N**2))
    return unit(scaled_N) + unit(shipped("graphgpo")(batch))


CANDIDATES: Mapping[str, Advantage] = {
    "nested_td": nested(),
    "nested_td, gamma .9": nested(gamma=0.9),
    "nested_td, no power": nested(difference_power=1.0),
    "nested_td, no frequencies": nested(action_power=0.0),
    "nested_td, no history": nested(history_length=0),
    "nested_td, no shrinkage": nested(shrinkage=0.0),
    "nested_td, cut is lost": nested(bootstrap_truncated=False),
    "certainty-equivalent TD, own ends": partial(certainty_equivalent, ends="own"),
    "certainty-equivalent TD": certainty_equivalent,
    "shrunk TD": shrunk,
    "shrunk TD + episode": partial(proposal_1, step_advantage_w=0.0),
    "proposal 1": proposal_1,
    "proposal 1, half of GraphGPO": partial(proposal_1, weight=0.5),
    "proposal 1, no episode term": partial(proposal_1, episode_advantage_w=0.0),
    "proposal 2": proposal_2,
}
SIMILAR: Mapping[str, Advantage] = {
    **{
        f"{name}, similar {least}": contender(match_threshold=least)
        for name, contender in (
            ("gigpo", partial(shipped, "gigpo")),
            ("hgpo paper", partial(shipped, "hgpo")),
            ("nested_td", nested),
        )
        for least in (0.9, 0.8, 0.6)
    },
    "hgpo paper, similar 0.8, epanechnikov": shipped("hgpo", match_threshold=0.8, match_kernel="epanechnikov"),
    "hgpo paper, similar 0.8, others only": shipped("hgpo", match_threshold=0.8, match_own_trajectory=False),
}
"""Groups of states whose texts are similar."""
CONTENDERS: Mapping[str, Advantage] = {**PUBLISHED, **CANDIDATES, **SIMILAR}


def level_estimates(batch: StepBatch) -> dict[str, tuple[FloatArray, IntArray]]:
    """The advantages of HGPO's levels and of the full history, without division by a std, and of whole estimators.

    Returns:
        {name: (float64[N] advantages, int64[N] numbers of trajectories in the group of each step)}.
    """
    found = {}
    longest = int(batch.step.max())
    for baseline, told in (("mean", ""), ("leave_one_out", ", leave one out")):
        plain = {**_PLAIN, "baseline": baseline}
        levels = compute_advantages(batch, "hgpo", gamma=GAMMA, **plain).levels
        full = compute_advantages(
            batch, "hgpo", gamma=GAMMA, history_length=longest, context="observation_action", **plain
        ).levels[-1]
        for name, level in (*((f"level {level.k}", level) for level in levels), ("full history", full)):
            found[name + told] = level.advantage, level.trajectories
    size_N = levels[0].trajectories
    for name in ("hgpo paper, no std", "gagpo, lambda .5", "certainty-equivalent TD"):
        found[name] = CONTENDERS[name](batch), size_N
    return found


def true_gradient_weights(batch: StepBatch) -> FloatArray:
    """(won - mean won of the group's others) for every step, float64[N]: with them the batch gradient has no bias."""
    won_M = won(batch).astype(np.float64)
    size_G = np.bincount(batch.trajectory_group)
    wins_G = np.bincount(batch.trajectory_group, weights=won_M)
    others_M = (wins_G[batch.trajectory_group] - won_M) / (size_G[batch.trajectory_group] - 1)
    return (won_M - others_M)[batch.trajectory]
