"""Soft groups: which groups of equal contexts are compared with which, and the statistics of what is compared.

    w_k(i, j) = prod_{l = 0..k} kappa(similarity(s_{i-l}, s_{j-l}))     for steps i and j of one task
    mean_k(i) = sum_j w_k(i, j) R_j / sum_j w_k(i, j)

kappa is 1 for equal states and 0 for states that do not match (`hgpo.estimators.neighbours`). Where only equal states
match, these are the groups of `hgpo.grouping`. Steps with equal contexts have equal weights, so what is stored are
pairs of groups, and the cost grows with the number of pairs, not with the square of the number of steps.

Shapes: N steps in group order, G groups of one level, E matching pairs of groups, C parts of groups (see
`Matches.statistics`), P pairs of a part and a group, V visits. Source: kernel regression (Nadaraya 1964, Watson 1964).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from hgpo.columns import FloatArray, IntArray
from hgpo.grouping import (
    GroupedValues,
    GroupStatistics,
    Runs,
    StepGroups,
    changes,
    clear_rounding,
    group_statistics,
    ranges,
)
from hgpo.steps import StepBatch

_AT_ONCE = 1_000_000
"""Candidate pairs that are examined together, about 50 MB."""


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Pairs of groups of one level whose steps are compared, sorted by (source, target); each group matches itself.

    Attributes:
        source_E: int64[E], a group.
        target_E: int64[E], a group that its steps are compared with.
        similarity_E: float64[E], the least similarity of the states of the two contexts; 1 of a group with itself.
        weight_E: float64[E], how much a step of the target counts; 1 of a group with itself.
        count: G.
        own_trajectory: whether a step is compared with steps of its own trajectory in other groups.

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
        """Sort pairs, and keep each once."""
        kept = np.unique(source * count + target, return_index=True)[1]
        return cls(source[kept], target[kept], similarity[kept], weight[kept], count, own)

    def sums(self, value_G: FloatArray) -> FloatArray:
        """Weighted sum of the values of the groups that each group matches, float64[G]."""
        weights = self.weight_E * value_G[self.target_E]
        return np.bincount(self.source_E, weights=weights, minlength=self.count).astype(np.float64, copy=False)

    def statistics(
        self, compared: GroupedValues, groups: Runs, trajectory_N: IntArray, ddof: int
    ) -> tuple[GroupStatistics, IntArray]:
        """Weighted mean and std of what each step is compared with.

            n = sum w    mean = sum w R / n    std = sqrt(sum w (R - mean)^2 / (n - ddof sum w^2 / n))

        They are computed for parts of groups: whole groups, or with own_trajectory=False the steps of one trajectory in
        a group, which are compared with the same others.

        Args:
            compared: R.
            groups: of this level.
            trajectory_N: int64[N], in group order.
            ddof: 0 population, 1 unbiased (reliability weights).

        Returns:
            Statistics with one entry per step in group order, count_G = n; and int64[N], the number of steps compared.
        """
        order_N, parts = (None, groups) if self.own_trajectory else _parts(groups, trajectory_N)
        sorted_ = compared if order_N is None else GroupedValues(compared.value_N[order_N], compared.summed_N[order_N])
        whole, own = group_statistics(compared, groups, ddof=0), group_statistics(sorted_, parts, ddof=0)
        part_P, pair_P, own_P = self._pairs(groups, order_N, parts, trajectory_N)
        left_out = np.flatnonzero(own_P >= 0)  # these pairs occur again with a negative weight
        target_P, own_P, sign_P = self.target_E[pair_P], own_P[left_out], np.ones(len(pair_P))
        part_P = np.append(part_P, part_P[left_out])
        sign_P = np.append(sign_P, -sign_P[left_out])
        weight_P = self.weight_E[np.append(pair_P, pair_P[left_out])]
        count_P = np.append(whole.count_G[target_P], own.count_G[own_P]) * sign_P
        mean_P = np.append(whole.mean_G[target_P], own.mean_G[own_P])
        std_P = np.append(whole.std_G[target_P], own.std_G[own_P])

        def added(value_P: FloatArray) -> FloatArray:
            return np.bincount(part_P, weights=value_P, minlength=len(parts.start_G)).astype(np.float64, copy=False)

        first_C, size_C = sorted_.value_N[parts.start_G], added(count_P)
        total_C = np.where(size_C > 1.0, added(weight_P * count_P), 1.0)
        mean_C = first_C + added(weight_P * count_P * (mean_P - first_C[part_P])) / total_C
        square_C = np.maximum(added(weight_P * count_P * (std_P**2 + (mean_P - mean_C[part_P]) ** 2)), 0.0)
        degrees_C = total_C - ddof * added(weight_P**2 * count_P) / total_C
        degrees_C[degrees_C <= 0.0] = np.inf
        deviation_N = sorted_.value_N - mean_C[parts.run_N]
        clear_rounding(deviation_N, sorted_.summed_N, parts, np.empty_like(deviation_N))
        of_parts = (total_C, mean_C, np.sqrt(square_C / degrees_C), size_C)
        total_N, mean_N, std_N, size_N = (column_C[parts.run_N] for column_C in of_parts)
        found = [total_N, mean_N, std_N, deviation_N, size_N]
        if order_N is not None:
            place_N = np.argsort(order_N)
            found = [column_N[place_N] for column_N in found]
        return GroupStatistics(*found[:4]), found[4].astype(np.int64)

    def _pairs(
        self, groups: Runs, order_N: IntArray | None, parts: Runs, trajectory_N: IntArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Pairs of a part and a group that it is compared with: the part, the number of the pair of groups, and which
        part of that group is left out because it has the same trajectory, or -1; int64[P] each."""
        if order_N is None:
            return self.source_E, np.arange(len(self.source_E)), np.full_like(self.source_E, -1)
        first_row = order_N[parts.start_G]
        group_C, trajectory_C = groups.run_N[first_row], trajectory_N[first_row]
        first_G1 = np.searchsorted(self.source_E, np.arange(self.count + 1))
        begin_C, end_C = first_G1[group_C], first_G1[group_C + 1]
        pair_P, part_P = ranges(begin_C, end_C), np.repeat(np.arange(len(group_C)), end_C - begin_C)
        width = int(trajectory_C.max()) + 1
        own_P = places(group_C * width + trajectory_C, self.target_E[pair_P] * width + trajectory_C[part_P])
        own_P[self.target_E[pair_P] == self.source_E[pair_P]] = -1
        return part_P, pair_P, own_P

    def visits(
        self, groups: Runs, trajectory_N: IntArray, value_N: FloatArray
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """The different trajectories in what each group is compared with: group, trajectory and mean value, [V] each.

        Sorted by (group, trajectory); the own trajectory is never left out here, and weights do not count.
        """
        order_N, parts = _parts(groups, trajectory_N)
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
        """Number of pairs of finer groups whose `of_G`, groups of this level, match."""
        size = np.bincount(of_G, minlength=self.count)
        return int(np.sum(size[self.source_E] * size[self.target_E]))

    def pairs_of(self, of_G: IntArray) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
        """Those pairs, as (pair of this level, first, second finer group), some at a time."""
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


def joined(first: Matches, first_G: IntArray, second: Matches, second_G: IntArray, equal_G: IntArray) -> Matches:
    """Matches of G groups: `first_G` match in `first`, `second_G` in `second`, and `equal_G` are equal.

    Weights are multiplied, and the lesser similarity counts. The pairs of the relation with fewer candidates are
    tried.
    """
    if second.candidates(second_G) < first.candidates(first_G):
        first, first_G, second, second_G = second, second_G, first, first_G
    key_E = second.source_E * second.count + second.target_E
    found: list[tuple[IntArray, IntArray, FloatArray, FloatArray]] = []
    for at, source, target in first.pairs_of(first_G):
        other = places(key_E, second_G[source] * second.count + second_G[target])
        kept = (other >= 0) & (equal_G[source] == equal_G[target])
        at, other = at[kept], other[kept]
        similarity = np.minimum(first.similarity_E[at], second.similarity_E[other])
        found.append((source[kept], target[kept], similarity, first.weight_E[at] * second.weight_E[other]))
    source, target, similarity, weight = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Matches.of_pairs(source, target, similarity, weight, len(first_G), first.own_trajectory)


def history_matches(
    batch: StepBatch, groups: StepGroups, states: Matches, context: str, early: str
) -> tuple[Matches, ...]:
    """Matches of all levels: groups of level k match where the states of the step and of the k before it do.

    Args:
        batch: the steps.
        groups: their hierarchy by equality, see `group_steps` for `context` and `early`.
        states: matches of level 0.
        context: "observation", or "observation_action": the actions between the states must be equal, too.
        early: "pad" with the first state, else a missing step matches only a missing step.
    """
    runs = [Runs.from_starts(starts_N) for starts_N in groups.starts]
    place, state = np.empty_like(batch.order), np.empty_like(batch.order)
    place[batch.order], state[groups.row_N] = np.arange(len(batch)), runs[0].run_N
    none, one = np.array([states.count]), np.ones(1)  # one more state, which matches itself: there was no step
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
            assert batch.action is not None, "group_steps has asked for it"
            action_G = np.where(missing_G, -1, batch.action[back_G])
        levels.append(joined(levels[-1], coarse.run_N[fine.start_G], earlier, state_G, action_G))
    return tuple(levels)


def other_trajectories(
    group_V: IntArray, trajectory_V: IntArray, compared: tuple[IntArray, IntArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Of the other trajectories that each visit is compared with: number, and mean of their values or 0."""
    group_W, trajectory_W, mean_W = compared
    width = int(trajectory_W.max()) + 1
    own_V = places(group_W * width + trajectory_W, group_V * width + trajectory_V)
    count_V = (np.bincount(group_W)[group_V] - 1).astype(np.float64)
    sum_V: FloatArray = np.bincount(group_W, weights=mean_W)[group_V] - mean_W[own_V]
    sum_V[count_V == 0.0] = 0.0
    return count_V, sum_V / np.maximum(count_V, 1.0)


def _parts(groups: Runs, trajectory_N: IntArray) -> tuple[IntArray, Runs]:
    """The steps of each trajectory in each group: an order in which they are neighbours, and the runs in it."""
    order_N = np.lexsort((trajectory_N, groups.run_N))
    return order_N, Runs.from_starts(changes(groups.run_N[order_N]) | changes(trajectory_N[order_N]))


def places(key_E: IntArray, wanted: IntArray) -> IntArray:
    """Where each wanted key is among ascending different keys; -1: nowhere."""
    place = np.minimum(np.searchsorted(key_E, wanted), len(key_E) - 1)
    return np.where(key_E[place] == wanted, place, -1)
