"""An environment server of this package in a thread, for tests that talk to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from generated_games import numbers
from hgpo.envs import make
from hgpo.envs.openenv.server import EnvironmentServer, Limits, Served
from hgpo.envs.wrappers import LimitedSuite

FEW = {"train": 6, "valid_seen": 2, "valid_unseen": 4}
OPTIONS: dict[str, Any] = {**numbers(FEW), "size": {"receptacles": [3, 3], "objects": [1, 1], "copies": 1}}


def served(name: str = "alfworld", max_steps: int = 30, **options: Any) -> Served:
    """The tasks of an environment, by default a few generated household games."""
    suite = LimitedSuite(make(name, **(options or OPTIONS)), max_steps)
    return Served(name, suite, suite.splits)


@contextmanager
def environment_server(tasks: Served | None = None, limits: Limits | None = None) -> Iterator[str]:
    """The address of a server that is there as long as the context."""
    listening, address, loop = Event(), [""], asyncio.new_event_loop()
    ended = asyncio.Event()

    async def serve() -> None:
        async with EnvironmentServer(tasks or served(), limits or Limits()).listening("127.0.0.1", 0) as where:
            address[0] = where
            listening.set()
            await ended.wait()

    thread = Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert listening.wait(30)
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(30)
        loop.close()
