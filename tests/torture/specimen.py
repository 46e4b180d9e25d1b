"""A finished run and one that was stopped, made once, and the commands that are tried on copies of them."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from corridor_runs import OVERRIDES, RECIPE, TIMED
from torture.invoking import NO_LIMITS, Invocation, Limits, invoke

RUN = "corridor"
_TIMES = {*TIMED, "seconds", "latency", "sha256", "files"}  # the last two are checksums


@dataclass(frozen=True, slots=True)
class Command:
    """A command on the run `corridor` in the folder where it is started.

    Attributes:
        name: what it is called in the counts.
        arguments: its words.
        writes: what it leaves, besides what it says.
        on: what it is tried on: a finished run, a stopped one, which it finishes, or nothing.
        compared: whether what it says is part of its result.
        again: what is added where it is carried out once more, over what it left when it was stopped.
    """

    name: str
    arguments: tuple[str, ...]
    writes: tuple[str, ...] = ()
    on: Literal["finished", "stopped", "nothing"] = "finished"
    compared: bool = True
    again: tuple[str, ...] = ()

    def run(self, cwd: Path, limits: Limits = NO_LIMITS) -> Invocation:
        """Carry it out."""
        return invoke(self.arguments, cwd, limits)

    def run_again(self, cwd: Path, limits: Limits = NO_LIMITS) -> Invocation:
        """Carry it out over what it left."""
        return invoke([*self.arguments, *self.again], cwd, limits)

    def result(self, cwd: Path, invocation: Invocation) -> str:
        """A digest of everything that has to be the same each time."""
        said = [invocation.out] if self.compared else []
        return digest([*said, *(content_of(cwd / name) for name in self.writes)])


_FINISHED = tuple(f"{RUN}/{name}" for name in ("metrics.jsonl", "evaluations", "checkpoints/3/model.safetensors"))
_TRAIN = ("train", str(RECIPE), *OVERRIDES, "training.keep_checkpoints=2", "run.directory='.'", "--quiet")
_GENERATE = ("generate-games", "games", "--train", "40", "--valid-seen", "10", "--valid-unseen", "10")
_EVALUATED = f"{RUN}/evaluations/held_out-3-t0.4-s7.json"
ON_RUNS = (
    Command("resume", ("train", "--resume", RUN, "--trust", "--quiet"), _FINISHED, on="stopped"),
    Command("show", ("train", "--resume", RUN, "--trust"), compared=False),
    Command("eval", ("eval", RUN, "--trust", "--seeds", "7", "--quiet"), (_EVALUATED,)),
    Command("eval -o", ("eval", RUN, "--trust", "-o", "eval.json", "--quiet"), ("eval.json",)),
    Command(
        "rollout", ("rollout", RUN, "--trust", "-o", "steps.jsonl", "--quiet"), ("steps.jsonl",), again=("--force",)
    ),
    Command("advantages", ("advantages", RUN, "-o", "advantages.jsonl"), ("advantages.jsonl",), again=("--force",)),
    Command("inspect", ("inspect", RUN, "-o", "report.html"), ("report.html",)),
    Command("compare", ("compare", f"{RUN}:before", RUN)),
    Command("audit", ("audit", RUN)),
    Command("export", ("export", RUN, "-o", "exported"), ("exported",)),
    Command("play", ("play", RUN, "--trust")),
)
MAKERS = (
    Command("train", _TRAIN, _FINISHED, on="nothing", again=("--continue",)),
    Command("generate-games", _GENERATE, ("games",), on="nothing", compared=False, again=("--force",)),
)
WRITERS = (*(command for command in ON_RUNS if command.writes), *MAKERS)


@dataclass(frozen=True, slots=True)
class Specimen:
    """The runs, and of every command without damage: its result, its duration and the files it left behind.

    `finished` and `stopped` hold the folder `RUN` each.
    """

    finished: Path
    stopped: Path
    results: dict[str, str]
    seconds: dict[str, float]
    left: dict[str, frozenset[str]]

    def copy_for(self, command: Command, folder: Path) -> Path:
        """A fresh working directory for one case; whatever was there is removed."""
        shutil.rmtree(folder, ignore_errors=True)
        if command.on == "nothing":
            folder.mkdir(parents=True)
        else:
            shutil.copytree(self._begins(command), folder)
        return folder

    def files(self, command: Command) -> list[str]:
        """All files of the run, by their names below the working directory; locks and hidden files are no data."""
        folder = self._begins(command)
        found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        return sorted(path.as_posix() for path in found if not path.name.startswith("."))

    def _begins(self, command: Command) -> Path:
        return self.stopped if command.on == "stopped" else self.finished


@cache
def make_specimen(folder: Path) -> Specimen:
    """Train both, and see what each command makes of them. In one process every theme has the same."""
    finished, stopped = folder / "finished", folder / "stopped"
    finished.mkdir(parents=True)
    made = invoke(_TRAIN, finished)
    if made.status:
        raise RuntimeError(f"the run that is to be damaged cannot be made: {made.text}")
    shutil.copytree(finished, stopped)  # as it was when update 2 was done: what came later is taken away
    for name in ("summary.json", "evaluations/after.json", "evaluations/update-3.json", "rollouts/00003.parquet"):
        (stopped / RUN / name).unlink(missing_ok=True)
    shutil.rmtree(stopped / RUN / "checkpoints" / "3")
    specimen = Specimen(finished, stopped, {}, {}, {})
    for command in (*ON_RUNS, *MAKERS):
        cwd = specimen.copy_for(command, folder / "whole")
        began = time.monotonic()
        invocation = command.run(cwd)
        if invocation.status:
            raise RuntimeError(f"{command.name} fails where nothing is wrong: {invocation.text}")
        specimen.seconds[command.name] = time.monotonic() - began
        specimen.results[command.name] = command.result(cwd, invocation)
        specimen.left[command.name] = files_below(cwd)
    return specimen


def content_of(path: Path) -> str:
    """What a file, or all files of a folder, hold; times that were measured and locks are left out."""
    if path.is_dir():
        inside = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
        return digest([f"{file.relative_to(path)} {content_of(file)}" for file in inside])
    if not path.exists():
        return "nothing"
    if path.suffix in (".json", ".jsonl"):
        return digest([json.dumps(_untimed(json.loads(line))) for line in _documents(path)])
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digest(texts: list[str]) -> str:
    """One for all."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def files_below(folder: Path) -> frozenset[str]:
    """The names of all files below a folder, hidden ones included, but for locks, which any process may leave."""
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return frozenset(name for name in found if not name.endswith(".lock"))


def _documents(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return text.splitlines() if path.suffix == ".jsonl" else [text]


def _untimed(value: object) -> object:
    if isinstance(value, dict):
        return {key: _untimed(inner) for key, inner in value.items() if key not in _TIMES}
    if isinstance(value, list):
        return [_untimed(inner) for inner in value]
    return value
