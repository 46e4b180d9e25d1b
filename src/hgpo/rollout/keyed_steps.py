"""State keys of whole batches: stored steps by any key that reads no `info`, and what a key matches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from hgpo.columns import intern
from hgpo.rollout.json_fields import Field, NewField, json_key, new_fields
from hgpo.rollout.state_keys import INFO_OF, JSON, NO_CALL, TOOL_CALL, Visit, make_key
from hgpo.steps import StepBatch


@dataclass(frozen=True, slots=True)
class KeyMatches:
    """What a state key matched in a batch.

    Attributes:
        state: the name of the key.
        steps: their number.
        keyed: number of steps whose key also occurs in another trajectory of the task.
        observed: the same for the stored observation.
        fields: for "json", the fields that are new in every rollout.
    """

    state: str
    steps: int
    keyed: int
    observed: int
    fields: Sequence[NewField] = ()


def keyed_steps(batch: StepBatch, state: str) -> tuple[StepBatch, KeyMatches]:
    """The steps with the keys of their states in place of observations, `next_observation` included.

    Args:
        batch: steps with texts as observations; for "json", whole groups of an update.
        state: as `rollout.state`: a name, or "module:attribute", which is imported.

    Returns:
        The steps, and what their keys match.

    Raises:
        ValueError: Unknown name, a key that needs what was not stored, "tool_call" without tool calls in the steps, or
            an observation or action that is not text.

    Example: the keys of two rollouts that got the same answer with its fields in another order are equal.

    >>> batch = StepBatch.from_columns(
    ...     group=[0, 0], trajectory=["a", "b"], step=[0, 0], reward=[1, 0],
    ...     observation=['{"x": 1, "y": 2}', '{"y":2,"x":1}'])
    >>> keyed_steps(batch, "json")[0].labels["observation"]
    ('{"x": 1, "y": 2}',)
    """
    if state in INFO_OF and state != TOOL_CALL:
        raise ValueError(
            f"the state key {state!r} reads {INFO_OF[state]} of the environment's info, which is not stored; use "
            "'observation', 'json' or 'tool_call', or set rollout.state in the training"
        )
    seen = _texts(batch, "observation")
    next_N = [None] * len(batch) if batch.next_observation is None else [seen[code] for code in batch.next_observation]
    if state == JSON:
        fields = new_fields(batch)
        left_out = {one.field for one in fields if not one.kept}
        key_of = {None: None} | {text: json_key(text, left_out) for text in seen if text is not None}
        key_N = [key_of[seen[code]] for code in batch.observation]
        return _with_keys(batch, state, key_N, [key_of[text] for text in next_N], fields)
    actions = [None] if batch.action is None else _texts(batch, "action")
    key_N = [None] * len(batch)
    for begin, end in pairwise(batch.trajectory_start):
        key, action, rows = make_key(state), None, batch.order[begin:end].tolist()
        for row in rows:
            key_N[row] = key(Visit(seen[batch.observation[row]], action))
            action = None if batch.action is None else actions[batch.action[row]]
        after = next_N[rows[-1]]
        following = [*(key_N[row] for row in rows[1:]), None if after is None else key(Visit(after, action))]
        for row, found in zip(rows, following, strict=True):
            next_N[row] = None if next_N[row] is None else found
    if state == TOOL_CALL and {*key_N} == {NO_CALL}:
        raise ValueError(f"the state key {state!r} needs tool calls, and the actions of these steps have none")
    return _with_keys(batch, state, key_N, next_N, ())


def _texts(batch: StepBatch, column: str) -> list[Any]:
    """The labels of a column, each text or None."""
    for label in batch.labels[column]:
        if not (label is None or isinstance(label, str)):
            raise ValueError(f"column {column!r}: state keys read text, and not {type(label).__name__}")
    return list(batch.labels[column])


def _with_keys(
    batch: StepBatch, state: str, key_N: list[Any], next_N: list[Any], fields: Sequence[NewField]
) -> tuple[StepBatch, KeyMatches]:
    has_next = batch.next_observation is not None
    code, labels = intern("observation", key_N + next_N if has_next else key_N, allow_none=True)
    code.flags.writeable = False
    keyed = replace(
        batch,
        observation=code[: len(batch)],
        next_observation=code[len(batch) :] if has_next else None,
        labels=MappingProxyType({**batch.labels, "observation": labels}),
    )
    return keyed, KeyMatches(state, len(batch), _matched(keyed), _matched(batch), fields)


def _matched(batch: StepBatch) -> int:
    state_N = batch.group * (int(batch.observation.max()) + 1) + batch.observation
    visited = np.unique(np.stack([state_N, batch.trajectory]), axis=1)[0]
    states, trajectories = np.unique(visited, return_counts=True)
    return int(np.isin(state_N, states[trajectories > 1]).sum())


def describe_matches(updates: Sequence[KeyMatches]) -> list[str]:
    """Describe in lines what a key matched in some updates, and the fields that are new in every rollout."""
    if not updates:
        return []
    steps, keyed, observed = (sum(getattr(one, name) for one in updates) for name in ("steps", "keyed", "observed"))
    lines = [
        f"state key {updates[0].state}: {100 * keyed / steps:.1f} % of the steps share their key with another "
        f"trajectory of the task, {100 * observed / steps:.1f} % share the stored observation"
    ]
    found: defaultdict[tuple[Field, str], list[NewField]] = defaultdict(list)
    for one in (one for update in updates for one in update.fields):
        found[one.field, one.kept].append(one)
    for (_, kept), alike in sorted(found.items()):
        what = f"kept {alike[0].name}, which {kept}" if kept else f"left out {alike[0].name}"
        of = f" ({len(alike)} of {len(updates)} updates)" if len(updates) > 1 else ""
        counts = [sum(getattr(one, name) for one in alike) for name in ("values", "steps", "shared", "pairs")]
        lines.append(
            "{}{}: {:,} values in {:,} steps; {} of {:,} pairs of rollouts share values".format(what, of, *counts)
        )
    return lines
