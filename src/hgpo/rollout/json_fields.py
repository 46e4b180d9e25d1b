"""JSON in observations as state keys: keys in one order, without the fields that are new in every rollout.

A field is a path such as `order.items[].id`, with the keys of the outermost object, which tell the answers of
different tools apart. A field is left out of a batch's keys if

1. rollouts do not share its values: at most `SHARED` of the pairs of rollouts of one task that both have the field show
   the same values in some steps, one of each, and there are at least `PAIRS` such pairs;
2. it looks like an id, a time or a counter: no value is a text of `WORDS` or more words, and its values are not both
   fractional somewhere and falling in some rollout;
3. it predicts nothing: between rollouts that have it first at the same step of the same task, the order of its values
   is not related to the sum of rewards (|z| at most `Z` under permutations).

By rule 1, the field gives two rollouts in one state different keys. It prevents comparisons; removing it ends almost
none. Rules 2 and 3 keep a field that may nevertheless be part of the state. Nothing is random, and the order of the
rows does not matter.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import combinations, islice, pairwise
from math import comb
from typing import Any

import numpy as np

from hgpo.keys import canonical_json, escaped
from hgpo.returns import total_rewards
from hgpo.steps import StepBatch

PAIRS, SHARED, WORDS, Z = 50, 0.02, 4, 3.29
LEFT_OUT = "…"
"""Written in place of a value that is left out."""
_MOST_FAILURES = 50
"""Stop parsing a text after this many brackets that do not begin valid JSON; the rest is kept as text."""
_BEGIN, _DECODER = re.compile(r"[{\[]"), json.JSONDecoder()

Field = tuple[tuple[str, ...], str]
"""The keys of the outermost object, sorted, and the path."""
Seen = dict[int, list[tuple[int, list[Any]]]]
"""Trajectory -> its steps that have a field, in order of time, and the values there (several: from a list)."""


@dataclass(frozen=True, slots=True)
class NewField:
    """A field whose values are new in every rollout.

    Attributes:
        field: its keys and path.
        steps, values: steps that have it, and its different values.
        pairs: pairs of rollouts of one task that both have it.
        shared: those of them that show the same values in some step of each.
        kept: why it stays part of the key; "" if it is left out.
    """

    field: Field
    steps: int
    values: int
    pairs: int
    shared: int
    kept: str

    @property
    def name(self) -> str:
        """The field's path and, for messages, up to three keys of the outermost object."""
        keys, path = self.field
        owner = f" of {{{', '.join(keys[:3])}{', …' * (len(keys) > 3)}}}" if len(keys) > 1 else ""
        return escaped(path + owner)


def json_key(text: str, left_out: Collection[Field | str] = ()) -> str:
    """The text with every JSON object or list in it in canonical form, without the values of some fields.

    Args:
        text: Any text.
        left_out: Fields to leave out; a path without keys applies to objects with any keys.

    Example: `json_key('Order {"id": 7, "at": 3}', {"id"})` is `'Order {"at": 3, "id": "…"}'`.
    """
    return _rewritten(text, lambda field, value: LEFT_OUT if not {field, field[1]}.isdisjoint(left_out) else value)


def new_fields(batch: StepBatch) -> list[NewField]:
    """The fields whose values are new in nearly every rollout (rule 1), sorted; `kept`: why rule 2 or 3 keeps one."""
    values_of = [_values(label) if isinstance(label, str) else {} for label in batch.labels["observation"]]
    seen: defaultdict[Field, Seen] = defaultdict(dict)
    for row in batch.order.tolist():
        for field, values in values_of[batch.observation[row]].items():
            seen[field].setdefault(int(batch.trajectory[row]), []).append((int(batch.step[row]), values))
    reward_M = total_rewards(batch)
    return [found for field in sorted(seen) if (found := _if_new(field, seen[field], batch, reward_M)) is not None]


