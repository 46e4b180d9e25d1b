"""Says what the start of a run waits for, once nothing has moved for two minutes: nothing hangs silently.

A thread of the process that starts the run looks at what Ray has placed. It stops nothing, and ends by itself once the
processes that play episodes are there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hgpo.integrations.verl.watcher import Watcher

LIMIT = 120.0
_LOOKS = 8  # in the time of the limit
_WAITING = ("DEPENDENCIES_UNREADY", "PENDING_CREATION", "RESTARTING")
_NAMED = 4
# What is there last, first: what verl starts one after the other, by what its actors' names have in them.
_PHASES = (
    ("agent_loop_worker_", ""),
    ("server_", "the processes that play episodes, which the trainer starts when all rollout servers serve"),
    ("WorkerDict", "the training processes to load the model, and then the rollout servers"),
    ("TransferQueueController", "the trainer to ask for training processes"),
)
_FIRST = "the trainer's process to load verl and to start TransferQueue"


@dataclass(frozen=True, slots=True)
class Situation:
    """How far a start has come.

    Attributes:
        waits_for: what has to come next, in words.
        moved: differs from one look to the next where something has moved.
        done: the start is over.

    Example: `Situation("Ray to start", moved=0)`.
    """

    waits_for: str
    moved: Hashable
    done: bool = False


class Stillness:
    """How long nothing has moved."""

    def __init__(self, limit: float, now: float) -> None:
        self._limit, self._since, self._told = limit, now, now
        self._moved: Hashable = object()

    def notice(self, situation: Situation, now: float) -> str | None:
        """What to say of the latest look: something each time the limit is over without a move."""
        if situation.moved != self._moved:
            self._moved, self._since, self._told = situation.moved, now, now
            return None
        if now - self._told < self._limit:
            return None
        self._told = now
        return f"nothing has moved for {now - self._since:.0f} s: the start waits for {situation.waits_for}"


class StartWatch(Watcher):
    """Watches a start while the block runs.

    Args:
        say: takes a line for a person.
        waits_for: what the start waits for at first, in words.
        limit: seconds without a move after which it is said.
    """

    def __init__(self, say: Callable[[str], None], waits_for: str, limit: float = LIMIT) -> None:
        super().__init__("start-watch")
        self._say, self._limit = say, limit
        self.waits_for(waits_for)

    def waits_for(self, what: str) -> None:
        """The start has come to something that nothing can be seen of until it is over."""
        self._look: Callable[[], Situation] = lambda: Situation(what, what)

    def looks(self, look: Callable[[], Situation]) -> None:
        """The start has come to where `look` tells how far it is."""
        self._look = look

    def _watch(self) -> None:
        stillness = Stillness(self._limit, time.monotonic())
        while not self._over.wait(self._limit / _LOOKS):
            try:
                situation = self._look()
            except Exception as error:  # a cluster that goes away raises what it likes; the run itself says why
                self._say(f"what the start waits for cannot be seen any more ({type(error).__name__}: {error})")
                return
            if situation.done:
                return
            line = stillness.notice(situation, time.monotonic())
            if line:
                self._say(line)


def look_at_ray(agents: int) -> Situation:
    """How far verl has come on the cluster that this process is connected to.

    Args:
        agents: processes that will play episodes, the last to start.
    """
    import ray
    from ray._private.state import actors
    from ray.util import placement_group_table

    ours = actors(job_id=ray.JobID.from_hex(ray.get_runtime_context().get_job_id()))
    return situation(placement_group_table().values(), ours.values(), ray.available_resources(), agents)


def situation(
    groups: Iterable[Mapping[str, Any]], actors: Iterable[Mapping[str, Any]], free: Mapping[str, float], agents: int
) -> Situation:
    """What a start waits for, from what Ray knows of it.

    Args:
        groups: placement groups, each with `name`, `state` and `bundles`.
        actors: each with `Name`, `ActorClassName` and `State`.
        free: resources that nobody holds, by name.
        agents: processes that will play episodes.
    """
    groups, living = list(groups), [actor for actor in actors if actor["State"] != "DEAD"]
    moved = (
        frozenset((group["name"], group["state"]) for group in groups),
        frozenset((_name(actor), actor["State"]) for actor in living),
    )
    pending = [group for group in groups if group["state"] == "PENDING" and "verl_group" in group["name"]]
    if pending:
        return Situation(f"{_asked(pending)}, and free on all nodes together are {_resources(free)}", moved)
    waiting = [_name(actor) for actor in living if actor["State"] in _WAITING]
    if waiting:
        listed = ", ".join(sorted(waiting)[:_NAMED]) + (", …" if len(waiting) > _NAMED else "")
        return Situation(f"{listed} to be placed (one CPU free on their node) and to load", moved)
    names = [_name(actor) for actor in living]
    done = sum(_PHASES[0][0] in name for name in names) >= agents
    reached = next((then for mark, then in _PHASES if any(mark in name for name in names)), _FIRST)
    return Situation(reached or "the other processes that play episodes", moved, done)


def _name(actor: Mapping[str, Any]) -> str:
    return str(actor["Name"] or actor["ActorClassName"])


def _asked(groups: list[Mapping[str, Any]]) -> str:
    listed = [_resources(_summed(group["bundles"].values())) for group in groups]
    return f"{len(groups)} placement group(s), each on one node, of {'; '.join(listed)}"


def _summed(bundles: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for bundle in bundles:
        for name, amount in bundle.items():
            total[name] = total.get(name, 0) + amount
    return total


def _resources(amounts: Mapping[str, float]) -> str:
    """CPUs, and GPUs where there are any, e.g. "3 CPU, 1 GPU"."""
    counted = {"CPU": amounts.get("CPU", 0), **({"GPU": amounts["GPU"]} if amounts.get("GPU") else {})}
    return ", ".join(f"{amount:g} {name}" for name, amount in counted.items())
