"""Ends a run on verl as soon as a node that holds a process of it is gone.

Without this, a process that was about to hand samples to the lost node tries it again for minutes (TransferQueue: four
times 200 s), and nothing is said meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hgpo.integrations.verl.watcher import Watcher

logger = logging.getLogger(__name__)

SECONDS = 5.0  # between looks
PATIENCE = 45.0  # until Ray says that a node is gone: a rank may fail before, since its peer there is


class NodeWatch(Watcher):
    """Watches the nodes of a run while the block runs.

    Args:
        look: the nodes that are gone, in words, of those that the run needs.
        seconds: between looks.
        patience: seconds that `found` waits; 0 where there is one node alone.

    Attributes:
        lost: what the last look found; empty as long as all is there.
    """

    def __init__(
        self, look: Callable[[], tuple[str, ...]], seconds: float = SECONDS, patience: float = PATIENCE
    ) -> None:
        super().__init__("node-watch")
        self.lost: tuple[str, ...] = ()
        self._look, self._seconds, self._patience = look, seconds, patience
        self._end: Callable[[], None] | None = None

    def ends(self, end: Callable[[], None]) -> None:
        """From here on, a lost node ends the run by `end`."""
        self._end = end

    def found(self) -> tuple[str, ...]:
        """What is lost, after giving Ray time to notice."""
        self._thread.join(self._patience)  # it ends with what it finds
        return self.lost

    def _watch(self) -> None:
        while not self._over.wait(self._seconds):
            if self._end is None:
                continue
            try:
                lost = self._look()
            except Exception as error:  # a cluster that goes away raises what it likes; the run itself says why
                logger.warning("nodes cannot be looked at any more (%s: %s)", type(error).__name__, error)
                return
            if lost:
                self.lost = lost
                self._end()
                return


def look_for_lost_nodes() -> tuple[str, ...]:
    """The nodes with processes of this run that are gone, on the cluster that this process is connected to."""
    import ray
    from ray._private.state import actors

    ours = actors(job_id=ray.JobID.from_hex(ray.get_runtime_context().get_job_id()))
    return lost_nodes(ours.values(), ray.nodes())


def lost_nodes(actors: Iterable[Mapping[str, Any]], nodes: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The nodes that held a process and are gone, e.g. ("node 10.0.0.7 with WorkerDict",).

    Args:
        actors: processes of the run, dead ones included, each with `ActorClassName` and `Address`.
        nodes: all nodes that there have been, each with `NodeID`, `NodeManagerAddress` and `Alive`.
    """
    held: dict[str, set[str]] = {}
    for actor in actors:
        held.setdefault(str(actor["Address"].get("NodeID", "")), set()).add(str(actor["ActorClassName"]))
    return tuple(
        f"node {node['NodeManagerAddress']} with {', '.join(sorted(held[node['NodeID']]))}"
        for node in nodes
        if not node["Alive"] and node["NodeID"] in held
    )