def _rewritten(text: str, change: Callable[[Field, Any], Any]) -> str:
    """The text with canonical JSON, in which `change` replaced each text, number, boolean and null."""

    def changed(value: Any, keys: tuple[str, ...], path: str) -> Any:
        if isinstance(value, dict):
            return {key: changed(value[key], keys, f"{path}.{key}" if path else key) for key in sorted(value)}
        if isinstance(value, list):
            return [changed(inner, keys, f"{path}[]") for inner in value]
        return change((keys, path), value)

    parts: list[str] = []
    begin, end, failures = 0, 0, 0
    while failures < _MOST_FAILURES and (found := _BEGIN.search(text, end)):
        try:
            value, after = _DECODER.raw_decode(text, found.start())
            part = canonical_json(changed(value, tuple(sorted(value)) if isinstance(value, dict) else (), ""))
        except (ValueError, RecursionError):
            failures, end = failures + 1, found.end()
        else:
            parts += text[begin : found.start()], part
            begin = end = after
    return "".join([*parts, text[begin:]])


def _values(text: str) -> dict[Field, list[Any]]:
    found: defaultdict[Field, list[Any]] = defaultdict(list)
    _rewritten(text, lambda field, value: found[field].append(value))
    return found


def _if_new(field: Field, seen: Seen, batch: StepBatch, reward_M: np.ndarray) -> NewField | None:
    pairs = sum(comb(count, 2) for count in Counter(batch.trajectory_group[[*seen]].tolist()).values())
    if pairs < PAIRS:
        return None
    rollouts_of: defaultdict[tuple[int, str], list[int]] = defaultdict(list)  # by task and value
    for trajectory, steps in seen.items():
        for value in {canonical_json(values) for _, values in steps}:
            rollouts_of[batch.trajectory_group[trajectory], value].append(trajectory)
    shared: set[tuple[int, int]] = set()
    most = int(SHARED * pairs)
    for rollouts in set(map(tuple, rollouts_of.values())):
        shared.update(islice(combinations(rollouts, 2), most + 1))  # as many as decide
        if len(shared) > most:
            return None
    different = {value for _, value in rollouts_of}
    kept = _why_kept(seen, batch, reward_M)
    return NewField(field, sum(map(len, seen.values())), len(different), pairs, len(shared), kept)


def _why_kept(seen: Seen, batch: StepBatch, reward_M: np.ndarray) -> str:
    series = [[value for _, values in steps for value in values] for steps in seen.values()]
    if any(_words(value) >= WORDS for values in series for value in values):
        return f"has texts of {WORDS} or more words"
    numbers = [[value for value in values if isinstance(value, (int, float))] for values in series]
    falls = any(after < before for values in numbers for before, after in pairwise(values))
    if falls and any(value % 1 for values in numbers for value in values):
        return "has fractions that fall during a rollout"
    return f"predicts the sum of rewards (|z| > {Z})" if abs(_relation(seen, batch, reward_M)) > Z else ""


def _words(value: Any) -> int:
    return sum(word.strip(".,:;!?()").isalpha() for word in value.split()) if isinstance(value, str) else 0


def _relation(seen: Seen, batch: StepBatch, reward_M: np.ndarray) -> float:
    """Rank association of values and rewards, in standard deviations under permutations."""
    cells = defaultdict(list)
    for trajectory, ((step, values), *_) in seen.items():
        place = tuple((isinstance(one, str), one if isinstance(one, (int, float)) else 0, str(one)) for one in values)
        cells[batch.trajectory_group[trajectory], step].append((place, reward_M[trajectory]))
    covariance = variance = 0.0
    for members in cells.values():
        rank_of = {place: rank for rank, place in enumerate(sorted(place for place, _ in members))}
        rank = np.array([rank_of[place] for place, _ in members], dtype=np.float64)
        reward = np.array([reward for _, reward in members])
        rank, reward = rank - rank.mean(), reward - reward.mean()
        covariance += float(rank @ reward)
        variance += float(rank @ rank) * float(reward @ reward) / max(1, len(members) - 1)
    return covariance / variance**0.5 if variance > 0.0 else 0.0
