"""Nested step groups (steps with equal current and k previous observations), and the statistics of each group.

    C_k(s_t) = (s_{t-k}, ..., s_t)        G_k(s_t) = all steps of the same group (task) with the same C_k
    G_0 ⊇ G_1 ⊇ ... ⊇ G_K

(arXiv 2602.22817 §3, "context-aware hierarchical grouping".) Because the levels are nested, one sort by (group, s_t,
s_{t-1}, ..., s_{t-K}) puts every group of every level into one run of neighbours; level k's runs start where one of
the first k + 2 sort columns changes. Keys are compared, never hashed, so two different contexts cannot be merged.

Shapes: N steps, G groups of one level. Arrays suffixed _N are in one of three orders, stated at each function: the
batch's rows, time order (`batch.order`), or group order (the sort above).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgpo.columns import BoolArray, FloatArray, IntArray, fail
from hgpo.steps import StepBatch

CONTEXTS = ("observation", "observation_action", "prompt")
EARLY = ("drop", "truncate", "pad")
_KEY_BITS = 62
RELATIVE_TOLERANCE = 1e-12
"""A deviation of at most this times the group's largest magnitude is rounding and counts as exactly 0.

The rounding error of a sum of T float64 rewards is at most T * 1.1e-16 times the sum of their magnitudes. Returns that
are mathematically equal therefore differ by less than 1e-12 times that sum in episodes of several thousand steps. An
advantage is divided by at least 1e-6, so a true difference this small would change it by at most 1e-6 times that sum.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """A partition of N consecutive entries into G runs.

    Attributes:
        start_G: First entry of each run.
        run_N: The run of each entry.

    Example: entries 0-1 and 2-4 are `Runs(start_G=[0, 2], run_N=[0, 0, 1, 1, 1])`, with size_G [2, 3].
    """

    start_G: IntArray
    run_N: IntArray

    @classmethod
    def from_starts(cls, starts_N: BoolArray) -> Runs:
        """Runs that begin at each True entry; entry 0 must be True."""
        run_N = np.cumsum(starts_N, dtype=np.int64)
        run_N -= 1
        return cls(np.flatnonzero(starts_N), run_N)

    @classmethod
    def single(cls, count: int) -> Runs:
        """Each entry as a run of its own."""
        return cls(np.arange(count), np.arange(count))

    @property
    def size_G(self) -> IntArray:
        """Number of entries of each run, int64[G]."""
        size_G = np.empty_like(self.start_G)
        np.subtract(self.start_G[1:], self.start_G[:-1], out=size_G[:-1])
        size_G[-1] = len(self.run_N) - self.start_G[-1]
        return size_G


@dataclass(frozen=True, slots=True, eq=False)
class StepGroups:
    """The hierarchy of step groups of a batch, in group order.

    Attributes:
        row_N: int64[N], the batch row of each entry in group order.
        task_starts_N: bool[N], True where the steps of another task begin.
        starts: Per level, bool[N], True where a group begins; `Runs.from_starts` converts it to runs. (The flags take
            1 byte per step, the runs 8 to 16.)
        present: Per level, bool[N], whether the step has a context of that length (None: every step has one).
        batch_trajectory: int64[N], the batch's trajectory column, in row order.

    Example: three steps of one task with observations x, x, y at steps 0, 1, 2 of one trajectory and history_length 1
    have level-0 groups {x, x}, {y} and level-1 groups {x}, {x}, {y}, because only one x has a predecessor.
    """

    row_N: IntArray
    task_starts_N: BoolArray
    starts: tuple[BoolArray, ...]
    present: tuple[BoolArray | None, ...]
    batch_trajectory: IntArray


