"""Training and validation sets of generated games.

- `train`: floor plans and object-target pairs that are not held out, with alternating task types.
- `valid_seen`: task instances of the training set with other placements; no training game is in it.
- `valid_unseen`: held-out floor plans and object-target pairs, with only kinds and words of the training set: only the
  combinations are new.

No split contains the same game twice, and the first games of `train` do not depend on the number of training games.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hgpo.envs.alfworld.game import TASK_TYPES, Game
from hgpo.envs.alfworld.generation.floor_plans import Size, TaskInstance, task_instances
from hgpo.envs.alfworld.generation.furnishing import make_game
from hgpo.envs.alfworld.generation.household import OBJECT_KINDS
from hgpo.envs.base import LARGEST_SEED, SPLITS, check_task_types, check_whole_number

DEFAULT_GAMES: Mapping[str, int] = {"train": 2500, "valid_seen": 200, "valid_unseen": 200}
"""More training games than the default warm start needs: 2,000 demonstrations and 128 probes."""
_ATTEMPTS = 500
_REMEDY = "request fewer games, a larger size, more task types or more training games"


class GeneratedGames:
    """The games of each split, made on request. The training games are made once, since the other splits need them.

    Args:
        seed: seed of all random draws.
        counts: split -> number of games; other splits get none.
        size: size of the games.
        task_types: types of the tasks.

    Raises:
        ValueError: the request is invalid. `of` raises it if a split cannot have as many different games.
    """

    def __init__(self, seed: int, counts: Mapping[str, int], size: Size, task_types: Sequence[str]) -> None:
        check_request(counts, task_types)
        check_whole_number("seed", seed, most=LARGEST_SEED)
        self._seed, self._counts, self._size, self._task_types = seed, counts, size, task_types

    def of(self, split: str) -> tuple[Game, ...]:
        """The games of a split; they do not depend on which splits were requested before."""
        made = self._made if split == "train" else self._draw(split, self._source_of(split), taken=self._made)
        return tuple(game for _, game in made)

    @cached_property
    def _made(self) -> list[tuple[TaskInstance, Game]]:
        """The training games with their instances."""
        seen = {task_type: task_instances(self._size, task_type, False) for task_type in self._task_types}
        return self._draw("train", _Source(self._size, seen), taken=())

    def _source_of(self, split: str) -> _Source:
        if split == "valid_unseen":
            return _unseen_source(self._size, self._task_types, [game for _, game in self._made])
        instances: dict[str, list[TaskInstance]] = {}
        for instance, _ in self._made:
            instances.setdefault(instance.goal.task_type, []).append(instance)
        return _Source(self._size, instances)

    def _draw(
        self, split: str, source: _Source, taken: Iterable[tuple[TaskInstance, Game]]
    ) -> list[tuple[TaskInstance, Game]]:
        """Different games that are not in `taken`, with alternating task types."""
        rng = np.random.default_rng(self._seed).spawn(len(SPLITS))[SPLITS.index(split)]
        count, task_types = self._counts.get(split, 0), list(source.instances)
        known = {game_key(game) for _, game in taken}
        made: list[tuple[TaskInstance, Game]] = []
        for number in range(count):
            turn = number % len(task_types)
            found = source.draw(rng, task_types[turn:] + task_types[:turn], known)
            if found is None:
                raise ValueError(f"{split}: found only {number} different games of {count} requested; {_REMEDY}")
            known.add(game_key(found[1]))
            made.append(found)
        return made


def vocabulary(games: Iterable[Game]) -> frozenset[str]:
    """Every word and number that the games' task sentences and names are made of."""
    found: set[str] = set()
    for game in games:
        names = [receptacle.name for receptacle in game.receptacles] + [thing.name for thing in game.objects]
        found.update(re.findall(r"\w+", " ".join([game.task, *names])))
    return frozenset(found)


def game_key(game: Game) -> tuple[object, ...]:
    """The identity of a game: goal, room and placements, without phrasing and names."""
    room = tuple(sorted(receptacle.kind for receptacle in game.receptacles))
    return game.goal, room, tuple(sorted((thing.kind, thing.receptacles) for thing in game.objects))


@dataclass(frozen=True, slots=True)
class _Source:
    """The distribution of the games of a split: `instances` by task type; `words` that games may use, None for any."""

    size: Size
    instances: Mapping[str, Sequence[TaskInstance]]
    object_kinds: frozenset[str] = frozenset(OBJECT_KINDS)
    words: frozenset[str] | None = None

    def draw(
        self, rng: np.random.Generator, task_types: Sequence[str], known: set[tuple[object, ...]]
    ) -> tuple[TaskInstance, Game] | None:
        """A game that is not `known` (by `game_key`), of the first of the task types that has one."""
        for task_type in task_types:
            instances = self.instances[task_type]
            for _ in range(_ATTEMPTS if instances else 0):
                instance = instances[int(rng.integers(len(instances)))]
                game = make_game(instance, rng, size=self.size, object_kinds=self.object_kinds)
                if game_key(game) not in known and (self.words is None or vocabulary([game]) <= self.words):
                    return instance, game
        return None


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


def check_request(counts: Mapping[str, int], task_types: Sequence[str]) -> None:
    """Reject unknown splits, invalid counts and invalid task types, with a `ValueError`."""
    for split, count in counts.items():
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r}; the splits are {', '.join(SPLITS)}")
        check_whole_number(f"games in {split}", count)
    if any(counts.values()) and not counts.get("train"):
        raise ValueError("validation games depend on the training games; request some of these too, e.g. train=100")
    check_task_types(task_types, TASK_TYPES)
