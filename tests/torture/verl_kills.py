"""SIGKILL at random moments of a training on verl, everything it started included: `make torture-verl`.

    python -m torture.verl_kills [--kills N] [--seed S] [--length SECONDS]

A first run is left alone: how long it takes says when the others are killed, so that a slow or busy machine has kills
in every stage, too. Since starting takes most of that time, every second kill waits for a row of metrics and comes a
moment after it: while a checkpoint is written, or in the next update. What was killed is continued, up to three times
killed again, until it comes to its end. Then there is a row of metrics for every update, the evaluations and the
checkpoints are whole, nothing half written is left, and no process of it lives on. Numbers are not compared: episodes
reach verl's trainer in the order in which they end.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil

from hgpo.evaluation.result_files import stored_evaluation
from hgpo.runs.checkpoints import newest_complete
from hgpo.runs.folder import RunDirectory, read_metrics

HGPO = [sys.executable, "-W", "ignore", "-m", "hgpo"]
RECIPE = Path(__file__).parents[1] / "corridor.toml"
UPDATES = 3
KILLS_A_RUN = 3
LONGEST = 3600.0  # seconds of a run that is left alone; more is a hang, on the slowest machine
TOO_SLOW = "it was too slow"
SLOW_STARTS = 5
AFTER_A_ROW = 4.0  # seconds within which a kill follows a row of metrics
GRACE = 60.0  # seconds in which what a run had started has to be gone
SETTINGS = (
    *("policy.device=cpu", "verl.ray_cpus=16", "verl.agent_workers=1", "verl.environment_workers=2"),
    *(f"training.updates={UPDATES}", "training.checkpoint_every=1", "training.recompute_log_probs=true"),
)


@dataclass(frozen=True, slots=True)
class Moment:
    """When to kill: so many seconds after the start or, with `after_row`, after the next row of metrics."""

    seconds: float
    after_row: bool = False


@dataclass(frozen=True, slots=True)
class Kill:
    """After how many seconds a process was killed, and what the run had come to by then."""

    seconds: float
    stage: str


def main() -> int:
    """Kill so many trainings; the status is 1 if one did not come to its end."""
    parser = argparse.ArgumentParser(prog="python -m torture.verl_kills", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=6, help="how many in all (default: 6)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--length", type=float, help="seconds that a run takes, if that is known (default: measured)")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="torture-verl-") as scratch:
        kills: list[Kill] = []
        problems: list[str] = []
        length = arguments.length
        if length is None:
            began = time.monotonic()
            _, problem = killed_until_done(RunDirectory(Path(scratch, "alone")), rng, 0, LONGEST)
            length = time.monotonic() - began
            print(f"left alone for {length:.0f} s: {problem or 'whole'}", flush=True)
            problems += [problem] if problem else []
        while len(kills) < arguments.kills:
            run = RunDirectory(Path(scratch, f"after{len(kills)}"))
            made, problem = killed_until_done(run, rng, min(KILLS_A_RUN, arguments.kills - len(kills)), length)
            kills += made
            said = ", ".join(f"{kill.seconds:.0f} s ({kill.stage})" for kill in made) or "never"
            print(f"killed after {said}: {problem or 'whole'}", flush=True)
            problems += [problem] if problem else []
    print("\n".join(f"{count:>4} killed {stage}" for stage, count in sorted(Counter(k.stage for k in kills).items())))
    print(f"{len(kills)} kills, {len(problems)} failed")
    return int(bool(problems))


def killed_until_done(run: RunDirectory, rng: random.Random, most: int, length: float) -> tuple[list[Kill], str]:
    """The kills, at most so many, each within `length` seconds of a start; and what is wrong in the end."""
    kills: list[Kill] = []
    slow_starts = 0
    log = run.path.with_suffix(".log")
    while True:
        words = ["--resume", run.path, "--trust"] if run.config.exists() else _begin(run)
        with log.open("a") as output:
            process = subprocess.Popen(
                [*HGPO, "train", *map(str, words)], stdout=output, stderr=subprocess.STDOUT, cwd=RECIPE.parent
            )
        began, tree = time.monotonic(), psutil.Process(process.pid)
        moment = _moment(rng, len(kills), length) if len(kills) < most else Moment(LONGEST)
        status = _wait_or_kill(process, tree, run, moment)
        if status and _said_last(log, TOO_SLOW) and slow_starts < SLOW_STARTS:
            slow_starts += 1  # of the machine, and no fault of the run: it is started once more
            continue
        if status is not None:
            return kills, _what_is_wrong(run, status, log)
        if len(kills) == most:
            return kills, f"no end after {LONGEST:.0f} s: {log.read_text(errors='replace')[-1500:]}"
        kills.append(Kill(time.monotonic() - began, _stage(run)))


def _said_last(log: Path, words: str) -> bool:
    return words in "".join(log.read_text(errors="replace").splitlines()[-2:])


def _begin(run: RunDirectory) -> list[object]:
    return [
        RECIPE,
        f"run.directory={str(run.path.parent)!r}",
        f"run.name={run.path.name}",
        "--engine",
        "verl",
        *SETTINGS,
    ]


def _moment(rng: random.Random, number: int, length: float) -> Moment:
    """Of a run's kills the first, third, … after a row, the others anywhere."""
    return Moment(AFTER_A_ROW * rng.random(), after_row=True) if number % 2 == 0 else Moment(length * rng.random())


