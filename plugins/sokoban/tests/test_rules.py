"""The rules on small maps, and against a simulator of another kind on random walks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo_sokoban.generator import BoardSize, generate_board
from hgpo_sokoban.rules import after, moved, possible, walks

CORRIDOR = "########\n#--@$-.#\n########"
COMMANDS = [f"{verb} {direction}" for verb in ("move", "push") for direction in ("up", "down", "left", "right")]
SIZES = st.builds(
    BoardSize,
    rows=st.integers(3, 6),
    columns=st.integers(4, 6),
    boxes=st.integers(1, 2),
    walls=st.integers(0, 2),
    pulls=st.integers(2, 12),
)


WAYS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


class Reference:
    """The rules on sets of places (row, column), every command tried."""

    def __init__(self, text: str) -> None:
        cells = {(y, x): c for y, line in enumerate(text.split("\n")) for x, c in enumerate(line)}
        self.walls = {place for place, symbol in cells.items() if symbol == "#"}
        self.goals = {place for place, symbol in cells.items() if symbol in "+*."}
        self.boxes = {place for place, symbol in cells.items() if symbol in "*$"}
        [self.player] = [place for place, symbol in cells.items() if symbol in "@+"]

    def act(self, command: str) -> bool:
        """Whether the command changed something."""
        verb, direction = command.split()
        down, right = WAYS[direction]
        ahead = (self.player[0] + down, self.player[1] + right)
        behind = (ahead[0] + down, ahead[1] + right)
        if ahead in self.walls or (ahead in self.boxes) != (verb == "push"):
            return False
        if ahead in self.boxes:
            if behind in self.walls | self.boxes:
                return False
            self.boxes = (self.boxes - {ahead}) | {behind}
        self.player = ahead
        return True


@given(SIZES, st.integers(0, 2**32), st.lists(st.sampled_from(COMMANDS), max_size=60))
def test_random_walks_agree_with_the_reference(size: BoardSize, seed: int, commands: list[str]) -> None:
    state, _ = generate_board(size, np.random.default_rng(seed))
    reference = Reference(state)
    for command in commands:
        offered = command in possible(state)
        before, state = state, after(state, command)
        assert reference.act(command) == offered == (state != before)
        assert vars(Reference(state)) == vars(reference)
        assert ("$" not in state) == (reference.boxes == reference.goals)


@given(SIZES, st.integers(0, 2**32))
def test_a_walk_leads_to_its_cell(size: BoardSize, seed: int) -> None:
    state, _ = generate_board(size, np.random.default_rng(seed))
    for cell, commands in walks(state).items():
        arrived = state
        for command in commands:
            assert command in possible(arrived)
            arrived = after(arrived, command)
        assert arrived[cell] in "@+"


def test_a_box_is_pushed_onto_a_goal_and_off_it() -> None:
    pushed = after(after(CORRIDOR, "push right"), "push right")
    assert pushed == "########\n#----@*#\n########"
    assert possible(pushed) == ["move left"]
    off = "########\n#-@*--.#\n########"
    assert after(off, "push right") == "########\n#--+$-.#\n########"


@pytest.mark.parametrize(
    "command", ["move right", "move up", "push left", "push up", "move", "", "open door", "MOVE LEFT"]
)
def test_other_commands_change_nothing(command: str) -> None:
    assert after(CORRIDOR, command) == CORRIDOR


@pytest.mark.parametrize("beyond", ["$", "*", "#"])
def test_two_boxes_are_not_pushed(beyond: str) -> None:
    assert possible(f"######\n#-@${beyond}#\n######") == ["move left"]


def test_moving_to_the_same_cell_changes_nothing() -> None:
    cell = CORRIDOR.index("@")
    assert moved(CORRIDOR, cell, cell) == CORRIDOR
