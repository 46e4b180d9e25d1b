"""The native engine's side of a parity trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hgpo.envs.alfworld import AlfworldEnv, Game
from parity.alfworld_traces import DIGEST_LENGTH, Step, digest, play


class Player:
    """A native environment that answers in the terms of a trace."""

    def __init__(self, game: Game) -> None:
        self._env = AlfworldEnv(game)
        observation, info = self._env.reset()
        self.first: Step = (observation, info["admissible_commands"], info["won"], False)

    def answer(self, command: str) -> Step:
        observation, _, terminated, _, info = self._env.step(command)
        return observation, info["admissible_commands"], info["won"], terminated


def first_mismatch(name: str, kind: str, game: Game, expected: Sequence[str]) -> Iterator[str]:
    """Play one trace; where it first differs from the recorded digests, if anywhere."""
    player = Player(game)
    commands: list[str] = []
    shown = [player.first]
    for command, step in play(name, kind, game.walkthrough, player.first, player.answer):
        commands.append(command)
        shown.append(step)
    for index, step in enumerate(shown):
        if index >= len(expected) or digest(step) != expected[index]:
            yield f"{name} ({kind}) after {commands[:index]}: {step[0]!r}"
            return
    if len(shown) != len(expected):
        yield f"{name} ({kind}) ends after {len(shown)} steps, not {len(expected)}"


def digests(joined: str) -> list[str]:
    """The digests of a trace, recorded as one word."""
    return [joined[start : start + DIGEST_LENGTH] for start in range(0, len(joined), DIGEST_LENGTH)]
