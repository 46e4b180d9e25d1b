"""A level of BabyAI in text."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

import gymnasium
import numpy as np
from minigrid.core.actions import Actions
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT
from minigrid.envs.babyai.core import roomgrid_level
from numpy.typing import NDArray

from hgpo.envs.base import check_action

COMMANDS = {
    "turn left": Actions.left,
    "turn right": Actions.right,
    "go forward": Actions.forward,
    "pick up": Actions.pickup,
    "drop": Actions.drop,
    "toggle": Actions.toggle,
}
DOOR_STATES = ("open", "closed", "locked")
_PLACES = [(ahead, right) for ahead in range(7) for right in range(-3, 4)]
_PLACES.sort(key=lambda place: (place[0] + abs(place[1]), abs(place[1]), place[1]))
"""Steps ahead and to the right of the cells in view, nearest first."""

# minigrid prints each draft of a level that it rejects.
roomgrid_level.print = lambda *words: logging.getLogger(__name__).debug("%s", " ".join(map(str, words)))


def make_world(level: str) -> Any:
    """minigrid's environment of a level, such as "GoToLocalS6N3", without wrappers."""
    return gymnasium.make(f"BabyAI-{level}-v0", disable_env_checker=True).unwrapped


class BabyAIEnv:
    """One level with one seed.

    Commands are the keys of `COMMANDS`. `toggle` opens and closes the door ahead, with the key of its colour if it is
    locked, and opens the box ahead, which is then gone. Any other command is a step without effect. Rewards and ends
    of episodes are minigrid's: 1 - 0.9 · steps / most steps when the mission is fulfilled, else 0.

    The observation describes what is in view, with places in steps as seen by the agent. `info` has the same keys at
    reset and at each step: `won`; `task`, the mission; `admissible_commands`, the commands that change something; and
    `session`, from which `BabyAIExpert` repeats the episode: the level, the seed and the commands so far.
    """

    def __init__(self, level: str, seed: int) -> None:
        self.level, self.seed = level, seed
        self.world = make_world(level)
        self._commands: tuple[str, ...] = ()
        self._running = False

    def reset(self, *, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Start over. A level and a seed are one game, so any seed given here gives the same start."""
        seen, _ = self.world.reset(seed=self.seed)
        self._commands = ()
        self._running = True
        return view_text(seen["image"]), self._info(won=False)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out one command. Before the first reset and after the end of an episode it raises `RuntimeError`."""
        check_action(action, self._running)
        seen, reward, terminated, truncated, _ = self.world.step(COMMANDS.get(action, Actions.done))
        self._commands = (*self._commands, action)
        self._running = not (terminated or truncated)
        return view_text(seen["image"]), float(reward), terminated, truncated, self._info(won=reward > 0)

    def state_key(self) -> str:
        """The exact state: places of the agent and the objects, named by where they were at the start."""
        world = self.world
        held = "nothing" if world.carrying is None else _named(world.carrying)
        agent = f"agent at {_place(world.agent_pos)} facing {int(world.agent_dir)} with {held}"
        cells = [(place, world.grid.get(*place)) for place in np.ndindex(world.grid.width, world.grid.height)]
        things = [f"{_named(one)} at {_place(place)}" for place, one in cells if one and one.type != "wall"]
        return "; ".join([agent, *things])

    def identity(self) -> dict[str, Any]:
        """SHA-256 of walls, objects and mission; to be called before the first step."""
        game = f"{self.world.grid.encode().tolist()} {self.state_key()} {self.world.mission}"
        return {"game": hashlib.sha256(game.encode()).hexdigest()}

    def _info(self, *, won: bool) -> dict[str, Any]:
        return {
            "won": won,
            "task": self.world.mission,
            "admissible_commands": self._possible(),
            "session": {"level": self.level, "seed": self.seed, "commands": self._commands},
        }

    def _possible(self) -> list[str]:
        """The commands that change something; all of it is in view."""
        world = self.world
        ahead, held = world.grid.get(*world.front_pos), world.carrying
        possible = {
            "go forward": ahead is None or ahead.can_overlap(),
            "pick up": ahead is not None and ahead.can_pickup() and held is None,
            "drop": ahead is None and held is not None,
            "toggle": ahead is not None and (ahead.type == "box" or (ahead.type == "door" and _opens(ahead, held))),
        }
        return [command for command in COMMANDS if possible.get(command, True)]


def _opens(door: Any, held: Any) -> bool:
    return not door.is_locked or (held is not None and held.type == "key" and held.color == door.color)


def _named(thing: Any) -> str:
    if thing.type == "door":
        return f"{DOOR_STATES[thing.encode()[2]]} {thing.color} door"
    return f"{thing.color} {thing.type} from {_place(thing.init_pos)}"


def _place(place: Any) -> str:
    return f"{int(place[0])},{int(place[1])}"


def view_text(image_XY3: NDArray[np.uint8]) -> str:
    """The view as two sentences, nearest cells first; of walls, the nearest one ahead, left and right.

    Args:
        image_XY3: minigrid's view of 7 x 7 cells: type, colour and state, by column from the left and row from the
            farthest. The agent is in the middle of the last row and looks up; its cell shows what it carries.
    """
    cells = image_XY3.tolist()
    shown, walls = [], set()
    for ahead, right in _PLACES:
        name = _cell_name(*cells[right + 3][6 - ahead])
        side = (right > 0) - (right < 0)
        if name == "a wall" and ((ahead and right) or side in walls):
            continue
        if name == "a wall":
            walls.add(side)
        shown.append(f"{name} {_where(ahead, right)}" if name else "")
    return f"You see {', '.join(filter(None, shown[1:])) or 'nothing'}. You carry {shown[0].strip() or 'nothing'}."


def _cell_name(kind: int, colour: int, state: int) -> str:
    """Such as `a closed red door`; "" for free floor and what is not seen."""
    name = IDX_TO_OBJECT[kind]
    if name in ("unseen", "empty"):
        return ""
    words = [DOOR_STATES[state]] if name == "door" else []
    words += [name] if name == "wall" else [IDX_TO_COLOR[colour], name]
    return " ".join(["an" if words[0] == "open" else "a", *words])


def _where(ahead: int, right: int) -> str:
    """Such as `2 ahead and 1 left`; "" for the agent's own cell."""
    sideways = f"{abs(right)} {'right' if right > 0 else 'left'}" if right else ""
    return " and ".join(filter(None, [f"{ahead} ahead" if ahead else "", sideways]))
