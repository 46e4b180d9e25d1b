"""The graph of a batch's transitions, over all trajectories of each task.

A node is an observation of a task, or the end of one trajectory; every step is an edge from the node it was taken in to
the node it led to. One graph contains all tasks; no edge connects two tasks.

Shapes: N steps, M trajectories, G tasks, V nodes, F nodes of one round of the search. Arrays suffixed _N are in the
batch's row order unless a function specifies time order (`batch.order`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgpo.columns import BoolArray, IntArray
from hgpo.estimators.base import check_choice, to_rows
from hgpo.grouping import RELATIVE_TOLERANCE, ranges
from hgpo.returns import total_magnitudes, total_rewards
from hgpo.steps import StepBatch

ENDS = ("observed", "own")
UNREACHABLE = -1
"""Distance of a node without a path to a goal."""

_NO_OBSERVATION = -1


@dataclass(frozen=True, slots=True, eq=False)
class TransitionGraph:
    """Nodes and edges of all tasks of a batch; edge n is step n.

    Attributes:
        source_N: int64[N], the node each step was taken in.
        target_N: int64[N], the node it led to.
        task_V: int64[V], `batch.group` of each node.
        observation_V: int64[V], the node's number in `batch.labels["observation"]`; -1 for the end of a trajectory.
        goal_V: bool[V], True for the end of a trajectory that won.

    Example: one task, a: hall -> kitchen -> end (won), b: hall -> end (lost). The nodes are 0 hall, 1 kitchen, 2 the
    end of a (a goal) and 3 the end of b; the steps of a are the edges 0 -> 1 and 1 -> 2, the step of b is 0 -> 3.
    """

    source_N: IntArray
    target_N: IntArray
    task_V: IntArray
    observation_V: IntArray
    goal_V: BoolArray

    def __len__(self) -> int:
        """Return the number of nodes V."""
        return len(self.task_V)


def transition_graph(batch: StepBatch, ends: str = "observed") -> TransitionGraph:
    """Build the graph of all tasks.

    A step leads to the node of its `next_observation`; without one (no such column, or None in it), to the node of the
    trajectory's next step. The last step of a trajectory leads to an end node, which only this trajectory has and which
    is a goal if it won. Exception: with ends="observed", the last step of a trajectory that did not win leads to the
    node of its `next_observation`, if it has one, because other trajectories may have continued from there.

    Args:
        batch: the steps.
        ends: "observed" or "own", see above.

    Raises:
        ValueError: an unknown `ends`.
    """
    check_choice("ends", ends, ENDS)
    last_M = batch.trajectory_start[1:] - 1
    won_M = won(batch)
    next_N = _next_observations(batch)
    ended_M = won_M | (next_N[last_M] == _NO_OBSERVATION) if ends == "observed" else np.ones_like(won_M)
    next_N[last_M[ended_M]] = _NO_OBSERVATION

    group_N, here_N = batch.group[batch.order], batch.observation[batch.order]
    leads_N = next_N != _NO_OBSERVATION
    width = max(int(here_N.max()), int(next_N.max())) + 1
    seen = np.concatenate([group_N * width + here_N, group_N[leads_N] * width + next_N[leads_N]])
    distinct, node = np.unique(seen, return_inverse=True)
    target_N = np.empty_like(here_N)
    target_N[leads_N] = node[len(here_N) :]
    ended = np.flatnonzero(ended_M)
    target_N[~leads_N] = len(distinct) + np.arange(len(ended))  # time order lists the trajectories by number
    return TransitionGraph(
        source_N=to_rows(node[: len(here_N)], batch.order),
        target_N=to_rows(target_N, batch.order),
        task_V=np.concatenate([distinct // width, batch.trajectory_group[ended]]),
        observation_V=np.concatenate([distinct % width, np.full_like(ended, _NO_OBSERVATION)]),
        goal_V=np.concatenate([np.zeros(len(distinct), dtype=np.bool_), won_M[ended]]),
    )


def _next_observations(batch: StepBatch) -> IntArray:
    """Number of the observation after each step, in time order; -1 for a last step without `next_observation`."""
    observation_N = batch.observation[batch.order]
    following_N = np.append(observation_N[1:], _NO_OBSERVATION)
    following_N[batch.trajectory_start[1:] - 1] = _NO_OBSERVATION
    if batch.next_observation is None:
        return following_N
    labels = batch.labels.get("observation", ())
    none = next((number for number, label in enumerate(labels) if label is None), _NO_OBSERVATION)
    given_N = batch.next_observation[batch.order]
    return np.where(given_N == none, following_N, given_N)


def won(batch: StepBatch) -> BoolArray:
    """Whether each trajectory won, bool[M]: `success` in any row; without that column, its rewards sum to > 0."""
    if batch.success is None:
        return total_rewards(batch) > RELATIVE_TOLERANCE * total_magnitudes(batch)
    return np.logical_or.reduceat(batch.success[batch.order], batch.trajectory_start[:-1])


def goal_distances(graph: TransitionGraph) -> IntArray:
    """Fewest steps from each node to a goal of its task, int64[V]: 0 at a goal, `UNREACHABLE` where there is no path.

    A breadth-first search against the direction of the edges, from all goals of all tasks at the same time. Every edge
    is visited once, so sorting the edges dominates the cost; the Python loop is over distances, not over nodes.
    """
    entering = np.argsort(graph.target_N, kind="stable")
    source_N = graph.source_N[entering]
    start_V1 = np.concatenate([[0], np.cumsum(np.bincount(graph.target_N, minlength=len(graph)))])
    distance_V = np.full(len(graph), UNREACHABLE)
    frontier_F, distance = np.flatnonzero(graph.goal_V), 0
    while len(frontier_F):
        distance_V[frontier_F] = distance
        before = source_N[ranges(start_V1[frontier_F], start_V1[frontier_F + 1])]
        frontier_F, distance = np.unique(before[distance_V[before] == UNREACHABLE]), distance + 1
    return distance_V