def group_steps(
    batch: StepBatch, history_length: int, context: str = "observation", early: str = "truncate"
) -> StepGroups:
    """Partition the steps by their contexts of length 0 to `history_length`.

    Args:
        batch: The steps.
        history_length: K, at least 0.
        context: What the steps of a group have in common.
            "observation": the observations s_{t-k}, ..., s_t (the paper and the published recipe).
            "observation_action": these observations and the actions between them, a_{t-k}, ..., a_{t-1}. The step's own
            action is not included, because the advantage evaluates it.
            "prompt": the step's prompt. It contains the history, so there is only level 0 for any `history_length`.
        early: C_k of a step with fewer than k predecessors (t < k), which the paper does not define.
            "truncate": the available history, (s_0, ..., s_t). It equals only other contexts truncated to the same
            length, so padding with a blank symbol would give the same groups.
            "pad": padded by repeating s_0; it may then equal the full context of a step that observed s_0 repeatedly.
            (With "observation_action", actions are padded with "no action", which no full context contains.)
            "drop": the step has no group at level k (the published recipe).

    Raises:
        ValueError: Unknown `context` or `early`; the column that the context needs is missing; or a prompt is None.
    """
    if context not in CONTEXTS:
        raise ValueError(f"context must be one of {', '.join(CONTEXTS)}; got {context!r}")
    if early not in EARLY:
        raise ValueError(f"early must be one of {', '.join(EARLY)}; got {early!r}")
    if context == "prompt":
        if batch.prompt is None:
            raise ValueError("column 'prompt': context='prompt' needs it and the batch has none")
        _check_no_prompt_is_missing(batch)
        history_length, present_key_N = 0, batch.prompt
    else:
        present_key_N = batch.observation

    group_N = batch.group[batch.order]
    anchor_N = _dense_pairs(group_N, present_key_N[batch.order])
    history = _history_columns(batch, anchor_N, history_length, context, early)
    entry_N = _lexicographic_order([anchor_N, *history])

    starts = [changes(anchor_N[entry_N])]
    for column_N in history:
        starts.append(starts[-1] | changes(column_N[entry_N]))

    row_N = batch.order[entry_N]
    present: list[BoolArray | None] = [None] * len(starts)
    if early == "drop":
        step_N = batch.step[row_N]
        present[1:] = [step_N >= k for k in range(1, len(starts))]
    return StepGroups(row_N, changes(group_N[entry_N]), tuple(starts), tuple(present), batch.trajectory)


def _check_no_prompt_is_missing(batch: StepBatch) -> None:
    """Reject None as a prompt: two steps with unknown prompts do not have the same prompt."""
    labels = batch.labels.get("prompt", ())
    if None in labels:
        row = int(np.argmax(batch.prompt == labels.index(None)))
        fail("prompt", row, "missing value (None): context='prompt' compares prompts; give the prompt of every step")


def _history_columns(
    batch: StepBatch, anchor_N: IntArray, history_length: int, context: str, early: str
) -> list[IntArray]:
    """K sort columns in time order. Column k has the key (above 0) of the k-th step back, or 0 if there is none.

    Keys are numbered within each task, which keeps them small; the first column of the sort distinguishes the tasks.
    """
    if history_length == 0:
        return []
    key_N = anchor_N
    if context == "observation_action":
        if batch.action is None:
            raise ValueError("column 'action': context='observation_action' needs it and the batch has none")
        key_N = _dense_pairs(anchor_N, batch.action[batch.order])
    step_N = batch.step[batch.order]
    index_N = np.arange(len(key_N))
    key_N = _number_within_groups(batch.group[batch.order], key_N)
    if early == "pad" and context == "observation_action":
        # Padding has no action: one key per observation, above all (observation, action) keys.
        first_N = _number_within_groups(batch.group[batch.order], anchor_N) + int(key_N.max())
    else:
        first_N = key_N

    history = []
    for back in range(1, history_length + 1):
        if early == "pad":
            at_N = index_N - np.minimum(back, step_N)
            lagged_N = key_N[at_N] if first_N is key_N else np.where(step_N >= back, key_N[at_N], first_N[at_N])
        else:
            lagged_N = np.zeros_like(key_N)
            lagged_N[back:] = key_N[:-back]
            lagged_N *= step_N >= back
        history.append(lagged_N)
    return history


