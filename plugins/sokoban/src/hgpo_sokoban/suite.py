"""Sokoban as a task suite: the environment, and the splits by seed and size."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from hgpo.envs.base import SPLITS, Count, Seed, Task, TaskSplits, check_action
from hgpo.utils.text import counted
from hgpo_sokoban.generator import BoardSize, generate_board
from hgpo_sokoban.rules import BOXES, NAMES, after, offsets, player_of, possible
from hgpo_sokoban.solver import SokobanExpert

TASK = (
    "Push every box onto a goal. Map: # wall, - floor, . goal, $ box, * box on a goal, @ you, + you on a goal. "
    "You cannot pull a box or push two."
)
_SEEN_EVERY = 8
"""One in this many boards of the training size is in `valid_seen`."""


class SokobanEnv:
    """One board: the map at its start, and commands that are known to solve it.

    Commands are `move up` onto free floor and `push up` against a box that can move, and the same for `down`, `left`
    and `right`. Other commands change nothing. The reward is 1 on the step that brings the last box onto a goal, which
    ends the episode, and 0 before. A board can become unsolvable without notice.

    The observation is the map with the names of what is next to the player: the whole state. `admissible_commands` has
    the commands that change something.
    """

    def __init__(self, start: str, solution: tuple[str, ...] = ()) -> None:
        self.start, self.solution = start, solution
        self._state = start
        self._running = False

    def reset(self, *, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Start over. The game is deterministic: every seed gives the same start."""
        self._state = self.start
        self._running = True
        return self._look(won=False)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out one command. Before the first reset and after the end of an episode it raises `RuntimeError`."""
        check_action(action, self._running)
        self._state = after(self._state, action)
        won = BOXES[0] not in self._state
        self._running = not won
        observation, info = self._look(won=won)
        return observation, float(won), won, False, info

    def state_key(self) -> str:
        """The exact state: the map."""
        return self._state

    def identity(self) -> dict[str, Any]:
        """SHA-256 of the map at the start."""
        return {"game": hashlib.sha256(self.start.encode()).hexdigest()}

    def _look(self, *, won: bool) -> tuple[str, dict[str, Any]]:
        """Observation and info."""
        state, player = self._state, player_of(self._state)
        beside = [f"{direction} {NAMES[state[player + offset]]}" for direction, offset in offsets(state).items()]
        info = {"won": won, "task": TASK, "admissible_commands": possible(state)}
        return f"{state}\nBeside you: {', '.join(beside)}.", info


def sokoban_suite(
    *,
    rows: Count = 4,
    columns: Count = 4,
    boxes: Count = 2,
    walls: Count = 1,
    pulls: Count = 8,
    train_boards: Count = 16_000,
    valid_seen_boards: Count = 256,
    valid_unseen_boards: Count = 256,
    seed: Seed = 0,
) -> TaskSplits:
    """A suite of generated boards with the splits train, valid_seen and valid_unseen.

    No board of `valid_seen`, turned or mirrored, is in `train`. Those of `valid_unseen` have in turn one row and one
    column more, and one box more.

    Args:
        rows: rows inside the outer walls.
        columns: columns inside the outer walls.
        boxes: number of boxes, and of goals.
        walls: cells inside that are walls; the floor stays in one piece.
        pulls: most pulls of the reverse play; their number is drawn for each board.
        train_boards: number of boards of the split; 0 omits it.
        valid_seen_boards: the same.
        valid_unseen_boards: the same.
        seed: of the boards.

    Raises:
        ValueError: a size is not possible.
    """
    counts = dict(zip(SPLITS, (train_boards, valid_seen_boards, valid_unseen_boards), strict=True))
    size = BoardSize(rows, columns, boxes, walls, pulls)
    make = {name: partial(_tasks, name, count, _sizes(name, size), seed) for name, count in counts.items() if count}
    description = {"size": asdict(size), "seed": seed, "boards": counts}
    return TaskSplits(make, expert=SokobanExpert, description=description)


def _sizes(split: str, size: BoardSize) -> list[BoardSize]:
    """The sizes of a split's boards, in turn."""
    if split != "valid_unseen":
        return [size]
    try:
        larger = replace(size, rows=size.rows + 1, columns=size.columns + 1)
        return [larger, replace(size, boxes=size.boxes + 1, pulls=max(size.pulls, size.boxes + 1))]
    except ValueError as error:
        raise ValueError(
            "valid_unseen has boards with one more row and column, and with one more box: "
            f"ask for smaller boards, or set valid_unseen_boards=0 ({error})"
        ) from error


def _tasks(split: str, count: int, sizes: Sequence[BoardSize], seed: int) -> list[Task]:
    """The tasks of a split; a board is generated when its environment is made."""
    tasks = []
    for number in range(count):
        drawn = sizes[number % len(sizes)]
        kind = f"{drawn.rows}x{drawn.columns}, {counted(drawn.boxes, 'box', 'boxes')}"
        tasks.append(Task(f"{split}/{number:05d}", kind, partial(_make, split, drawn, seed, number)))
    return tasks


def _make(split: str, size: BoardSize, seed: int, number: int) -> SokobanEnv:
    rng = np.random.default_rng((seed, SPLITS.index(split), number))
    for _ in range(100 * _SEEN_EVERY):
        start, solution = generate_board(size, rng)
        if split == "valid_unseen" or _is_held_out(start) == (split == "valid_seen"):
            return SokobanEnv(start, solution)
    raise ValueError(f"no board of {size} was found for {split}; ask for larger boards")


def _is_held_out(start: str) -> bool:
    """Whether a board belongs to `valid_seen`, with its turned and mirrored copies."""
    rows = start.replace("@", "-").replace("+", ".").split("\n")
    grids = [rows, ["".join(column) for column in zip(*rows, strict=True)]]
    views = ["\n".join(row[::x] for row in grid[::y]) for grid in grids for x in (1, -1) for y in (1, -1)]
    return zlib.crc32(min(views).encode()) % _SEEN_EVERY == 0
