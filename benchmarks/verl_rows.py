"""Where the time of a row goes on verl: an update of the quickstart on both engines, and each process's share.

.venv-verl/bin/python benchmarks/verl_rows.py FOLDER -o benchmarks/verl_rows.json
.venv-verl/bin/python benchmarks/verl_rows.py FOLDER --before OTHER -o benchmarks/verl_rows.json
.venv/bin/python benchmarks/verl_rows.py --read benchmarks/verl_rows.json --page

OTHER is another checkout, such as one of an earlier commit, whose trainer is measured in the same run. `--page` puts
the table into docs/scaling.md.

A row is a step of an episode. All runs begin with the same start and play tasks of the same order; verl has two
training processes without a GPU. "Beyond the model" is what verl's collecting and updating take more than the built-in
trainer's on one thread, which are little but the model. Seconds are those of `metrics.jsonl`; the CPU's are what the
operating system counts for each process, from the end of the first update to that of the last. Run it where nothing
else runs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from engines import ENGINES, RECIPE, SAME_FOR_BOTH
from hgpo.runs.folder import RunDirectory, read_metrics
from runs import train

PHASES = {"seconds_collect": "collecting", "seconds_advantages": "advantages", "seconds_update": "updating"}
KINDS = {
    "WorkerDict": "ranks: forward and backward passes, FSDP2",
    "TransformersServer": "rollout servers: sampling",
    "AgentLoopWorker": "agent worker: prompts, tokens, requests, the queue",
    "environment_worker": "environment workers",
    "GlobalRequestLoadBalancer": "verl's load balancer",
    "TransferQueueController": "TransferQueue",
    "SimpleStorageUnit": "TransferQueue",
    "TaskRunner": "trainer: advantages, batches, files",
    "ray": "Ray's own",
}
"""What stands in a process's command line -> what it does; the first that is found counts."""
_EVERY_SECONDS = 0.1
BUILT_IN, VERL, BEFORE = "built-in", "verl", "verl, before"
PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
BEGIN, END = "<!-- verl rows: begin -->", "<!-- verl rows: end -->"


@dataclass(slots=True)
class Watched:
    """CPU seconds of a run's processes, by kind, when its first update ended and when its newest did."""

    first: Counter[str] = field(default_factory=Counter)
    last: Counter[str] = field(default_factory=Counter)


def main() -> None:
    """Read the command line, measure or read, and show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="where the runs are written; finished ones are kept")
    parser.add_argument("--updates", type=int, default=6, help="the first of them is not counted (default: 6)")
    parser.add_argument("-o", "--output", type=Path, help="write the figures as JSON")
    parser.add_argument("--before", type=Path, help="another checkout, whose verl engine is measured, too")
    parser.add_argument("--read", type=Path, help="show figures that were written before, run nothing")
    parser.add_argument("--page", action="store_true", help="put the table into docs/scaling.md")
    arguments = parser.parse_args()
    if (arguments.folder is None) == (arguments.read is None):
        parser.error("give a FOLDER to run in, or --read a file of figures")
    if arguments.updates < 2:
        parser.error("--updates: the first is not counted, so there must be a second")
    if arguments.read:
        found = json.loads(arguments.read.read_text())
    else:
        found = measure(arguments.folder, arguments.updates, arguments.before)
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    if arguments.page:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    show(found, Console())


def measure(folder: Path, updates: int, before: Path | None) -> dict[str, Any]:
    """The runs, one after the other; `before` is another checkout."""
    folder = folder.resolve()
    common = [*SAME_FOR_BOTH, "evaluation.games=1", "training.skip_zero_advantage=false"]
    train(folder, "start", RECIPE, [*common, "training.updates=0"])
    same = [f"policy.model={folder / 'start' / 'start'}", "warm_start.enabled=false", f"training.updates={updates}"]
    found: dict[str, Any] = {"updates": updates}
    for name, options, source in runs_of(before):
        with watching(RunDirectory(folder / folder_of(name))) as watched, imported_from(source):
            run = train(folder, folder_of(name), RECIPE, [*common, *same, *options])
        found[name] = figures(run, watched)
    return found


def runs_of(before: Path | None) -> list[tuple[str, Sequence[str], Path | None]]:
    """What is run, with which options, and from which checkout, if not from this one."""
    own: list[tuple[str, Sequence[str], Path | None]] = [(name, options, None) for name, options in ENGINES.items()]
    return [*own, (BEFORE, ENGINES[VERL], before)] if before else own


def folder_of(name: str) -> str:
    """A run's folder."""
    return name.replace(", ", "-")


