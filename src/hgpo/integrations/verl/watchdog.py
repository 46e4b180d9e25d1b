"""Ends a run on verl with a one-line error when one of its nodes or processes dies, or Ray cannot place a part of it.

Otherwise TransferQueue retries a dead node for minutes (four times 200 s), and verl waits forever for a placement
group that does not fit.
"""

from __future__ import annotations

import logging
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

logger = logging.getLogger(__name__)

SECONDS = 5.0  # between two checks of the cluster
PATIENCE = 45.0  # until Ray reports a dead node; a rank whose peer is gone may fail before that
HANG = 600.0  # without a place for a placement group or a process of the run
_UNPLACED = ("DEPENDENCIES_UNREADY", "PENDING_CREATION", "RESTARTING")
_LAST_ACTOR = "agent_loop_worker"  # verl starts the processes that play episodes last
_LONGEST = 400
_DEAD = (
    "RayActorError",
    "NodeDiedError",
    "WorkerCrashedError",
    "LocalRayletDiedError",
    "OutOfMemoryError",
    "ObjectLostError",
)

Look = Callable[[], tuple[str, str]]
"""Returns the dead nodes of the run, and the parts that Ray has not placed; empty strings for none."""


class LostProcessError(RuntimeError):
    """A run ended because a part of it died or does not fit; the message names it and the command that resumes."""


class Watchdog:
    """Watches a run on the connected Ray cluster while the block runs; errors of dead processes become one line.

    Args:
        run: the run's folder.
        look: see `Look`.
        seconds: between two calls of `look`.
        patience: how long an error of another process waits for a dead node that explains it; 0 on one node.
        hang: seconds after which an unplaced part ends the run.

    Raises:
        LostProcessError: from the block, instead of Ray's errors. Errors of the run's own code pass unchanged.
    """

    def __init__(
        self, run: Path, look: Look, seconds: float = SECONDS, patience: float = PATIENCE, hang: float = HANG
    ) -> None:
        self.found = ""
        self._run, self._look, self._seconds, self._patience, self._hang = run, look, seconds, patience, hang
        self._end: Callable[[], None] | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def ends(self, end: Callable[[], None]) -> None:
        """Start to watch the cluster; `end` ends the run."""
        self._end = end

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        found = self._explain(error)
        self._over.set()
        self._thread.join()
        if found:
            found = found if len(found) <= _LONGEST else f"{found[:_LONGEST]}…"
            raise LostProcessError(
                f"the run stopped, since {found} Everything written is kept; `hgpo train --resume "
                f"{shlex.quote(str(self._run))}` continues from the newest checkpoint"
            ) from error

    def _explain(self, error: BaseException | None) -> str:
        if error is None:
            return ""
        from ray import exceptions

        if isinstance(error, tuple(getattr(exceptions, name) for name in _DEAD)):
            if "creation task" in str(error):  # the process's own code failed, and the stack has the reason
                return ""
            # An error of another process is wrapped in one of the task there; its cause is Ray's error.
            reported = " ".join(str(getattr(error, "cause", error)).split())
            return self.found or f"a process or a node of it died: {reported}"
        if isinstance(error, exceptions.RayTaskError):  # a rank whose peer is gone raises its library's error
            self._thread.join(self._patience)  # the thread ends when it finds a dead node
            return self.found
        return ""

    def _watch(self) -> None:
        unplaced, since = "", time.monotonic()
        while not self._over.wait(self._seconds):
            if self._end is None:
                continue
            try:
                dead, waiting = self._look()
            except Exception as error:  # of any type; the run itself fails with the reason
                logger.warning("the cluster cannot be watched any more (%s: %s)", type(error).__name__, error)
                return
            if waiting != unplaced:
                unplaced, since = waiting, time.monotonic()
            if dead:
                self.found = f"a process or a node of it died: {dead}."
            elif unplaced and time.monotonic() - since >= self._hang:
                self.found = f"Ray could not place {unplaced} within {self._hang:.0f} s."
            if self.found:
                self._end()
                return


def look_at_ray() -> tuple[str, str]:
    """A `Look` at the connected cluster."""
    import ray
    from ray._private.state import actors
    from ray.util import placement_group_table

    ours = list(actors(job_id=ray.JobID.from_hex(ray.get_runtime_context().get_job_id())).values())
    return dead_nodes(ours, ray.nodes()), unplaced_parts(ours, placement_group_table().values())


def dead_nodes(actors: Iterable[Mapping[str, Any]], nodes: Iterable[Mapping[str, Any]]) -> str:
    """The dead nodes that had one of `actors`, the run's processes: "node 10.0.0.7 with WorkerDict"."""
    names: dict[str, set[str]] = {}
    for actor in actors:
        names.setdefault(str(actor["Address"].get("NodeID", "")), set()).add(str(actor["ActorClassName"]))
    return ", ".join(
        f"node {node['NodeManagerAddress']} with {', '.join(sorted(names[node['NodeID']]))}"
        for node in nodes
        if not node["Alive"] and node["NodeID"] in names
    )


def unplaced_parts(actors: Iterable[Mapping[str, Any]], groups: Iterable[Mapping[str, Any]]) -> str:
    """The parts that Ray has not placed: "a placement group of 3 CPU, 1 GPU", "the process WorkerDict".

    Ray does not say whose the placement groups are: all count until the last of the run's processes exists.
    """
    living = [(str(one["Name"] or one["ActorClassName"]), one["State"]) for one in actors if one["State"] != "DEAD"]
    parts = [f"the process {name}" for name, state in living if state in _UNPLACED]
    if not any(_LAST_ACTOR in name for name, _ in living):
        for group in groups:
            if group["state"] == "PENDING" and "verl_group" in group["name"]:
                sums = {name: sum(one.get(name, 0) for one in group["bundles"].values()) for name in ("CPU", "GPU")}
                needed = ", ".join(f"{amount:g} {name}" for name, amount in sums.items() if amount)
                parts.append(f"a placement group of {needed}")
    return ", ".join(sorted(parts))
