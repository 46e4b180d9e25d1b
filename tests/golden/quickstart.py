"""Five updates of the quickstart with a fixed seed, small enough for a test.

The run is recipes/quickstart/hgpo.toml with `OVERRIDES`. It goes through all stages: demonstrations, warm start,
evaluation, rollouts, HGPO, updates of several mini-batches with a clipped ratio, checkpoint, evaluation.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

FILE = Path(__file__).parent / "data" / "quickstart.json"
REPOSITORY = Path(__file__).parents[2]
RECIPE = REPOSITORY / "recipes" / "quickstart" / "hgpo.toml"

OVERRIDES = (
    "run.name=golden",
    "run.seed=7",
    "run.threads=1",  # sums over tensors are rounded differently with another number of threads
    "policy.device=cpu",
    "training.updates=5",
    "training.warmup_updates=0",
    "rollout.state=observation",
    "training.checkpoint_every=5",
    "training.mini_batch_size=16",  # several steps of the optimiser an update
    # small rooms and one type of task: a policy that has imitated for seconds wins some games and loses others
    'environment.options.task_types=["pick_and_place_simple"]',
    "environment.options.size={receptacles=[3,3],objects=[1,1],copies=1}",
    "environment.options.train_games=200",
    "environment.options.valid_seen_games=8",
    "environment.options.valid_unseen_games=8",
    "environment.max_steps=8",
    "rollout.tasks_per_update=4",
    "rollout.group_size=4",
    # exactly 100 supervised updates, whatever the success
    "warm_start.demonstrations=150",
    "warm_start.probe_games=8",
    "warm_start.evaluate_every=100",
    "warm_start.max_updates=100",
    "warm_start.target_low=0",
    "warm_start.target_high=1",
    "warm_start.learning_rate=5e-3",
    "evaluation.games=8",
)

MEASURED = ("tokens_per_second", "peak_memory_gib")
"""Keys of a metrics row that differ from run to run, beside those that begin with "seconds"."""


def train(folder: Path) -> Path:
    """Train; return the folder of the run.

    One thread also for libraries that do not read `run.threads` (OpenMP, BLAS).
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "hgpo", "train", str(RECIPE), "--quiet", *OVERRIDES, f"run.directory={folder}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "golden"


def results(run: Path) -> dict[str, Any]:
    """What is compared: rows of metrics.jsonl without measured keys, the summary's success, digests of the weights."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((run / "summary.json").read_text())
    weights = load_file(run / "checkpoints" / "5" / "model.safetensors")
    return {
        "rows": [{key: value for key, value in row.items() if not _is_measured(key)} for row in rows],
        "success_before": summary["success_before"],
        "success_after": summary["success_after"],
        "weights": {
            name: {
                "shape": list(weights[name].shape),
                "sha256": hashlib.sha256(weights[name].tobytes()).hexdigest(),
                "first": float(weights[name].flat[0]),
            }
            for name in sorted(weights)
        },
    }


def machine() -> dict[str, str]:
    """What determines rounding of tensor operations: CPU, vector instructions, versions of torch and numpy."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else ""
    facts = dict(re.findall(r"^(.+?)\s*: (.*)$", text.partition("\n\n")[0], re.MULTILINE))
    keys = ("vendor_id", "cpu family", "model", "model name")
    flags = [flag for flag in facts.get("flags", "").split() if flag.startswith(("avx", "fma", "amx", "sse4"))]
    return {
        **{key: facts.get(key, platform.machine()) for key in keys},
        "vector instructions": " ".join(sorted(flags)),
        "torch": version("torch"),
        "numpy": version("numpy"),
    }


def write(folder: Path) -> None:
    """Train and write the record."""
    FILE.write_text(json.dumps({"machine": machine(), **results(train(folder))}, indent=1) + "\n")


def _is_measured(key: str) -> bool:
    return key in MEASURED or key.startswith("seconds")
