"""Generated boards and their solver."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo_sokoban import solver
from hgpo_sokoban.generator import BoardSize, generate_board
from hgpo_sokoban.rules import after, possible
from hgpo_sokoban.solver import SokobanExpert, least_pushes, solve

SIZES = st.builds(
    BoardSize,
    rows=st.integers(3, 6),
    columns=st.integers(4, 6),
    boxes=st.integers(1, 2),
    walls=st.integers(0, 2),
    pulls=st.integers(2, 12),
)
SMALL = BoardSize(rows=3, columns=4, boxes=2, walls=1, pulls=6)


def end_of(state: str, commands: list[str] | tuple[str, ...]) -> str:
    """The state after commands, each of which has to be possible, and none of which follows a win."""
    for command in commands:
        assert "$" in state
        assert command in possible(state)
        state = after(state, command)
    return state


def shortest(start: str) -> int | None:
    """The length of a shortest solution, by trying all commands in all states."""
    depth = {start: 0}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        if "$" not in state:
            return depth[state]
        for command in possible(state):
            reached = after(state, command)
            if reached not in depth:
                depth[reached] = depth[state] + 1
                waiting.append(reached)
    return None


@given(SIZES, st.integers(0, 2**32))
def test_a_board_is_solved_by_its_solution_and_has_the_size_asked_for(size: BoardSize, seed: int) -> None:
    start, solution = generate_board(size, np.random.default_rng(seed))
    assert "$" not in end_of(start, solution)
    rows = start.split("\n")
    assert {len(row) for row in rows} == {size.columns + 2}
    assert len(rows) == size.rows + 2
    assert start.count("$") == start.count(".") + start.count("+") == size.boxes
    assert "*" not in start
    assert start.count("#") == 2 * (size.rows + size.columns + 2) + size.walls
    assert start.count("@") + start.count("+") == 1


@given(SIZES, st.integers(0, 2**32))
def test_the_same_seed_gives_the_same_board(size: BoardSize, seed: int) -> None:
    first, second = (generate_board(size, np.random.default_rng(seed)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("seed", range(20))
def test_the_solver_finds_a_shortest_solution(seed: int) -> None:
    start, solution = generate_board(SMALL, np.random.default_rng(seed))
    commands = solve(start)
    assert commands is not None
    assert "$" not in end_of(start, commands)
    assert len(commands) == shortest(start) <= len(solution)


@pytest.mark.parametrize("seed", range(20))
def test_the_solver_knows_after_random_pushes_what_is_unsolvable(seed: int) -> None:
    rng = np.random.default_rng(seed)
    state, _ = generate_board(SMALL, rng)
    for _ in range(12):
        commands = possible(state)
        pushes = [command for command in commands if command.startswith("push")] or commands
        state = after(state, str(rng.choice(pushes)))
    commands = solve(state)
    assert (None if commands is None else len(commands)) == shortest(state)


def test_where_a_shortest_solution_takes_too_long_another_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    start, _ = generate_board(BoardSize(6, 6, 3, 4, 20), np.random.default_rng(3))
    best = solve(start)
    assert best is not None
    monkeypatch.setattr(solver, "_MOST_STATES", 400)
    assert solver._search(start, weight=1) == (False, None)
    commands = solve(start)
    assert commands is not None
    assert "$" not in end_of(start, commands)
    assert len(commands) >= len(best)


def test_cells_along_a_wall_without_goals_lead_nowhere() -> None:
    state = "#####\n#-@-#\n#-$.#\n#---#\n#####"
    cells = {(cell // 6, cell % 6): pushes for cell, pushes in least_pushes(state).items()}
    assert cells == {(2, 3): 0, (2, 2): 1}


def test_the_expert_takes_any_command_in_a_deadlock() -> None:
    state = "######\n#$-@.#\n######"
    expert = SokobanExpert()
    expert.reset(state, {})
    for _ in range(2):
        assert expert.act(state, {"admissible_commands": ["move left", "move right"]}) == "move left"
    assert expert.act(state, {"admissible_commands": []}) == "move up"


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((0, 4, 1, 0, 1), "1 to 400 cells"),
        ((21, 20, 1, 0, 1), "1 to 400 cells"),
        ((4, 4, 2, 0, 1), "as many pulls as boxes"),
    ],
)
def test_impossible_sizes_are_rejected(size: tuple[int, int, int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BoardSize(*size)


@pytest.mark.parametrize("size", [BoardSize(2, 2, 2, 0, 4), BoardSize(2, 2, 4, 0, 4), BoardSize(3, 3, 1, 9, 4)])
def test_a_size_without_boards_is_named(size: BoardSize) -> None:
    with pytest.raises(ValueError, match="fewer boxes or walls"):
        generate_board(size, np.random.default_rng(0))
