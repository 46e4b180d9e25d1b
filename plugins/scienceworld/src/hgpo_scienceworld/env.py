"""A variation of one of ScienceWorld's tasks."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

from hgpo.envs.base import check_action
from hgpo.messages import encodable
from hgpo_scienceworld.simulator import Simulator

_RESET_TASK = 12  # the package's number of the command `reset task`, which only undoes progress


class ScienceWorldEnv:
    """One variation of one task type.

    Answers, ends of episodes and scores are the package's, the scores from 0 to 1 instead of 0 to 100. A wrong choice
    makes the package's score negative and ends the episode; here the score is then 0. Rewards are changes of the score;
    it can be above 0 at the start. `won` is a score of 1.

    The observation is the package's answer, then what is in the room and in the inventory. `admissible_commands` are
    the valid ones with one object or none, without `reset task`; `valid_commands` has all.
    """

    def __init__(
        self, simulator: Simulator, task: str, variation: int, simplifications: str, list_commands: bool
    ) -> None:
        self._simulator, self._list_commands = simulator, list_commands
        self._game = (task, variation, simplifications)
        self._session: Any = None
        self._commands: tuple[str, ...] = ()
        self._points, self._running = 0, False

    def reset(self, *, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Start over. The game is deterministic: every seed gives the same start."""
        self._session = self._session or self._simulator.session()
        self._session.load(*self._game)
        self._commands, self._points = (), 0
        observation, *_, info = self._step("look around")  # as the package's reset() does
        return observation, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out one command. Before the first reset and after the end of an episode it raises `RuntimeError`."""
        check_action(action, self._running)
        self._commands = (*self._commands, action)
        return self._step(action)

    def valid_commands(self) -> list[tuple[str, int, int]]:
        """All valid commands after a reset, sorted: text, the package's number of its form, number of objects."""
        found = json.loads(self._session.call("getValidActionObjectCombinationsJSON"))["validActions"]
        return sorted((sys.intern(one["action"]), one["template_id"], len(one["obj_ids"])) for one in found)

    def identity(self) -> dict[str, Any]:
        """SHA-256 of the start with all objects; to be called after a reset and before the first step."""
        tree = json.dumps(json.loads(self._session.call("getObjectTree", "")), sort_keys=True)
        return {"game": hashlib.sha256(f"{self._game} {tree}".encode()).hexdigest()}

    def _step(self, command: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """The package's calls in its order, since some of them draw random numbers."""
        call = self._session.call
        answer, points = call("step", encodable(command)).strip(), round(100 * call("getScore"))
        room, inventory = call("freeActionLook").strip(), call("freeActionInventory").strip()
        before, self._points = self._points, max(points, 0)
        self._running = points >= 0 and not call("getCompleted")
        info = {"won": points == 100, "score": self._points / 100, "task": call("getTaskDescription")}
        info["session"] = {"game": self._game, "commands": self._commands}
        if self._list_commands:
            listed = (one for one in self.valid_commands() if one[2] < 2 and one[1] != _RESET_TASK)
            info["admissible_commands"] = [text for text, _, _ in listed]
        seen = inventory if room == answer else f"{room}\n{inventory}"
        return f"{answer}\n\n{seen}", (self._points - before) / 100, not self._running, False, info
