"""`StepBatch`, the input of every estimator: steps of many trajectories, one row per step, one array per column.

Shapes: N steps (rows), M trajectories, D dimensions.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgpo import columns
from hgpo.columns import BoolArray, FloatArray, IntArray
from hgpo.utils.text import counted

_LOG_PROB_ROUNDING = 1e-3
_FLOATS = ("reward", "penalty", "value", "bootstrap", "response_log_prob")
_BOOLS = ("success", "truncated")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StepBatch:
    """Steps of many trajectories as read-only columns; build it with `from_columns`.

    A *step* is one turn of an agent: observation, response, action, reward. A *trajectory* is the record of one
    episode; a *group* contains the trajectories that started from the same initial state (one task of the update).

    `from_columns` describes the columns. Keys are interned: equal values have equal integers, numbered from 0 by first
    appearance, and `labels[column][integer]` is the value itself. `observation` and `next_observation` share one
    numbering, stored in `labels["observation"]`.

    Attributes:
        group, trajectory, observation: int64[N].
        step: int64[N], time index of the step in its trajectory, 0 to T-1.
        reward: float64[N].
        penalty: float64[N], zeros unless given.
        value: float64[N] or None.
        bootstrap: float64[N], zeros unless given.
        action, prompt, next_observation: int64[N] or None.
        success: bool[N] or None.
        response_log_prob: float64[N] or None.
        truncated: bool[N] or None.
        embedding: float[N, D] or None.
        order: int64[N], rows sorted by (trajectory, step): `column[order]` lists whole trajectories in time order.
        trajectory_start: int64[M+1], trajectory m is `order[trajectory_start[m]:trajectory_start[m + 1]]`.
        trajectory_group: int64[M], the group of each trajectory.
        labels: The distinct values of each interned column.

    Example: two trajectories of one task, rows in any order.

    >>> batch = StepBatch.from_columns(
    ...     group=["task 7"] * 3, trajectory=["a", "b", "a"], step=[1, 0, 0],
    ...     observation=["kitchen", "hall", "hall"], reward=[1.0, 0.0, 0.0])
    >>> batch
    StepBatch(3 steps, 2 trajectories, 1 group)
    >>> batch.observation, batch.order, batch.trajectory_start
    (array([0, 1, 1]), array([2, 0, 1]), array([0, 2, 3]))
    >>> batch.labels["observation"]
    ('kitchen', 'hall')
    """

    group: IntArray
    trajectory: IntArray
    step: IntArray
    observation: IntArray
    reward: FloatArray
    penalty: FloatArray
    bootstrap: FloatArray
    order: IntArray
    trajectory_start: IntArray
    trajectory_group: IntArray
    action: IntArray | None = None
    prompt: IntArray | None = None
    value: FloatArray | None = None
    next_observation: IntArray | None = None
    success: BoolArray | None = None
    response_log_prob: FloatArray | None = None
    truncated: BoolArray | None = None
    embedding: NDArray[np.floating[Any]] | None = None
    labels: Mapping[str, tuple[Hashable, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def __len__(self) -> int:
        """Return the number of steps N."""
        return len(self.step)

    def __repr__(self) -> str:
        """The sizes, since the columns would fill pages."""
        trajectories = counted(len(self.trajectory_group), "trajectory", "trajectories")
        groups = counted(len(np.unique(self.trajectory_group)), "group")
        return f"StepBatch({counted(len(self), 'step')}, {trajectories}, {groups})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by fields (a mapping proxy does not pickle by itself)."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return _restore, (values | {"labels": dict(self.labels)},)

    @classmethod
    def from_columns(
        cls,
        *,
        group: Any,
        trajectory: Any,
        step: Any,
        observation: Any,
        reward: Any,
        action: Any = None,
        prompt: Any = None,
        penalty: Any = None,
        value: Any = None,
        bootstrap: Any = None,
        next_observation: Any = None,
        success: Any = None,
        response_log_prob: Any = None,
        truncated: Any = None,
        embedding: Any = None,
    ) -> StepBatch:
        """Check the columns, intern the keys and order the steps by time. Rows may come in any order.

        Args:
            group: The task within which trajectories are compared, any hashable.
            trajectory: Any hashable, unique in the batch: an id that occurs in two groups is an error, because two
                trajectories would become one.
            step: Time index; a trajectory's steps must be exactly 0 to T-1, because a step's history, on which every
                level above 0 depends, begins at the start of the trajectory.
            observation: The environment's observation (no memory, no template), any hashable.
            reward: The environment's reward of this step, units of the task.
            action: Any hashable, None for a step without an action (equal to another None); needed by
                context="observation_action".
            prompt: Any hashable; needed by context="prompt", which rejects None.
            penalty: At least 0; subtracted from this step's return after discounting and from its episode return (the
                recipe subtracts 0.1 for an invalid action). It does not affect earlier steps.
            value: A critic's estimate for this step; needed by estimators with a critic.
            bootstrap: The critic's estimate for the state after the step, on the last step of a trajectory that a time
                limit cut; 0 on all other steps. It is read by estimators with a critic.
            next_observation: The observation after this step, None after the last.
            success: True or False per row.
            response_log_prob: Log of the probability with which the policy chose the step's response, at most 0.
            truncated: True on the last step of a trajectory that a time limit cut, False elsewhere.
            embedding: A vector for the step's observation, N rows of D finite numbers: hidden states of a model, or a
                numeric observation. The similarity of two is 1 minus half their squared distance, so scale hidden
                states to length 1 (docs/algorithms/similar_states.md). Files have no such column.

        Raises:
            ValueError: The batch is empty, columns have unequal lengths, a value does not meet its description or is
                masked or not finite, or a key is unhashable or contains NaN. The message names the column and the row.
        """
        given = {
            "group": group, "trajectory": trajectory, "step": step, "observation": observation, "reward": reward,
            "action": action, "prompt": prompt, "penalty": penalty, "value": value,
            "bootstrap": bootstrap, "next_observation": next_observation, "success": success,
            "response_log_prob": response_log_prob, "truncated": truncated,
        }  # fmt: skip
        required = ("group", "trajectory", "step", "observation", "reward")
        raw = {
            name: columns.read(name, column) for name, column in given.items() if column is not None or name in required
        }
        vector_ND = None if embedding is None else columns.vectors("embedding", embedding)
        lengths = {name: len(column) for name, column in raw.items()}
        count = _common_length(lengths if vector_ND is None else lengths | {"embedding": len(vector_ND)})

        interned, labels = _interned(raw)
        step_N = columns.whole_numbers("step", raw["step"])
        trajectory_group_M = _trajectory_groups(interned["group"], interned["trajectory"], labels)
        order_N, start_M1 = _time_order(interned["trajectory"], step_N, labels["trajectory"])
        floats = {name: columns.as_floats(name, raw[name]) for name in _FLOATS if name in raw}
        bools = {name: columns.as_bools(name, raw[name]) for name in _BOOLS if name in raw}
        numbers: dict[str, Any] = {"penalty": np.zeros(count), "bootstrap": np.zeros(count), **floats, **bools}
        _check_numbers(numbers, last_M=order_N[start_M1[1:] - 1])
        return _read_only(
            cls(
                **interned,
                **numbers,
                step=step_N,
                order=order_N,
                trajectory_start=start_M1,
                trajectory_group=trajectory_group_M,
                embedding=vector_ND,
                labels=MappingProxyType(labels),
            )
        )


def _check_numbers(numbers: dict[str, Any], last_M: IntArray) -> None:
    """Check the ranges of numbers, and that `bootstrap` and `truncated` are 0 on all rows but `last_M`.

    A `response_log_prob` of up to 0.001 becomes 0, as sums of float32 logarithms are rounded.
    """
    penalty_N = numbers["penalty"]
    columns.fail_where("penalty", penalty_N < 0, "is subtracted, so it must be at least 0", penalty_N)
    if (log_prob_N := numbers.get("response_log_prob")) is not None:
        problem = "is the log of a probability, so it must be at most 0"
        columns.fail_where("response_log_prob", log_prob_N > _LOG_PROB_ROUNDING, problem, log_prob_N)
        np.minimum(log_prob_N, 0.0, out=log_prob_N)
    for name, none in (("bootstrap", 0), ("truncated", False)):
        if (column_N := numbers.get(name)) is not None:
            inner_N = column_N != 0
            inner_N[last_M] = False
            columns.fail_where(name, inner_N, f"must be {none} before the last step of a trajectory", column_N)


def _restore(values: dict[str, Any]) -> StepBatch:
    return _read_only(StepBatch(**(values | {"labels": MappingProxyType(values["labels"])})))


def _read_only(batch: StepBatch) -> StepBatch:
    for name in batch.__slots__:
        array = getattr(batch, name)
        if isinstance(array, np.ndarray):
            array.flags.writeable = False
    return batch


def _common_length(lengths: Mapping[str, int]) -> int:
    count = lengths["group"]
    for name, length in lengths.items():
        if length != count:
            row = min(length, count)
            columns.fail(name, row, f"the column has {counted(length, 'row')}, but 'group' has {count}")
    if count == 0:
        raise ValueError("column 'group': the batch is empty (no row 0)")
    return count


def _interned(raw: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[Hashable, ...]]]:
    """The key columns, int64[N] each, and their labels; both columns of observations have one numbering."""
    interned: dict[str, IntArray] = {}
    labels: dict[str, tuple[Hashable, ...]] = {}
    for name in ("group", "trajectory", "action", "prompt", "observation"):
        if name in raw:
            allow_none = name in ("action", "prompt")
            interned[name], labels[name] = columns.intern(name, raw[name], allow_none)
    if "next_observation" in raw:
        next_N, next_labels = columns.intern("next_observation", raw["next_observation"], allow_none=True)
        number = {label: i for i, label in enumerate(labels["observation"])}
        shared_U = np.array([number.setdefault(label, len(number)) for label in next_labels], dtype=np.int64)
        interned["next_observation"], labels["observation"] = shared_U[next_N], tuple(number)
    return interned, labels


def _trajectory_groups(group_N: IntArray, trajectory_N: IntArray, labels: Mapping[str, Any]) -> IntArray:
    """Return the group of each trajectory, int64[M]; a trajectory in two groups is an error."""
    group_M = np.empty(len(labels["trajectory"]), dtype=np.int64)
    group_M[trajectory_N[::-1]] = group_N[::-1]  # reversed, so that the first row of a trajectory decides
    other_N = group_M[trajectory_N] != group_N
    if other_N.any():
        row = int(np.argmax(other_N))
        name, first, second = (
            labels["trajectory"][trajectory_N[row]],
            labels["group"][group_M[trajectory_N[row]]],
            labels["group"][group_N[row]],
        )
        problem = f"trajectory {name!r} is in group {first!r} and in group {second!r}"
        columns.fail("trajectory", row, f"{problem}; use ids that are unique in the batch, such as (group, trajectory)")
    return group_M


def _time_order(trajectory_N: IntArray, step_N: IntArray, names: tuple[Hashable, ...]) -> tuple[IntArray, IntArray]:
    """Return rows sorted by (trajectory, step) and the start of each trajectory among them.

    Steps are 0 to T-1, so a row's position is the start of its trajectory plus its step; no sort is needed.
    """
    length_M = np.bincount(trajectory_N, minlength=len(names))
    start_M1 = np.concatenate([[0], np.cumsum(length_M)])
    place_N = start_M1[trajectory_N] + step_N
    fits = bool((step_N < length_M[trajectory_N]).all())
    if not fits or (np.bincount(place_N, minlength=len(place_N)) != 1).any():
        _fail_at_first_time_error(trajectory_N, step_N, names)
    order_N = np.empty(len(place_N), dtype=np.int64)
    order_N[place_N] = np.arange(len(place_N))
    return order_N, start_M1


def _fail_at_first_time_error(trajectory_N: IntArray, step_N: IntArray, names: tuple[Hashable, ...]) -> None:
    """Report a duplicate step if there is one, else a gap; an invalid batch has at least one of the two."""
    order_N = np.lexsort((step_N, trajectory_N))
    same_trajectory = np.diff(trajectory_N[order_N]) == 0
    gap = np.diff(step_N[order_N])
    twice = np.flatnonzero(same_trajectory & (gap == 0))
    if len(twice):
        first, row = sorted((int(order_N[twice[0]]), int(order_N[twice[0] + 1])))
        name = names[trajectory_N[row]]
        columns.fail("step", row, f"trajectory {name!r} already has step {step_N[row]}", other_row=first)
    expected = np.where(same_trajectory, step_N[order_N][:-1] + 1, 0)
    expected = np.concatenate([[0], expected])
    wrong = int(np.argmax(step_N[order_N] != expected))
    row = int(order_N[wrong])
    name = names[trajectory_N[row]]
    columns.fail(
        "step",
        row,
        f"trajectory {name!r} has step {step_N[row]} but no step {expected[wrong]}; the steps of a trajectory must be "
        "0..T-1",
    )
