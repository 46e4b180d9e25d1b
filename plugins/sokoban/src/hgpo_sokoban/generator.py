"""Generated boards: reverse play pulls the boxes off the goals, so that every board has a solution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgpo_sokoban.rules import BOXES, FREE, PLAYERS, boxes_of, moved, offsets, player_of, walks


@dataclass(frozen=True, slots=True)
class BoardSize:
    """Rows and columns inside the outer walls, boxes, inner walls, and most pulls of the reverse play."""

    rows: int
    columns: int
    boxes: int
    walls: int
    pulls: int

    def __post_init__(self) -> None:
        if min(self.rows, self.columns, self.boxes) < 1 or self.rows * self.columns > 400 or self.pulls < self.boxes:
            raise ValueError(f"{self}: give 1 to 400 cells, a box or more, and as many pulls as boxes, or more")


def generate_board(size: BoardSize, rng: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    """Draw a map that has no box on a goal, and commands that solve it: the reverse play, played forwards.

    Raises:
        ValueError: 1,000 draws gave none.
    """
    for _ in range(1000):
        if board := _drawn(size, rng):
            return board
    raise ValueError(f"1,000 draws gave no board of {size}; ask for fewer boxes or walls, or for more pulls")


def _drawn(size: BoardSize, rng: np.random.Generator) -> tuple[str, tuple[str, ...]] | None:
    """One draw; None if the floor is too small or in pieces, or a box stays on a goal."""
    width = size.columns + 3  # with two walls and the end of the line
    inside = [row * width + column for row in range(1, size.rows + 1) for column in range(1, size.columns + 1)]
    floor = [inside[number] for number in rng.permutation(len(inside))][size.walls :]
    if len(floor) <= size.boxes:
        return None
    cells = list("\n".join(["#" * (width - 1)] * (size.rows + 2)))
    for number, cell in enumerate(floor):
        cells[cell] = FREE[number < size.boxes]
    cells[floor[-1]] = PLAYERS[0]
    if len(walks("".join(cells))) < len(floor):
        return None
    solved = "".join(cells).replace(FREE[1], BOXES[1])
    state, solution = _pulled(solved, int(rng.integers(size.boxes, size.pulls + 1)), rng)
    if BOXES[1] in state:
        return None
    player, reached = player_of(state), sorted(walks(state))
    start = moved(state, player, reached[int(rng.integers(len(reached)))])
    return start, (*walks(start)[player], *solution)


def _pulled(state: str, pulls: int, rng: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    """The state after random pulls, fewer where none is left, and the commands that lead back from it.

    No pull brings the boxes to places where they were before: the play does not go back and forth.
    """
    solution: tuple[str, ...] = ()
    seen = [boxes_of(state)]
    for _ in range(pulls):
        ways = []
        player, reached = player_of(state), walks(state)
        for box in boxes_of(state):
            for direction, offset in offsets(state).items():  # of the push that undoes the pull
                beside, behind = box - offset, box - 2 * offset
                if beside in reached and state[behind] in FREE + PLAYERS:
                    near = moved(state, player, beside)
                    pulled = moved(moved(near, beside, behind), box, beside)
                    if boxes_of(pulled) not in seen:
                        ways.append((near, pulled, direction))
        if not ways:
            break
        near, pulled, direction = ways[int(rng.integers(len(ways)))]
        # The last push wins. After the others the player walks to where the pull before ended.
        walk = walks(near)[player] if solution else ()
        solution = (f"push {direction}", *walk, *solution)
        seen.append(boxes_of(pulled))
        state = pulled
    return state, solution
