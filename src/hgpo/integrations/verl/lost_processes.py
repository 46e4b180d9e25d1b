"""A process or a node of a run on verl that is gone: one line with what to do, in place of the stacks of all others."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hgpo.integrations.verl.lost_nodes import NodeWatch

_LONGEST = 400


class LostProcessError(RuntimeError):
    """A process of a run died; the message says which, and how the run goes on."""


@contextmanager
def naming_lost_processes(run: Path, nodes: NodeWatch | None = None) -> Iterator[None]:
    """In the block, the death of a process that Ray reports is a `LostProcessError`. Needs Ray.

    Args:
        run: the run's folder.
        nodes: what it has found missing is named, too.

    A process that cannot be made, since its own code fails, is left as Ray tells it.
    """
    from ray import exceptions

    gone = (
        exceptions.RayActorError,
        exceptions.NodeDiedError,
        exceptions.WorkerCrashedError,
        exceptions.LocalRayletDiedError,
        exceptions.OutOfMemoryError,
        exceptions.ObjectLostError,
    )
    try:
        yield
    except gone as error:
        if "creation task" in str(error):  # its own code failed, and says why in its stack
            raise
        # Raised in another process it is an error of the task there; its cause is what Ray saw.
        seen = " ".join(str(getattr(error, "cause", error)).split())
        if nodes is not None and nodes.lost:  # then what Ray saw is that the run was ended for it
            seen = _listed(nodes.lost)
        raise LostProcessError(_message(seen, run)) from error
    except exceptions.RayTaskError as error:  # a rank whose peer is gone says what its library says
        lost = nodes.found() if nodes is not None else ()
        if not lost:
            raise
        raise LostProcessError(_message(_listed(lost), run)) from error


def _listed(lost: tuple[str, ...]) -> str:
    return f"{', '.join(lost)}."


def _message(seen: str, run: Path) -> str:
    seen = seen if len(seen) <= _LONGEST else f"{seen[:_LONGEST]}…"
    return (
        f"the run stopped, since a process or a node of it is gone: {seen} What was written is kept; with its nodes "
        f"back, `hgpo train --resume {shlex.quote(str(run))}` goes on from the newest checkpoint"
    )
