"""Readers beside a writer: a training that rotates its checkpoints away while others evaluate, export and inspect it.

Each reader ends well, or with an error that gives no destructive advice; the training ends as if nobody had looked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

from torture.invoking import Invocation, kill, start
from torture.outcomes import Outcome
from torture.specimen import MAKERS, ON_RUNS, RUN, Command, Specimen, make_specimen

_TRAIN = next(command for command in MAKERS if command.name == "train")
_UPDATES = 8
_HARD = (f"training.updates={_UPDATES}", "training.checkpoint_every=1", "training.keep_checkpoints=1")
_KEPT = (f"{RUN}/metrics.jsonl", f"{RUN}/checkpoints")
_WRITER = Command("train", (*_TRAIN.arguments, *_HARD), _KEPT, on="nothing", compared=False)
_LOOKING = ("eval", "rollout", "advantages", "inspect", "export", "play")
_READERS = tuple(command for command in ON_RUNS if command.name in _LOOKING)
_SAID_NOTHING = Invocation(0, "", "")
_ADVICE = f"Delete the checkpoint folder {RUN}/checkpoints "  # of all of them


def readers(folder: Path, rng: Random) -> Iterator[Outcome]:
    """One training with as many readers as it lasts; each is a case, and so is the training."""
    specimen = make_specimen(folder.parent / "specimen")
    cwd = specimen.copy_for(_WRITER, folder / "alone")
    alone = _WRITER.result(cwd, _WRITER.run(cwd))
    while True:
        yield from _beside(specimen, folder / "case", rng, alone)


def _beside(specimen: Specimen, folder: Path, rng: Random, alone: str) -> Iterator[Outcome]:
    cwd = specimen.copy_for(_WRITER, folder)
    writer = start(_WRITER.arguments, cwd)
    ended = 0
    try:
        while not ended:
            if (cwd / RUN / "checkpoints").exists():
                yield _read(rng.choice(_READERS), cwd)
            ended, status = os.waitpid(writer, os.WNOHANG)
    finally:
        if not ended:
            kill(writer)
    if status or _WRITER.result(cwd, _SAID_NOTHING) != alone:
        yield Outcome("failed", "training beside readers", f"status {status}, or another result")
    else:
        yield Outcome("same", "training beside readers")


def _read(command: Command, cwd: Path) -> Outcome:
    for name in command.writes:
        left = cwd / name
        if left.is_file():
            left.unlink()
    arguments = command if command.name != "export" else _export_to(cwd)
    invocation = arguments.run(cwd)
    case = f"{command.name} beside a training"
    if invocation.fault:
        return Outcome("failed", case, invocation.fault)
    if _ADVICE in invocation.text:
        return Outcome("failed", case, f"it advises to delete all checkpoints: {invocation.err}")
    return Outcome("error" if invocation.status else "same", case)


def _export_to(cwd: Path) -> Command:
    number = sum(path.name.startswith("exported") for path in cwd.iterdir())
    return Command("export", ("export", RUN, "-o", f"exported{number}"))
