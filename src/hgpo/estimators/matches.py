"""Comparing a step with the steps of similar contexts: which groups match, and means and stds over matching groups.

    w_k(i, j) = prod_{l = 0..k} kappa(similarity(s_{i-l}, s_{j-l}))     for steps i and j of one task
    mean_k(i) = sum_j w_k(i, j) R_j / sum_j w_k(i, j)

w_k(i, j) is the weight of step j in the mean of step i at level k. kappa is 1 for equal states, 0 for states that do
not match, and positive for similar states (`hgpo.estimators.neighbours`). If only equal states match, mean_k(i) is the
mean of the step's group in `hgpo.grouping`.

The steps of a group have equal contexts, so they have equal weights. The weights are therefore stored once for each
pair of groups, and time and memory grow with the number of matching pairs, not with the square of the number of steps.

Shapes: N steps in group order, G groups of one level, E matching pairs of groups. A *part* is a group, or the steps of
one trajectory in a group; C parts. A *term* is a group that a part is compared with, in full or without one of its
parts; T terms. A *visit* is a trajectory among the steps that a group is compared with; V visits. Source: kernel
regression (Nadaraya 1964, Watson 1964).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from hgpo.columns import FloatArray, IntArray
from hgpo.grouping import (
    RELATIVE_TOLERANCE,
    GroupedValues,
    GroupStatistics,
    Runs,
    StepGroups,
    changes,
    clear_rounding,
    group_statistics,
    ranges,
    visits_of,
)
from hgpo.steps import StepBatch

_AT_ONCE = 1_000_000
"""Number of candidate pairs that are examined together; they need about 50 MB."""


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """The pairs of groups of one level that match, sorted by (source, target). Every group matches itself.

    Attributes:
        source_E: int64[E], a group.
        target_E: int64[E], a group that the steps of the source are compared with.
        similarity_E: float64[E], similarity of the two contexts: that of their least similar pair of states. It is 1
            for a group and itself.
        weight_E: float64[E], weight of a step of the target, the product of kappa. It is 1 for a group and itself.
        count: number of groups G.
        own_trajectory: whether a step is also compared with steps of its own trajectory in other groups.

    Example: two groups that match with similarity 0.9: source_E [0, 0, 1, 1], target_E [0, 1, 0, 1], similarity_E
    [1, 0.9, 0.9, 1].
    """

    source_E: IntArray
    target_E: IntArray
    similarity_E: FloatArray
    weight_E: FloatArray
    count: int
    own_trajectory: bool = True

    @classmethod
    def of_pairs(
        cls, source: IntArray, target: IntArray, similarity: FloatArray, weight: FloatArray, count: int, own: bool
    ) -> Matches:
        """Build matches from unsorted pairs; of equal pairs, one is kept."""
        kept = np.unique(source * count + target, return_index=True)[1]
        return cls(source[kept], target[kept], similarity[kept], weight[kept], count, own)

    def sums(self, value_G: FloatArray) -> FloatArray:
        """For each group, the weighted sum of the values of all groups that it matches, float64[G]."""
        weights = self.weight_E * value_G[self.target_E]
        return np.bincount(self.source_E, weights=weights, minlength=self.count).astype(np.float64, copy=False)

    def statistics(
        self, compared: GroupedValues, groups: Runs, trajectory_N: IntArray, ddof: int
    ) -> tuple[GroupStatistics, IntArray]:
        """Weighted mean and std of the values that each step is compared with.

            n = sum w    mean = sum w R / n    std = sqrt(sum w (R - mean)^2 / (n - ddof sum w^2 / n))

        They are the same for all steps of a part. Parts are groups if `own_trajectory` is true. Otherwise a part is the
        steps of one trajectory in a group, because a step is not compared with its own trajectory in other groups.

        Args:
            compared: the values R.
            groups: the groups of this level.
            trajectory_N: int64[N], the trajectory of each step.
            ddof: 0 for the population std, 1 for the unbiased std (of reliability weights).

        Returns:
            The statistics with one entry for each step, where count_G is n; and the number of steps that each step is
            compared with, int64[N].
        """
        order_N, parts = (
            (np.arange(len(trajectory_N)), groups) if self.own_trajectory else visits_of(groups.run_N, trajectory_N)
        )
        sorted_ = GroupedValues(compared.value_N[order_N], compared.summed_N[order_N])
        whole = group_statistics(compared, groups, ddof=0)
        moments = np.stack([whole.count_G, whole.mean_G, whole.std_G**2])
        if not self.own_trajectory:
            own = group_statistics(sorted_, parts, ddof=0)
            own_moments = np.stack([own.count_G, own.mean_G, own.std_G**2])
            rest = _without_each(own_moments, groups.run_N[order_N[parts.start_G]])
            moments = np.append(moments, rest, axis=1)
        part_T, pair_T, moment_T = self._terms(groups.run_N[order_N], trajectory_N[order_N], parts)
        weight_T, (count_T, mean_T, square_T) = self.weight_E[pair_T], moments.take(moment_T, axis=1)
        total_T = weight_T * count_T

        def added(value_T: FloatArray) -> FloatArray:
            return np.bincount(part_T, weights=value_T, minlength=len(parts.start_G)).astype(np.float64, copy=False)

        first_C, size_C, total_C = sorted_.value_N[parts.start_G], added(count_T), added(total_T)
        mean_C = first_C + added(total_T * (mean_T - first_C[part_T])) / total_C
        square_C = added(total_T * (square_T + (mean_T - mean_C[part_T]) ** 2))
        degrees_C = total_C - ddof * added(weight_T * total_T) / total_C
        degrees_C[degrees_C <= RELATIVE_TOLERANCE * total_C] = np.inf
        deviation_N = sorted_.value_N - mean_C[parts.run_N]
        clear_rounding(deviation_N, sorted_.summed_N, parts, np.empty_like(deviation_N))

        place_N = np.empty_like(order_N)
        place_N[order_N] = np.arange(len(order_N))
        part_N = parts.run_N[place_N]
        std_C = np.sqrt(square_C / degrees_C)
        statistics = GroupStatistics(total_C[part_N], mean_C[part_N], std_C[part_N], deviation_N[place_N])
        return statistics, size_C[part_N].astype(np.int64)

    def _terms(self, group_N: IntArray, trajectory_N: IntArray, parts: Runs) -> tuple[IntArray, IntArray, IntArray]:
        """The groups that each part is compared with.

        Args:
            group_N: int64[N], the group of each step, in the order of the parts.
            trajectory_N: int64[N], its trajectory, in the same order.
            parts: the parts as runs of steps.

        Returns:
            int64[T] each: the part; the index of its group and the other group in `target_E`; and the other group, or
            G + the part of it that has the same trajectory and is left out.
        """
        if self.own_trajectory:  # the parts are the groups, so the terms are the pairs
            return self.source_E, np.arange(len(self.source_E)), self.target_E
        group_C, trajectory_C = group_N[parts.start_G], trajectory_N[parts.start_G]
        first_G1 = np.searchsorted(self.source_E, np.arange(self.count + 1))
        begin_C, end_C = first_G1[group_C], first_G1[group_C + 1]
        pair_T, part_T = ranges(begin_C, end_C), np.repeat(np.arange(len(group_C)), end_C - begin_C)
        width, target_T = int(trajectory_C.max()) + 1, self.target_E[pair_T]
        left_out_T = indices_of(group_C * width + trajectory_C, target_T * width + trajectory_C[part_T])
        whole_T = (left_out_T < 0) | (target_T == self.source_E[pair_T])
        return part_T, pair_T, np.where(whole_T, target_T, self.count + left_out_T)

    def visits(
        self, groups: Runs, trajectory_N: IntArray, value_N: FloatArray
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """The different trajectories among the steps that each group is compared with, sorted by (group, trajectory).

        Here, the group's own trajectories always count, and weights are ignored.

        Returns:
            [V] each: the group, the trajectory, and the mean of the trajectory's values among these steps.
        """
        order_N, parts = visits_of(groups.run_N, trajectory_N)
        first_row = order_N[parts.start_G]
        first_G1 = np.searchsorted(groups.run_N[first_row], np.arange(self.count + 1))
        begin_E, end_E = first_G1[self.target_E], first_G1[self.target_E + 1]
        part = ranges(begin_E, end_E)
        width = int(trajectory_N.max()) + 1
        source = np.repeat(self.source_E, end_E - begin_E)
        key_V, visit = np.unique(source * width + trajectory_N[first_row][part], return_inverse=True)
        sum_C = np.bincount(parts.run_N, weights=value_N[order_N])
        mean_V = np.bincount(visit, weights=sum_C[part]) / np.bincount(visit, weights=parts.size_G[part])
        return key_V // width, key_V % width, mean_V

    def candidates(self, of_G: IntArray) -> int:
        """Number of pairs that `pairs_of` yields."""
        size = np.bincount(of_G, minlength=self.count)
        return int(np.sum(size[self.source_E] * size[self.target_E]))

    def pairs_of(self, of_G: IntArray) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
        """Every pair of finer groups whose coarser groups, `of_G` of this level, match; about `_AT_ONCE` at a time.

        Yields:
            Index of the coarser pair, first finer group, second finer group.
        """
        order = np.argsort(of_G, kind="stable")
        size = np.bincount(of_G, minlength=self.count)
        first = np.cumsum(size) - size
        count_E = size[self.source_E] * size[self.target_E]
        cut = np.flatnonzero(np.diff(np.cumsum(count_E) // _AT_ONCE)) + 1
        for pair in np.split(np.arange(len(count_E)), cut):
            at = np.repeat(pair, count_E[pair])
            rank = ranges(np.zeros_like(pair), count_E[pair])
            source, target = self.source_E[at], self.target_E[at]
            yield at, order[first[source] + rank // size[target]], order[first[target] + rank % size[target]]


def _without_each(moments: FloatArray, group_C: IntArray) -> FloatArray:
    """Count, mean and variance of the other parts of each part's group, float64[3, C]; 0 where there are none.

    Merges pairs of parts, then pairs of pairs, and so on (Chan, Golub & LeVeque 1979). To subtract a part from its
    group would leave the rounding error of its values, which can be much larger than the others.

    Args:
        moments: float64[3, C], count, mean and variance of each part.
        group_C: int64[C], the group of each part, ascending.
    """
    runs = Runs.from_starts(changes(group_C))
    if len(runs.start_G) == len(group_C):
        return np.zeros_like(moments)
    start_C, index_C = runs.start_G[runs.run_N], np.arange(len(group_C))
    sibling_C = start_C + (index_C - start_C ^ 1)
    exists_C = sibling_C < start_C + runs.size_G[runs.run_N]
    sibling = np.where(exists_C, moments.take(np.where(exists_C, sibling_C, index_C), axis=1), 0.0)
    first_C = (index_C - start_C) % 2 == 0
    rest = _without_each(
        _merged(moments.compress(first_C, axis=1), sibling.compress(first_C, axis=1)), group_C[first_C]
    )
    return _merged(rest.take(np.cumsum(first_C) - 1, axis=1), sibling)


def _merged(one: FloatArray, other: FloatArray) -> FloatArray:
    """Count, mean and variance of the union of two samples, float64[3, C] each."""
    count_C, difference_C = one[0] + other[0], other[1] - one[1]
    share_C = other[0] / np.maximum(count_C, 1.0)
    variance_C = (1.0 - share_C) * (one[2] + share_C * difference_C**2) + share_C * other[2]
    return np.stack([count_C, one[1] + share_C * difference_C, variance_C])


def history_matches(
    batch: StepBatch, groups: StepGroups, states: Matches, context: str, early: str
) -> tuple[Matches, ...]:
    """Which groups match at every level. Two groups of level k match if the k + 1 states of their contexts match.

    Args:
        batch: the steps.
        groups: the groups of equal contexts, from `group_steps` with the same `context` and `early`.
        states: which states match: the matches of level 0.
        context: "observation"; with "observation_action", the actions between the states must be equal.
        early: "pad" repeats the first state of an episode; otherwise a missing state matches only a missing state.
    """
    runs = [Runs.from_starts(starts_N) for starts_N in groups.starts]
    place, state = np.empty_like(batch.order), np.empty_like(batch.order)
    place[batch.order], state[groups.row_N] = np.arange(len(batch)), runs[0].run_N
    none, one = np.array([states.count]), np.ones(1)  # one more state, for a missing step; it matches itself
    earlier = replace(
        states,
        source_E=np.append(states.source_E, none),
        target_E=np.append(states.target_E, none),
        similarity_E=np.append(states.similarity_E, one),
        weight_E=np.append(states.weight_E, one),
        count=states.count + 1,
    )
    levels = [states]
    for k, (coarse, fine) in enumerate(pairwise(runs), start=1):
        row_G = groups.row_N[fine.start_G]
        missing_G = batch.step[row_G] < k
        back_G = batch.order[place[row_G] - np.minimum(k, batch.step[row_G])]
        state_G = state[back_G] if early == "pad" else np.where(missing_G, none, state[back_G])
        action_G = np.zeros_like(state_G)
        if context == "observation_action":
            assert batch.action is not None, "`group_steps` raises an error without actions"
            action_G = np.where(missing_G, -1, batch.action[back_G])
        levels.append(_intersection(levels[-1], coarse.run_N[fine.start_G], earlier, state_G, action_G))
    return tuple(levels)


def _intersection(
    parents: Matches, parent_G: IntArray, earlier: Matches, state_G: IntArray, action_G: IntArray
) -> Matches:
    """Matches of the G groups of a level: two match if their parents match, their earlier states match, and their
    actions are equal. The weight is the product of both weights, the similarity the smaller one.

    Tests the pairs that one of the two conditions allows: the one that allows fewer.
    """
    first, first_G, second, second_G = parents, parent_G, earlier, state_G
    if second.candidates(second_G) < first.candidates(first_G):
        first, first_G, second, second_G = second, second_G, first, first_G
    key_E = second.source_E * second.count + second.target_E
    found: list[tuple[IntArray, IntArray, FloatArray, FloatArray]] = []
    for at, source, target in first.pairs_of(first_G):
        other = indices_of(key_E, second_G[source] * second.count + second_G[target])
        kept = (other >= 0) & (action_G[source] == action_G[target])
        at, other = at[kept], other[kept]
        similarity = np.minimum(first.similarity_E[at], second.similarity_E[other])
        found.append((source[kept], target[kept], similarity, first.weight_E[at] * second.weight_E[other]))
    source, target, similarity, weight = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Matches.of_pairs(source, target, similarity, weight, len(first_G), first.own_trajectory)


def other_trajectories(
    group_V: IntArray, trajectory_V: IntArray, compared: tuple[IntArray, IntArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """How many other trajectories each trajectory of a group is compared with, and the mean of their values or 0.

    Args:
        group_V: int64[V], a group.
        trajectory_V: int64[V], a trajectory with steps in it.
        compared: the result of `Matches.visits`.

    Returns:
        float64[V] each.
    """
    group_W, trajectory_W, mean_W = compared
    width = int(trajectory_W.max()) + 1
    own_V = indices_of(group_W * width + trajectory_W, group_V * width + trajectory_V)
    count_V = (np.bincount(group_W)[group_V] - 1).astype(np.float64)
    sum_V: FloatArray = np.bincount(group_W, weights=mean_W)[group_V] - mean_W[own_V]
    return count_V, sum_V / np.maximum(count_V, 1.0)


def indices_of(key_E: IntArray, wanted: IntArray) -> IntArray:
    """Index of each wanted key in `key_E`, which is ascending without duplicates; -1 for a key that it lacks."""
    place = np.minimum(np.searchsorted(key_E, wanted), len(key_E) - 1)
    return np.where(key_E[place] == wanted, place, -1)