def _number_within_groups(group_N: IntArray, key_N: IntArray) -> IntArray:
    """Renumber keys, which are ascending from group to group, from 1 within each group."""
    lowest_G = np.full(int(group_N.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(lowest_G, group_N, key_N)
    numbered_N: IntArray = key_N - lowest_G[group_N] + 1
    return numbered_N


def changes(sorted_N: IntArray) -> BoolArray:
    """Whether each value differs from the one before it, bool[N]; True at entry 0."""
    changed_N = np.empty(len(sorted_N), dtype=np.bool_)
    changed_N[0] = True
    np.not_equal(sorted_N[1:], sorted_N[:-1], out=changed_N[1:])
    return changed_N


def ranges(start_F: IntArray, stop_F: IntArray) -> IntArray:
    """The numbers start_F[0], ..., stop_F[0] - 1, start_F[1], ..., one range after the other."""
    length_F = stop_F - start_F
    skipped_F = start_F - np.concatenate([[0], np.cumsum(length_F)[:-1]])
    numbers: IntArray = np.repeat(skipped_F, length_F) + np.arange(int(length_F.sum()))
    return numbers


def _dense_pairs(major_N: IntArray, minor_N: IntArray) -> IntArray:
    """Number the distinct pairs 0, 1, … in sorted order. Both inputs are numbered without gaps, so 64 bits suffice.

    Each major key gets a range as wide as the spread of its minor keys. The texts of a task have adjacent numbers if
    its rows are adjacent, so the ranges are short and the pairs can be numbered without a sort.
    """
    highest_G = np.zeros(int(major_N.max()) + 1, dtype=np.int64)
    lowest_G = np.full_like(highest_G, np.iinfo(np.int64).max)
    np.maximum.at(highest_G, major_N, minor_N)
    np.minimum.at(lowest_G, major_N, minor_N)
    width_G = highest_G - lowest_G + 1
    shift_G = np.cumsum(width_G) - width_G - lowest_G
    return _dense(shift_G[major_N] + minor_N)


def _dense(key_N: IntArray) -> IntArray:
    """Number the distinct keys 0, 1, … in sorted order."""
    if (highest := int(key_N.max())) < 4 * len(key_N):  # a table of the keys that occur is cheaper than a sort
        occurs = np.zeros(highest + 1, dtype=np.bool_)
        occurs[key_N] = True
        rank = np.cumsum(occurs, dtype=np.int64) - 1
        return rank[key_N]
    order_N = np.argsort(key_N, kind="stable")
    dense_N = np.empty(len(key_N), dtype=np.int64)
    dense_N[order_N] = np.cumsum(changes(key_N[order_N]), dtype=np.int64) - 1
    return dense_N


def _lexicographic_order(columns: list[IntArray]) -> IntArray:
    """Return the order that sorts by the first column, then the second, …; each column holds integers from 0.

    Columns are packed into one 64-bit key while their bits fit; a full key is replaced by its rank, which has the same
    order, and packing continues. Nearly every batch needs one sort. A stable sort keeps the members of a group in time
    order and is faster here, because time order is nearly sorted already.
    """
    key_N, key_bits = columns[0], _bits(columns[0])
    for column_N in columns[1:]:
        bits = _bits(column_N)
        if key_bits + bits > _KEY_BITS:
            key_N = _dense(key_N)
            key_bits = _bits(key_N)
        key_N = (key_N << bits) | column_N
        key_bits += bits
    return np.argsort(key_N, kind="stable")


def _bits(column_N: IntArray) -> int:
    return int(column_N.max()).bit_length()


@dataclass(frozen=True, slots=True, eq=False)
class GroupedValues:
    """The values compared inside the groups, in group order.

    Attributes:
        value_N: float64[N], step returns or episode returns.
        magnitude_N: float64[N], sum of the magnitudes of the numbers that were added up to each value; None: the
            magnitude of the value itself. See `RELATIVE_TOLERANCE`.
        share_N: float64[N], weight of each value, with an integer sum per group; None: 1 each. (At the episode level
            the steps of a trajectory can share a weight of 1.)

    Example: a return of 0.1 that was summed from 10.1 and -10 is `GroupedValues(np.array([0.1]), np.array([20.1]))`.
    """

    value_N: FloatArray
    magnitude_N: FloatArray | None = None
    share_N: FloatArray | None = None

    @property
    def summed_N(self) -> FloatArray:
        """The magnitudes that the rounding tolerance refers to, float64[N]."""
        return self.value_N if self.magnitude_N is None else self.magnitude_N


@dataclass(frozen=True, slots=True, eq=False)
class GroupStatistics:
    """Size, mean and spread of each group, and each member's deviation.

    Attributes:
        count_G: float64[G], members of each group; trajectories where the episode level counts trajectories.
        mean_G: float64[G], units of the values.
        std_G: float64[G], units of the values.
        deviation_N: float64[N], value - mean, 0 where the difference is a rounding error.

    Example: values 1, 3 | 5 in two groups, ddof 0: count_G [2, 1], mean_G [2, 5], std_G [1, 0], deviation_N [-1, 1, 0].
    """

    count_G: FloatArray
    mean_G: FloatArray
    std_G: FloatArray
    deviation_N: FloatArray


def group_statistics(compared: GroupedValues, groups: Runs, ddof: int) -> GroupStatistics:
    """Mean, standard deviation and deviations of each group.

        mean = sum share * value / n        std = sqrt(sum share * (value - mean)^2 / (n - ddof)), 0 where n <= ddof

    n is the sum of the group's shares, which is its number of members if `share_N` is None. The group's first value is
    subtracted from all before the mean is computed, so the deviations of equal values are exactly 0.
    """
    value_N, share_N = compared.value_N, compared.share_N
    # Allocating arrays takes longer than the arithmetic here, so arrays are reused.
    if share_N is None:
        count_G = groups.size_G.astype(np.float64)
    else:
        count_G = np.rint(_group_sums(share_N, groups, None))
    mean_G = value_N[groups.start_G]
    scratch_N = mean_G[groups.run_N]
    deviation_N = value_N - scratch_N
    shift_G = _group_sums(deviation_N, groups, share_N)
    shift_G /= count_G
    np.take(shift_G, groups.run_N, out=scratch_N, mode="clip")  # "clip" because "raise" copies; all runs are in range
    deviation_N -= scratch_N
    mean_G += shift_G
    clear_rounding(deviation_N, compared.summed_N, groups, scratch_N)
    std_G = _group_sums(np.multiply(deviation_N, deviation_N, out=scratch_N), groups, share_N)
    degrees_G = np.subtract(count_G, ddof, out=shift_G)
    degrees_G[degrees_G <= 0.0] = np.inf
    std_G /= degrees_G
    return GroupStatistics(count_G, mean_G, np.sqrt(std_G, out=std_G), deviation_N)


def _group_sums(value_N: FloatArray, groups: Runs, share_N: FloatArray | None) -> FloatArray:
    if share_N is not None:
        value_N = value_N * share_N
    return np.bincount(groups.run_N, weights=value_N).astype(np.float64, copy=False)


def clear_rounding(deviation_N: FloatArray, summed_N: FloatArray, groups: Runs, scratch_N: FloatArray) -> None:
    """Set deviations that are rounding errors to 0, in place: see `RELATIVE_TOLERANCE`. `scratch_N` is overwritten."""
    suspect_N = np.abs(deviation_N, out=scratch_N) <= RELATIVE_TOLERANCE * max(summed_N.max(), -summed_N.min())
    if not deviation_N[suspect_N].any():  # almost always: then the largest magnitude of each group is not needed
        return
    tolerance_G = RELATIVE_TOLERANCE * np.maximum.reduceat(np.abs(summed_N), groups.start_G)
    deviation_N[scratch_N <= tolerance_G[groups.run_N]] = 0.0


def visits_of(group_N: IntArray, trajectory_N: IntArray) -> tuple[IntArray, Runs]:
    """Sort steps by (group, trajectory): their order, int64[N], and the steps of each pair as runs in that order."""
    order_N = np.lexsort((trajectory_N, group_N))
    return order_N, Runs.from_starts(changes(group_N[order_N]) | changes(trajectory_N[order_N]))