def _rows(run: RunDirectory) -> int:
    return run.metrics.read_bytes().count(b"\n") if run.metrics.exists() else 0


def _wait_or_kill(
    process: subprocess.Popen[bytes], root: psutil.Process, run: RunDirectory, moment: Moment
) -> int | None:
    """The status, or None where it was killed with all that it had started."""
    rows, due = _rows(run), time.monotonic() + LONGEST
    while moment.after_row and _rows(run) <= rows and process.poll() is None and time.monotonic() < due:
        time.sleep(0.02)
    try:
        return process.wait(moment.seconds)
    except subprocess.TimeoutExpired:
        tree = [root, *root.children(recursive=True)]
        for one in tree:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                continue
        process.wait()
        psutil.wait_procs(tree, timeout=GRACE)
        return None


def _stage(run: RunDirectory) -> str:
    """How far a run had come, in words that can be counted."""
    if not run.config.exists():
        return "before there was a run"
    if run.complete:
        return "after its end"
    newest = newest_complete(run.checkpoints)
    rows = _rows(run)
    if newest is None:
        before = stored_evaluation(run, "before") is not None
        return f"with {rows} rows" if rows else "in update 1" if before else "before update 1"
    return f"with checkpoint {newest.name}" + (" and a row more" if rows > int(newest.name) else "")


def _what_is_wrong(run: RunDirectory, status: int, log: Path) -> str:
    if status:
        return f"status {status}: {log.read_text(errors='replace')[-1500:]}"
    if [row["update"] for row in read_metrics(run)] != list(range(1, UPDATES + 1)):
        return f"rows {[row['update'] for row in read_metrics(run)]}"
    if any(stored_evaluation(run, name) is None for name in ("before", "after")):
        return "an evaluation is missing"
    newest = newest_complete(run.checkpoints)
    if newest is None or newest.name != str(UPDATES):
        return f"the newest whole checkpoint is {newest}"
    left = [path for path in run.path.rglob("*") if path.name.endswith((".partial", ".deleted"))]
    alive = _living(run)
    return f"left behind: {left}, {alive}" if left or alive else ""


def _living(run: RunDirectory) -> list[int]:
    """Processes that name the run in their command, once they had time to end."""
    due = time.monotonic() + GRACE
    while True:
        found = [
            one.pid for one in psutil.process_iter(["cmdline"]) if str(run.path) in " ".join(one.info["cmdline"] or [])
        ]
        if not found or time.monotonic() > due:
            return found
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
