"""An OpenEnv server's session as an environment: text in, text out."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hgpo.envs.base import StepResult
from hgpo.envs.contract import EnvironmentFault
from hgpo.envs.openenv.connection import Connection, Server
from hgpo.envs.openenv.fields import Fields


@dataclass(frozen=True, slots=True)
class Play:
    """How every task of a server is played.

    Attributes:
        server: where.
        fields: what its answers mean.
        action_field: which field of an action is the command.
        same_start: whether two starts of one task must look the same.
    """

    server: Server
    fields: Fields
    action_field: str
    same_start: bool


@dataclass(slots=True)
class FirstSeen:
    """How a task began the last time, shared by all environments of that task in this process.

    Attributes:
        seed: of that reset.
        text: the first observation; None before the first reset.
    """

    seed: int | None = None
    text: str | None = None

    def check(self, seed: int | None, text: str) -> None:
        """Refuse another start of the same task with the same seed.

        Raises:
            EnvironmentFault: it began otherwise before.
        """
        if self.text is not None and self.seed == seed and self.text != text:
            raise EnvironmentFault(
                "the same task began in two ways, so the server does not reset by its seed, and rollouts of one group "
                "would not be comparable. If only words differ, set environment.options.same_start=false"
            )
        self.seed, self.text = seed, text


@dataclass(slots=True, weakref_slot=True)
class OpenEnvEnv:
    """One session: the first reset opens it; the end of an episode closes it, and so does garbage collection.

    Attributes:
        play: the server and how its answers are read.
        start: what a reset sends: a task by its number and split, or by its seed; with a number, the seed of `reset` is
            sent as well.
        first_seen: of the task.
    """

    play: Play
    start: Mapping[str, Any]
    first_seen: FirstSeen
    _connection: Connection | None = None
    _running: bool = field(default=False, init=False)

    def reset(self, *, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Start over."""
        if self._connection is None:
            self._connection = Connection(self.play.server)
            weakref.finalize(self, self._connection.close)
        asked = {"seed": seed, **self.start} if seed is not None else dict(self.start)
        observation, _, terminated, truncated, info = self.play.fields.read(self._connection.ask("reset", asked))
        if terminated or truncated:
            raise EnvironmentFault("the episode had ended before its first step; look at the server")
        if self.play.same_start:
            self.first_seen.check(asked.get("seed"), observation)
        self._running = True
        return observation, info

    def step(self, action: str) -> StepResult:
        """Carry out one action; `RuntimeError` before the first reset and after the end of an episode."""
        if not self._running or self._connection is None:
            raise RuntimeError("no episode is running; call reset() before step()")
        self._running = False
        result = self.play.fields.read(self._connection.ask("step", {self.play.action_field: action}))
        self._running = not (result[2] or result[3])
        if not self._running:
            self._connection.close()
            self._connection = None
        return result
