"""Ends a run on verl with a one-line error when one of its nodes or processes dies.

Otherwise TransferQueue retries a dead node for minutes (four times 200 s), and verl waits forever for the episodes of a
dead agent worker.
"""

from __future__ import annotations

import logging
import shlex
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

logger = logging.getLogger(__name__)

PATIENCE = 45.0  # seconds until Ray reports a dead node; a rank may fail before, since its peer is gone
_LONGEST = 400
AGENT_WORKER = "EpisodeWorker"  # the class in `agent_workers`, which imports verl
_DEAD = (
    "RayActorError",
    "NodeDiedError",
    "WorkerCrashedError",
    "LocalRayletDiedError",
    "OutOfMemoryError",
    "ObjectLostError",
)


class LostProcessError(RuntimeError):
    """A run ended because a part of it died; the message names it and the command that resumes."""


class Watchdog:
    """Watches a run on the connected Ray cluster while the block runs, and raises errors of dead processes as one line.

    Args:
        run: the run's folder.
        look: returns the dead nodes and agent workers of the run, "" for none.
        seconds: time between two calls of `look`.
        patience: seconds to wait, after an error of a process, for a dead node that explains it; 0 on one node.

    Raises:
        LostProcessError: from the block, instead of Ray's errors. Errors of the run's own code pass unchanged.
    """

    def __init__(self, run: Path, look: Callable[[], str], seconds: float = 5.0, patience: float = PATIENCE) -> None:
        self.found = ""
        self._run, self._look, self._seconds, self._patience = run, look, seconds, patience
        self._end: Callable[[], None] | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def ends(self, end: Callable[[], None]) -> None:
        """Start to watch the cluster; `end` is called to end the run."""
        self._end = end

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        found = self._explain(error)
        self._over.set()
        self._thread.join()
        if found:
            found = found if len(found) <= _LONGEST else f"{found[:_LONGEST]}…"
            raise LostProcessError(
                f"the run stopped, since {found.removesuffix('.')}. Everything written is kept; `hgpo train --resume "
                f"{shlex.quote(str(self._run))}` continues from the newest checkpoint"
            ) from error

    def _explain(self, error: BaseException | None) -> str:
        if error is None:
            return ""
        from ray import exceptions

        if isinstance(error, tuple(getattr(exceptions, name) for name in _DEAD)):
            if "creation task" in str(error):  # the process's own code failed; the traceback has the reason
                return ""
            # An error of another process is wrapped in one of the task there; its cause is Ray's error.
            reported = " ".join(str(getattr(error, "cause", error)).split())
            return self.found or f"a process or a node of it died: {reported}"
        if isinstance(error, exceptions.RayTaskError):  # e.g. gloo's error in a rank whose peer is gone
            self._thread.join(self._patience)  # the thread ends when it finds a dead node
            return self.found
        return ""

    def _watch(self) -> None:
        while not self._over.wait(self._seconds):
            if self._end is None:
                continue
            try:
                dead = self._look()
            except Exception as error:  # of any type; the run itself raises the reason
                logger.warning("the cluster cannot be watched any more (%s: %s)", type(error).__name__, error)
                return
            if dead:
                self.found = f"a process or a node of it died: {dead}"
                self._end()
                return


def look_at_ray() -> str:
    """The dead nodes that had processes of this run, or else its dead agent workers."""
    import ray
    from ray._private.state import actors

    ours = actors(job_id=ray.JobID.from_hex(ray.get_runtime_context().get_job_id())).values()
    return dead_nodes(ours, ray.nodes()) or dead_agent_workers(ours)


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


def dead_agent_workers(actors: Iterable[Mapping[str, Any]]) -> str:
    """The agent workers among `actors` whose process crashed: "agent worker 4711 on 10.0.0.7: <Ray's reason>"."""
    found = []
    for actor in actors:
        if actor["ActorClassName"] == AGENT_WORKER and actor["State"] == "DEAD":
            died, cause = actor["DeathCause"].actor_died_error_context, actor["DeathCause"]
            # A worker that could not be created raises its own error, and all end with the trainer.
            if cause.HasField("oom_context") or died.reason == died.WORKER_DIED:
                reason = " ".join((died.error_message or "memory ran out").split())
                found.append(f"agent worker {actor['Pid']} on {actor['Address']['IPAddress']}: {reason}")
    return ", ".join(found)
