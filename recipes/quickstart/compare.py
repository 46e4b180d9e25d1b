"""GRPO, GiGPO and HGPO from one warm start, on one budget, several seeds each; prints the table of README.md.

    .venv/bin/python recipes/quickstart/compare.py            # needs runs/quickstart/start: run `make quickstart` first

A run that is finished is not run again, an interrupted one is continued. With `--jobs 2` on 2 cores, one thread each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

RECIPE = Path(__file__).with_name("hgpo.toml")
ESTIMATORS = {
    "grpo": ["advantage.estimator=grpo"],
    "gigpo": ["advantage.estimator=gigpo"],
    "hgpo": [],
    "hgpo-verl-agent": ["advantage.options.preset=verl-agent"],
}


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", type=Path, default=Path("runs/quickstart/start"), help="the common warm start")
    parser.add_argument("--estimators", nargs="+", default=["grpo", "gigpo", "hgpo"], choices=list(ESTIMATORS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="training seeds (default: 1 2 3)")
    parser.add_argument("--evaluation-seeds", nargs="+", type=int, default=[123, 456, 789])
    parser.add_argument("--directory", type=Path, default=Path("runs/compare"), help="where the runs go")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side (default: 2)")
    parser.add_argument("overrides", nargs="*", default=[], help="further settings, for all runs")
    arguments = parser.parse_args()
    if not arguments.start.is_dir():
        parser.error(f"{arguments.start} is not there; run `make quickstart` first")
    runs = [(name, seed) for seed in arguments.seeds for name in arguments.estimators]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        summaries = list(pool.map(lambda run: train(*run, arguments), runs))
    print_table(arguments.estimators, runs, summaries)


def train(name: str, seed: int, arguments: argparse.Namespace) -> dict[str, float]:
    """One run in a process of its own, continued if it is there; returns its summary."""
    settings = [
        f"run.name={name}-{seed}",
        f"run.directory={str(arguments.directory)!r}",
        f"run.seed={seed}",
        "run.threads=1",
        f"policy.model={str(arguments.start)!r}",
        "warm_start.enabled=false",
        f"evaluation.seeds={arguments.evaluation_seeds}",
        "rollout.store_every=0",
        *ESTIMATORS[name],
        *arguments.overrides,
    ]
    command = [sys.executable, "-m", "hgpo.cli", "train", str(RECIPE), *settings, "--continue", "--quiet"]
    subprocess.run(command, check=True)
    summary: dict[str, float] = json.loads((arguments.directory / f"{name}-{seed}" / "summary.json").read_text())
    print(f"{name} seed {seed}: {summary['success_before']:.3f} -> {summary['success_after']:.3f}", flush=True)
    return summary


def print_table(estimators: list[str], runs: list[tuple[str, int]], summaries: list[dict[str, float]]) -> None:
    """Mean and standard deviation over training seeds, as Markdown."""
    print("\n| estimator | before | after, per training seed | mean ± sd | gain |\n|---|---|---|---|---|")
    for name in estimators:
        mine = [summary for (other, _), summary in zip(runs, summaries, strict=True) if other == name]
        after = [100 * summary["success_after"] for summary in mine]
        before = 100 * mine[0]["success_before"]
        mean = statistics.mean(after)
        deviation = statistics.stdev(after) if len(after) > 1 else 0.0
        each = ", ".join(f"{value:.1f}" for value in after)
        print(f"| {name} | {before:.1f} | {each} | {mean:.1f} ± {deviation:.1f} | {mean - before:+.1f} |")


if __name__ == "__main__":
    main()