@contextmanager
def imported_from(checkout: Path | None) -> Iterator[None]:
    """In the block, processes that are started import the project from this checkout."""
    if checkout is None:
        yield
        return
    source, known = checkout.resolve() / "src", os.environ.get("PYTHONPATH")
    if not (source / "hgpo").is_dir():
        raise SystemExit(f"{checkout} is no checkout of this project: it has no src/hgpo")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(source), *([known] if known else [])])
    try:
        yield
    finally:
        if known is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = known


def figures(run: RunDirectory, watched: Watched) -> dict[str, Any]:
    """Milliseconds a row, of the updates after the first: by phase, and of the CPU by kind of process."""
    rows = read_metrics(run)[1:]
    steps = sum(row["steps"] for row in rows)
    by_phase = {name: 1000 * sum(row[key] for row in rows) / steps for key, name in PHASES.items()}
    by_kind = {kind: 1000 * seconds / steps for kind, seconds in (watched.last - watched.first).items()}
    return {"rows_per_update": steps / len(rows), "milliseconds": by_phase, "cpu_milliseconds": by_kind}


@contextmanager
def watching(run: RunDirectory) -> Iterator[Watched]:
    """In the block, whatever this process starts is watched; the figures are there after it."""
    watched, over = Watched(), threading.Event()

    def watch() -> None:
        seen = 0
        while not over.wait(_EVERY_SECONDS):
            count = run.metrics.read_bytes().count(b"\n") if run.metrics.exists() else 0
            if count > seen:
                seen, watched.last = count, cpu_seconds()
                watched.first = watched.last if seen == 1 else watched.first

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield watched
    finally:
        over.set()
        thread.join()


def cpu_seconds() -> Counter[str]:
    """Of every process that descends from this one."""
    import psutil

    found: Counter[str] = Counter()
    for process in psutil.Process().children(recursive=True):
        try:
            times, words = process.cpu_times(), " ".join(process.cmdline())
        except psutil.NoSuchProcess:
            continue
        found[kind_of(words)] += times.user + times.system
    return found


def kind_of(command: str) -> str:
    """What a process does, by its command line. Example: `kind_of("ray::TaskRunnerV1.run")`."""
    if re.search(r"hgpo\.cli train", command):
        return "the command"
    return next((does for name, does in KINDS.items() if name in command), "other")


def columns(found: dict[str, Any]) -> list[str]:
    """What was run."""
    return [name for name in (BUILT_IN, BEFORE, VERL) if name in found]


def beyond_the_model(found: dict[str, Any], name: str) -> float:
    """Milliseconds a row of collecting and updating, less the built-in trainer's."""
    own, model = (found[which]["milliseconds"] for which in (name, BUILT_IN))
    return sum(own[phase] - model[phase] for phase in ("collecting", "updating"))


def table(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """Rows of the table: a label and one cell for each run."""
    names = columns(found)
    runs = [found[name] for name in names]
    rows = [(name, *(f"{one['milliseconds'][name]:.2f}" for one in runs)) for name in PHASES.values()]
    beyond = ("" if name == BUILT_IN else f"{beyond_the_model(found, name):.2f}" for name in names)
    rows.append(("collecting and updating, beyond the model", *beyond))
    kinds = sorted({kind for one in runs for kind in one["cpu_milliseconds"]})
    rows += [(f"CPU: {kind}", *(f"{one['cpu_milliseconds'].get(kind, 0.0):.2f}" for one in runs)) for kind in kinds]
    return rows


def title(found: dict[str, Any]) -> str:
    """What was measured."""
    rows = ", ".join(f"{found[name]['rows_per_update']:,.0f}" for name in columns(found))
    return f"Milliseconds a row of the quickstart, {found['updates'] - 1} updates of {rows} rows"


def with_table(page: str, found: dict[str, Any]) -> str:
    """The page with the table between its marks."""
    lines = [("", *columns(found)), ("---",) * (1 + len(columns(found))), *table(found)]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{title(found)}:\n\n{text}\n\n{END}{rest.partition(END)[2]}"


def show(found: dict[str, Any], console: Console) -> None:
    """The table, in the terminal."""
    shown = Table("", *columns(found), title=title(found), title_justify="left")
    for row in table(found):
        shown.add_row(*row)
    console.print(shown)


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"{time.monotonic() - began:.0f} s")
