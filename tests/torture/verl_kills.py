"""SIGKILL at random moments of a training on verl, everything it started included: `make torture-verl`.

    python -m torture.verl_kills [--kills N] [--seed S]

What was killed is continued until it comes to its end. Then there is a row of metrics for every update, the evaluations
and the checkpoints are whole, nothing half written is left, and no process of it lives on. Numbers are not compared:
episodes reach verl's trainer in the order in which they end.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from hgpo.runs.checkpoints import newest_complete
from hgpo.runs.folder import RunDirectory, read_metrics
from hgpo.runs.panel import stored_evaluation

HGPO = [sys.executable, "-W", "ignore", "-m", "hgpo.cli"]
RECIPE = Path(__file__).parents[1] / "corridor.toml"
UPDATES = 3
LONGEST = 120.0  # seconds after which a process is killed at the latest
SETTINGS = (
    *("policy.device=cpu", "verl.ray_cpus=16", "verl.agent_workers=1", "verl.environment_workers=2"),
    *(f"training.updates={UPDATES}", "training.checkpoint_every=1", "training.recompute_log_probs=true"),
)


def main() -> int:
    """Kill so many trainings; the status is 1 if one did not come to its end."""
    parser = argparse.ArgumentParser(prog="python -m torture.verl_kills", description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=6, help="how many in all (default: 6)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    print(f"seed {arguments.seed}", flush=True)
    kills, problems = 0, []
    with tempfile.TemporaryDirectory(prefix="torture-verl-") as scratch:
        while kills < arguments.kills:
            run = RunDirectory(Path(scratch, f"after{kills}"))
            moments, problem = killed_until_done(run, rng, arguments.kills - kills)
            kills += len(moments)
            said = ", ".join(f"{moment:.0f}" for moment in moments) or "never"
            print(f"killed after {said} s: {problem or 'whole'}", flush=True)
            problems += [problem] if problem else []
    print(f"{kills} kills, {len(problems)} failed")
    return int(bool(problems))


def killed_until_done(run: RunDirectory, rng: random.Random, most: int) -> tuple[list[float], str]:
    """When it was killed, and what is wrong in the end."""
    moments: list[float] = []
    log = run.path.with_suffix(".log")
    while True:
        words = ["--resume", run.path, "--trust"] if run.config.exists() else _begin(run)
        last = len(moments) >= min(most, 3)
        with log.open("a") as output:
            process = subprocess.Popen(
                [*HGPO, "train", *map(str, words)], stdout=output, stderr=subprocess.STDOUT, cwd=RECIPE.parent
            )
        began, moment = time.monotonic(), LONGEST * rng.random() if not last else 20 * LONGEST
        status = _wait_or_kill(process, moment)
        if status is not None:
            return moments, _what_is_wrong(run, status, log)
        moments.append(time.monotonic() - began)


def _begin(run: RunDirectory) -> list[object]:
    return [
        RECIPE,
        f"run.directory={str(run.path.parent)!r}",
        f"run.name={run.path.name}",
        "--engine",
        "verl",
        *SETTINGS,
    ]


def _wait_or_kill(process: subprocess.Popen[bytes], moment: float) -> int | None:
    """The status, or None where it was killed with all that it had started."""
    try:
        return process.wait(moment)
    except subprocess.TimeoutExpired:
        root = psutil.Process(process.pid)
        for one in [root, *root.children(recursive=True)]:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                continue
        process.wait()
        return None


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
    left = [path for path in run.path.rglob("*") if path.name.endswith((".partial", ".replaced", ".deleted"))]
    alive = [
        one.pid for one in psutil.process_iter(["cmdline"]) if str(run.path) in " ".join(one.info["cmdline"] or [])
    ]
    return f"left behind: {left}, {alive}" if left or alive else ""


if __name__ == "__main__":
    sys.exit(main())
