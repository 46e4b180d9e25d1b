"""The rules. A state is its map, a line for each row, and a cell is an index in this text.

`#` is a wall, `-` floor, `.` a goal, `$` a box, `*` a box on a goal, `@` the player, `+` the player on a goal. Walls
enclose the floor. There are as many goals as boxes, so a map without `$` is solved.
"""

from __future__ import annotations

FREE, BOXES, PLAYERS = "-.", "$*", "@+"
"""What a cell without a wall has on it, apart from a goal and on a goal."""
NAMES = {"#": "wall", "-": "floor", ".": "goal", "$": "box", "*": "box on a goal"}


def read_map(observation: str) -> str:
    """The map in an observation; "" if it has none."""
    return "\n".join(line for line in observation.splitlines() if line.startswith("#"))


def offsets(state: str) -> dict[str, int]:
    """Direction -> the next cell in this direction, minus the cell itself."""
    width = state.index("\n") + 1
    return {"up": -width, "down": width, "left": -1, "right": 1}


def player_of(state: str) -> int:
    """The cell of the player."""
    return max(map(state.find, PLAYERS))


def boxes_of(state: str) -> list[int]:
    """The cells of the boxes."""
    return [cell for cell, symbol in enumerate(state) if symbol in BOXES]


def possible(state: str) -> list[str]:
    """The commands that change something: `move up` onto free floor, `push up` against a box that can move."""
    commands = []
    player = player_of(state)
    for direction, offset in offsets(state).items():
        if state[player + offset] in FREE:
            commands.append(f"move {direction}")
        elif state[player + offset] in BOXES and state[player + 2 * offset] in FREE:
            commands.append(f"push {direction}")
    return commands


def after(state: str, command: str) -> str:
    """The state after a command; the same state if the command is not possible."""
    if command not in possible(state):
        return state
    verb, direction = command.split()
    player, offset = player_of(state), offsets(state)[direction]
    if verb == "push":
        state = moved(state, player + offset, player + 2 * offset)
    return moved(state, player, player + offset)


def moved(state: str, start: int, end: int) -> str:
    """The state with the box or player of cell `start` on the free cell `end`, which may be `start` itself."""
    if start == end:
        return state
    kind = BOXES if state[start] in BOXES else PLAYERS
    cells = list(state)
    cells[start] = FREE[kind.index(state[start])]
    cells[end] = kind[FREE.index(state[end])]
    return "".join(cells)


def walks(state: str) -> dict[int, tuple[str, ...]]:
    """Cell -> a shortest sequence of moves to it, for all cells that the player reaches without a push."""
    found: dict[int, tuple[str, ...]] = {player_of(state): ()}
    steps = offsets(state).items()
    cells = list(found)
    for cell in cells:
        for direction, offset in steps:
            if state[cell + offset] in FREE and cell + offset not in found:
                found[cell + offset] = (*found[cell], f"move {direction}")
                cells.append(cell + offset)
    return found
