"""G2PO: episode advantage plus two advantages of a step's next node, over the steps of one node and over the task.

Shapes: N steps, V nodes of the transition graph, G tasks. Source: arXiv 2606.22995 and its published code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hgpo.columns import FloatArray
from hgpo.estimators.base import Advantages, Estimator, check_choice, check_number
from hgpo.estimators.levels import MODES, Normalisation, episode_level, step_level
from hgpo.estimators.transition_graph import TransitionGraph, transition_graph
from hgpo.grouping import RELATIVE_TOLERANCE, GroupedValues, Runs, changes, group_statistics, group_steps
from hgpo.returns import discounted_returns, largest_magnitudes, total_rewards
from hgpo.steps import StepBatch


@dataclass(frozen=True, slots=True)
class G2poOptions:
    """Options of G2PO; the defaults are the published ones.

    Attributes:
        mode: "mean_std_norm" divides each term by its unbiased std + 1e-6, "mean_norm" does not.
        step_advantage_w: weight of the two step terms (the paper's omega), at least 0.
    """

    mode: str = "mean_std_norm"
    step_advantage_w: float = 1.0

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)
        check_number("step_advantage_w", self.step_advantage_w)


def g2po(batch: StepBatch, gamma: float, options: G2poOptions) -> Advantages:
    """G2PO advantages: A = A_episode + step_advantage_w * (A_node + A_edge) for each step.

        A_episode: x = sum of the trajectory's rewards - penalty, compared over the steps of the task (`episode_level`)
        A_node:    x = V(next node) - penalty, compared over the steps taken in the same node; 0 for a single step
        A_edge:    x = V(next node) - V(current node), compared over all steps of the task

    Each term is (x - mean) / (std + 1e-6) with unbiased std (ddof 1); with mode="mean_norm" it is x - mean. `penalty`
    is the step's `batch.penalty`, and V(node) the mean discounted total reward of its visits (see `node_values`).
    `levels[0]` is A_node; `levels[1]`, whose groups are the tasks, is A_edge.
    """
    groups = group_steps(batch, history_length=0)
    graph = transition_graph(batch, ends="own")
    value_V = node_values(batch, graph, gamma)
    next_value_N = (value_V[graph.target_N] - batch.penalty)[groups.row_N]
    summed_N = largest_magnitudes(batch)
    gain_N = value_gains(graph, value_V, summed_N)[groups.row_N]

    norm, weight = Normalisation(options.mode), float(options.step_advantage_w)
    next_values = GroupedValues(next_value_N, (summed_N + np.abs(batch.penalty))[groups.row_N])
    episode = episode_level(batch, groups, norm)
    node = step_level(0, groups, next_values, norm)
    tasks = replace(groups, starts=(groups.task_starts_N,), present=(None,))
    gains = GroupedValues(gain_N, summed_N[groups.row_N])
    edge = replace(step_level(0, tasks, gains, norm), k=1)
    return Advantages.of(discounted_returns(batch, gamma), (episode, node.weighted(weight), edge.weighted(weight)))


def node_values(batch: StepBatch, graph: TransitionGraph, gamma: float) -> FloatArray:
    """Value of each node, float64[V], units of the reward.

        V(node) = mean over the visits to the node of gamma^(T - t) * R

    R is the undiscounted sum of the trajectory's rewards, T its number of steps. A step visits its source node at the
    step's time t = 0..T-1. It also visits its target node, at time t + 1, unless the trajectory's next step is taken
    there: an end node is visited at t = T, so its value is R. If gamma^(T - t) * R is the same at all visits,
    V(node) equals it exactly.
    """
    length_M = np.diff(batch.trajectory_start)
    total_N = np.repeat(total_rewards(batch), length_M)
    remaining_N = np.repeat(batch.trajectory_start[1:], length_M) - np.arange(len(batch))
    source_N, target_N = graph.source_N[batch.order], graph.target_N[batch.order]
    arrival_only_N = target_N != np.append(source_N[1:], -1)  # no step is taken in an end node

    visited = np.concatenate([source_N, target_N[arrival_only_N]])
    discounted = np.concatenate(
        [gamma**remaining_N * total_N, gamma ** (remaining_N - 1)[arrival_only_N] * total_N[arrival_only_N]]
    )
    by_node = np.argsort(visited, kind="stable")
    runs = Runs.from_starts(changes(visited[by_node]))
    return group_statistics(GroupedValues(discounted[by_node]), runs, ddof=0).mean_G


def value_gains(graph: TransitionGraph, value_V: FloatArray, summed_N: FloatArray) -> FloatArray:
    """V(next node) - V(current node) of every step, float64[N] in row order; 0 where it is a rounding error.

    Mathematically equal values can be sums of different numbers, so a difference is compared with `summed_N`, the
    magnitude of the sums.
    """
    gain_N = value_V[graph.target_N] - value_V[graph.source_N]
    gain_N[np.abs(gain_N) <= RELATIVE_TOLERANCE * summed_N] = 0.0
    return gain_N


G2PO = Estimator("g2po", g2po, G2poOptions, label="G2PO", levels=lambda options: ("same node", "whole task"))
