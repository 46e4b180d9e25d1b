"""GraphGPO: episode advantage plus an advantage from the distance of a step's next node to a winning end.

Shapes: N steps, V nodes of the transition graph, G tasks. Source: arXiv 2605.26684 and the published recipe
`recipe/GraphGPO` of verl-agent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgpo.columns import LARGEST_REAL, FloatArray
from hgpo.estimators.base import Advantages, Estimator, check_choice, check_number
from hgpo.estimators.levels import MODES, Normalisation, episode_level, step_level
from hgpo.estimators.transition_graph import UNREACHABLE, TransitionGraph, goal_distances, transition_graph
from hgpo.grouping import GroupedValues, group_steps
from hgpo.returns import discounted_returns
from hgpo.steps import StepBatch

UNREACHABLE_RULES = ("farthest", "zero")


@dataclass(frozen=True, slots=True)
class GraphgpoOptions:
    """Options of GraphGPO; the defaults are the published ones.

    Attributes:
        mode: "mean_std_norm" divides both terms by their unbiased std + 1e-6, "mean_norm" neither.
        step_advantage_w: weight of the graph term, at least 0.
        episode_advantage_w: weight of the episode term, at least 0.
        distance_gamma: discount per step of distance, in [0, 1].
        success_reward: the graph return of a winning step, at least 0.
        unreachable: rule for a node without a path to a winning end: "farthest" sets its distance to the largest
            distance in the task + 1, "zero" sets the graph return of steps to it to 0.
        normalize_distance: use d(next node) - d(current node) + 1 as the distance instead of d(next node).
    """

    mode: str = "mean_std_norm"
    step_advantage_w: float = 1.0
    episode_advantage_w: float = 1.0
    distance_gamma: float = 0.1
    success_reward: float = 10.0
    unreachable: str = "farthest"
    normalize_distance: bool = False

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)
        check_number("step_advantage_w", self.step_advantage_w)
        check_number("episode_advantage_w", self.episode_advantage_w)
        if check_number("distance_gamma", self.distance_gamma) > 1.0:
            raise ValueError(f"distance_gamma must be from 0 to 1, got {self.distance_gamma!r}")
        if check_number("success_reward", self.success_reward) > LARGEST_REAL:
            raise ValueError(f"success_reward must be from 0 to {LARGEST_REAL:g}, got {self.success_reward!r}")
        check_choice("unreachable", self.unreachable, UNREACHABLE_RULES)
        if not isinstance(self.normalize_distance, bool):
            raise ValueError(f"normalize_distance must be True or False, got {self.normalize_distance!r}")


def graphgpo(batch: StepBatch, gamma: float, options: GraphgpoOptions) -> Advantages:
    """GraphGPO advantages: A = episode_advantage_w * A_episode + step_advantage_w * A_graph for each step.

        A_episode: x = sum of the trajectory's rewards - penalty, compared over the steps of the task (`episode_level`)
        A_graph:   x = success_reward * distance_gamma ** d(next node) - penalty (`graph_returns`), compared over the
                   steps taken in the same node; 0 for a single step

    Each term is (x - mean) / (unbiased std + 1e-6), or x - mean with mode="mean_norm". gamma affects only `.returns`.
    """
    groups = group_steps(batch, history_length=0)
    gain_N = graph_returns(transition_graph(batch), options)
    compared = GroupedValues((gain_N - batch.penalty)[groups.row_N], (gain_N + np.abs(batch.penalty))[groups.row_N])
    norm = Normalisation(options.mode)
    episode = episode_level(batch, groups, norm).weighted(float(options.episode_advantage_w))
    step = step_level(0, groups, compared, norm).weighted(float(options.step_advantage_w))
    return Advantages.of(discounted_returns(batch, gamma), (episode, step))


def graph_returns(graph: TransitionGraph, options: GraphgpoOptions) -> FloatArray:
    """Graph return of every step, float64[N] in the batch's row order, units of `success_reward`.

        success_reward * distance_gamma ** e,   e = d(next), or d(next) - d(current) + 1 with normalize_distance

    d(node) is the smallest number of steps from a node to a winning end of its task. e is never negative: the step
    itself is an edge, so d(current) <= d(next) + 1.
    """
    distance_V = goal_distances(graph)
    reachable_V = distance_V != UNREACHABLE
    farthest_G = np.zeros(int(graph.task_V.max()) + 1, dtype=np.int64)
    np.maximum.at(farthest_G, graph.task_V, distance_V)  # UNREACHABLE is below 0, so it is never the maximum
    distance_V = np.where(reachable_V, distance_V, farthest_G[graph.task_V] + 1)

    exponent_N = distance_V[graph.target_N]
    if options.normalize_distance:
        exponent_N = exponent_N - distance_V[graph.source_N] + 1
    return_N: FloatArray = float(options.success_reward) * np.power(float(options.distance_gamma), exponent_N)
    if options.unreachable == "zero":
        return_N[~reachable_V[graph.target_N]] = 0.0
    return return_N


GRAPHGPO = Estimator("graphgpo", graphgpo, GraphgpoOptions, label="GraphGPO", levels=lambda options: ("same node",))
