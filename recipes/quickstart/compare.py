"""Estimators from one warm start, on one budget, several training seeds each; prints the tables of README.md.

    .venv/bin/python recipes/quickstart/compare.py            # needs runs/quickstart/start: run `make quickstart` first
    .venv/bin/python recipes/quickstart/compare.py --read recipes/quickstart/comparison.json

A run that is finished is not run again, an interrupted one is continued. With `--jobs 2` on 2 cores, one thread each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

RECIPE = Path(__file__).with_name("hgpo.toml")
ESTIMATORS = {
    "grpo": ["advantage.estimator=grpo"],
    "gigpo": ["advantage.estimator=gigpo"],
    "hgpo": [],
    "hgpo-verl-agent": ["advantage.options.preset=verl-agent"],
    "hgpo-pooled": ["advantage.options.weight_type=pooled"],
    "mixed_effects": ["advantage.estimator=mixed_effects"],
    "g2po": ["advantage.estimator=g2po"],
    "graphgpo": ["advantage.estimator=graphgpo"],
    "gigpo-commands": ["advantage.estimator=gigpo", "rollout.state=observation_and_commands"],
    "hgpo-commands": ["rollout.state=observation_and_commands"],
}
# 97.5 % quantiles of Student's t distribution for 1, 2, ... degrees of freedom
_T = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


def main() -> None:
    """Run what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", type=Path, default=Path("runs/quickstart/start"), help="the common warm start")
    parser.add_argument("--estimators", nargs="+", default=["grpo", "gigpo", "hgpo"], choices=list(ESTIMATORS))
    parser.add_argument("--baseline", default="gigpo", help="whom the others are compared with (default: gigpo)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="training seeds (default: 1 2 3)")
    parser.add_argument("--evaluation-seeds", nargs="+", type=int, default=[123, 456, 789])
    parser.add_argument("--directory", type=Path, default=Path("runs/compare"), help="where the runs go")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side (default: 2)")
    parser.add_argument("-o", "--output", type=Path, help="write the figures as JSON")
    parser.add_argument("--read", type=Path, help="show figures that were written before, run nothing")
    parser.add_argument("overrides", nargs="*", default=[], help="further settings, for all runs")
    arguments = parser.parse_args()
    if arguments.read:
        found = json.loads(arguments.read.read_text())
    else:
        if not arguments.start.is_dir():
            parser.error(f"{arguments.start} is not there; run `make quickstart` first")
        found = measure(arguments)
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    print("\n" + "\n".join(success_table(found)))
    if arguments.baseline in found["after"]:
        print("\n" + "\n".join(difference_table(found, arguments.baseline)))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Success before, and after for each estimator in the order of the seeds, in per cent."""
    runs = [(name, seed) for seed in arguments.seeds for name in arguments.estimators]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        summaries = dict(zip(runs, pool.map(lambda run: train(*run, arguments), runs), strict=True))
    return {
        "seeds": arguments.seeds,
        "overrides": arguments.overrides,
        "before": 100 * summaries[runs[0]]["success_before"],
        "after": {
            name: [100 * summaries[name, seed]["success_after"] for seed in arguments.seeds]
            for name in arguments.estimators
        },
    }


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
    command = [sys.executable, "-m", "hgpo.cli.main", "train", str(RECIPE), *settings, "--continue", "--quiet"]
    subprocess.run(command, check=True)
    summary: dict[str, float] = json.loads((arguments.directory / f"{name}-{seed}" / "summary.json").read_text())
    print(f"{name} seed {seed}: {summary['success_before']:.3f} -> {summary['success_after']:.3f}", flush=True)
    return summary


def success_table(found: dict[str, Any]) -> list[str]:
    """Mean and standard deviation over training seeds, as Markdown."""
    lines = ["| estimator | before | after, per training seed | mean ± sd | gain |", "|---|---|---|---|---|"]
    for name, after in found["after"].items():
        mean = statistics.fmean(after)
        deviation = f" ± {statistics.stdev(after):.1f}" if len(after) > 1 else ""
        each = ", ".join(f"{value:.1f}" for value in after)
        gain = mean - found["before"]
        lines.append(f"| {name} | {found['before']:.1f} | {each} | {mean:.1f}{deviation} | {gain:+.1f} |")
    return lines


def difference_table(found: dict[str, Any], baseline: str) -> list[str]:
    """What each estimator gains over `baseline` with the same training seed, as Markdown."""
    lines = [f"| estimator − {baseline} | difference (95 % interval) | ahead in |", "|---|---|---|"]
    for name, after in found["after"].items():
        if name != baseline:
            differences = [mine - other for mine, other in zip(after, found["after"][baseline], strict=True)]
            ahead = sum(difference > 0 for difference in differences)
            lines.append(f"| {name} | {interval(differences)} | {ahead} of {len(differences)} seeds |")
    return lines


def interval(values: Sequence[float]) -> str:
    """Mean of up to 16 values with the 95 % interval of Student's t; seeds are what is drawn anew in another trial."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:+.1f}"
    half = _T[len(values) - 2] * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})"


if __name__ == "__main__":
    main()
