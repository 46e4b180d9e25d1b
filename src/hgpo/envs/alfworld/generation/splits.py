"""Training and validation sets of generated games that differ in what they should differ in.

- `train`: floor plans and object-target pairs that are not held out, the task types in turn.
- `valid_seen`: task instances of the training set, floor plan included, furnished anew; no game is also in it.
- `valid_unseen`: floor plans and object-target pairs that no training game of any seed has, made only of kinds,
  and of words, that the training set contains: what is new is how they are combined.

No split contains the same game twice, and the first games of `train` do not depend on how many there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hgpo.envs.alfworld.game import TASK_TYPES, Game
from hgpo.envs.alfworld.generation.floor_plans import Size, named_size
from hgpo.envs.alfworld.generation.furnishing import make_game
from hgpo.envs.alfworld.generation.task_instances import TaskInstance, task_instances
from hgpo.envs.options import LARGEST_SEED, check_whole_number

SPLITS = ("train", "valid_seen", "valid_unseen")
DEFAULT_GAMES: Mapping[str, int] = {"train": 2500, "valid_seen": 200, "valid_unseen": 200}
"""More training games than a warm start takes by default: 2,000 demonstrations and 128 probes."""
_ATTEMPTS = 500


def generate_splits(
    seed: int,
    counts: Mapping[str, int],
    *,
    size: str | Size | Mapping[str, Any] = "small",
    task_types: Sequence[str] = TASK_TYPES,
) -> dict[str, tuple[Game, ...]]:
    """Games for each split. `counts` maps split names to how many; a split left out gets none.

    Example: `generate_splits(0, {"train": 300, "valid_unseen": 60})["valid_unseen"][0].task`.
    """
    check_request(counts, task_types)
    check_whole_number("seed", seed, most=LARGEST_SEED)
    size = named_size(size)
    rngs = dict(zip(SPLITS, np.random.default_rng(seed).spawn(len(SPLITS)), strict=True))
    seen = {task_type: task_instances(size, task_type, False) for task_type in task_types}
    made = _collect("train", counts, _Source(size, seen), rngs, taken=())
    train = tuple(game for _, game in made)
    sources = {"valid_seen": _seen_source(size, made), "valid_unseen": _unseen_source(size, task_types, train)}
    splits = {"train": train}
    for split, source in sources.items():
        splits[split] = tuple(game for _, game in _collect(split, counts, source, rngs, taken=train))
    return splits


def vocabulary(games: Iterable[Game]) -> frozenset[str]:
    """Every word and number that the games' task sentences and names are made of."""
    found: set[str] = set()
    for game in games:
        names = [receptacle.name for receptacle in game.receptacles] + [thing.name for thing in game.objects]
        found.update(re.findall(r"\w+", " ".join([game.task, *names])))
    return frozenset(found)


def game_key(game: Game) -> tuple[object, ...]:
    """What makes two games the same: goal, room and what stands where; phrasing and names do not count."""
    room = tuple(sorted(receptacle.kind for receptacle in game.receptacles))
    return game.goal, room, tuple(sorted((thing.kind, thing.receptacles) for thing in game.objects))


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the games of a split come from: its task instances per task type and, if limited, its kinds and words."""

    size: Size
    instances: Mapping[str, Sequence[TaskInstance]]
    object_kinds: frozenset[str] | None = None
    words: frozenset[str] | None = None

    def draw(self, rng: np.random.Generator, task_type: str) -> tuple[TaskInstance, Game] | None:
        """A game of the type, or None where there is none or it has a word too many."""
        instances = self.instances.get(task_type, ())
        if not instances:
            return None
        instance = instances[int(rng.integers(len(instances)))]
        game = make_game(instance, rng, size=self.size, object_kinds=self.object_kinds)
        return (instance, game) if self.words is None or vocabulary([game]) <= self.words else None


def _seen_source(size: Size, made: Iterable[tuple[TaskInstance, Game]]) -> _Source:
    instances: dict[str, list[TaskInstance]] = {}
    for instance, _ in made:
        instances.setdefault(instance.goal.task_type, []).append(instance)
    return _Source(size, instances)


def _unseen_source(size: Size, task_types: Iterable[str], train: Sequence[Game]) -> _Source:
    known_words = vocabulary(train)
    object_kinds = frozenset(thing.kind for game in train for thing in game.objects)
    instances = {
        task_type: [
            instance
            for instance in task_instances(size, task_type, True)
            if instance.goal.object_kind in object_kinds
            and {kind.lower() for kind in (instance.goal.target_kind, *instance.plan.kinds)} <= known_words
        ]
        for task_type in task_types
    }
    return _Source(size, instances, object_kinds, known_words)


def _collect(
    split: str,
    counts: Mapping[str, int],
    source: _Source,
    rngs: Mapping[str, np.random.Generator],
    taken: Iterable[Game],
) -> list[tuple[TaskInstance, Game]]:
    """So many games, the task types in turn, none twice and none that is taken."""
    known = {game_key(game) for game in taken}
    task_types = list(source.instances)
    made: list[tuple[TaskInstance, Game]] = []
    for number in range(counts.get(split, 0)):
        turn = number % len(task_types) if task_types else 0
        found = _draw_new(rngs[split], task_types[turn:] + task_types[:turn], source, known)
        if found is None:
            raise ValueError(
                f"{split}: found only {number} different games of the {counts[split]} asked for; ask for fewer, for a "
                "larger size, for more task types or for more training games"
            )
        known.add(game_key(found[1]))
        made.append(found)
    return made


def _draw_new(
    rng: np.random.Generator, task_types: Sequence[str], source: _Source, known: set[tuple[object, ...]]
) -> tuple[TaskInstance, Game] | None:
    """A game that is not known, of the first of the task types that has one."""
    for task_type in task_types:
        for _ in range(_ATTEMPTS if source.instances[task_type] else 0):
            found = source.draw(rng, task_type)
            if found is not None and game_key(found[1]) not in known:
                return found
    return None


def check_request(counts: Mapping[str, int], task_types: Sequence[str]) -> None:
    """Refuse, with a `ValueError`, what cannot be asked for, before anything is generated."""
    for split, count in counts.items():
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r}; the splits are {', '.join(SPLITS)}")
        check_whole_number(f"games in {split}", count)
    if any(counts.values()) and not counts.get("train"):
        raise ValueError("validation games are defined relative to the training games; ask for some, e.g. train=100")
    check_task_types(task_types)


def check_task_types(task_types: Sequence[str]) -> None:
    """Refuse, with a `ValueError`, types that there are not, none at all, one twice, and text instead of a list."""
    listed = not isinstance(task_types, str) and isinstance(task_types, Sequence)
    if not listed or not all(isinstance(task_type, str) for task_type in task_types):
        raise ValueError(f"task_types = {task_types!r}; give a list of some of {', '.join(TASK_TYPES)}")
    if not task_types or len(set(task_types)) < len(task_types) or not set(task_types) <= set(TASK_TYPES):
        raise ValueError(f"task_types={list(task_types)}; give one or more of {', '.join(TASK_TYPES)}, each once")
