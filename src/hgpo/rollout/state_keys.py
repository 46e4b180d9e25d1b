"""What stands for the state when steps are compared; `rollout.state` chooses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

COMMANDS_FOLLOW = "\nPossible: "
"""Parts an anchor's observation from the commands after it."""

FAILED = "Nothing happens"
"""How household games answer a command that changed nothing."""

UNSEEN_CHANGES = ("You heat", "You cool", "You clean", "You turn on")
"""How household games begin the answer to a command whose effect no later observation shows."""

Key = Callable[[str, Mapping[str, Any]], str]
"""(observation, info) of the place an episode has come to, in order of time -> what that place is compared by."""


def with_commands(observation: str, info: Mapping[str, Any]) -> str:
    """The observation followed by what can be done."""
    return f"{observation}{COMMANDS_FOLLOW}{', '.join(info.get('admissible_commands') or ())}"


class PublishedG2poKey:
    """The state of household games as the published G2PO code tells them apart; one for each episode.

    The start is its observation. From then on a place is its observation with the possible commands; a command that
    failed leaves the key as it was (after a failed first command: the start with its commands, another key than the
    start's); and the place after an unseen change is told with the text of that change before it.

    Source: github.com/Nala-YN/G2PO, agent_system/environments/env_manager.py. Its WebShop keeps the observation alone.

    Example: after "You heat the mug 1 ..." at the microwave and a walk, the key is the heating's and the walk's text.
    """

    def __init__(self) -> None:
        """Nothing has been seen."""
        self._last: tuple[str, ...] = ()

    def __call__(self, observation: str, info: Mapping[str, Any]) -> str:
        """The key of the next place."""
        text = with_commands(observation, info)
        if not self._last:
            self._last = (text,)
            return observation
        if not observation.startswith(FAILED):
            self._last = (*self._last[-1:], text)
        return " ".join(self._last) if self._last[0].startswith(UNSEEN_CHANGES) else self._last[-1]


def _observation(observation: str, info: Mapping[str, Any]) -> str:
    return observation


def make_key(state: str) -> Key:
    """The key of one episode for a value of `rollout.state`."""
    if state == "published_g2po":
        return PublishedG2poKey()
    return with_commands if state == "observation_and_commands" else _observation
