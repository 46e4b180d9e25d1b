"""One recipe on both engines, from the same start and for the same number of updates: does verl learn what the built-in
trainer learns? Run it where verl is installed (`make verl-test` makes .venv-verl).

.venv-verl/bin/python benchmarks/engines.py FOLDER -o benchmarks/engines.json          both runs, then the table
.venv/bin/python benchmarks/engines.py --read benchmarks/engines.json --picture docs/images/engines.png
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hgpo.runs.folder import RunDirectory, read_metrics
from hgpo.utils.plot_style import PALETTE, empty_figure, save_figure
from runs import train
from stored_rows import markdown_table

RECIPE = Path(__file__).parents[1] / "recipes" / "quickstart" / "hgpo.toml"
SAME_FOR_BOTH = ("policy.device=cpu", "run.threads=1", "training.recompute_log_probs=true")
ENGINES = {
    "built-in": (),
    "verl": ("verl.gpus_per_node=2", "verl.agent_workers=1", "verl.ray_cpus=16", "--engine", "verl"),
}
BLOCK = 10
SAMPLERS = ("transformers", "vllm")
"""Updates averaged in a row of the table: the success of one update's 128 episodes has a standard error of 4 points."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="where the runs are written; finished ones are kept")
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("-o", "--output", type=Path, help="write the figures as JSON")
    parser.add_argument("--read", type=Path, help="show figures that were written before, run nothing")
    parser.add_argument("--picture", type=Path, help="draw the learning curves (needs matplotlib: hgpo[report])")
    arguments = parser.parse_args()
    if (arguments.folder is None) == (arguments.read is None):
        parser.error("give a FOLDER to run in, or --read a file of figures")
    if arguments.read:
        found = json.loads(arguments.read.read_text())
    else:
        found = measure(arguments.folder.resolve(), arguments.recipe, arguments.updates)
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))
    if arguments.picture:
        draw(found, arguments.picture)


def measure(folder: Path, recipe: Path, updates: int) -> dict[str, Any]:
    """Train with both engines from one start policy, which a run without updates makes."""
    train(folder, "start", recipe, [*SAME_FOR_BOTH, "training.updates=0", "evaluation.games=1"])
    same = [f"policy.model={folder / 'start' / 'start'}", "warm_start.enabled=false", f"training.updates={updates}"]
    runs = {
        engine: figures(train(folder, engine, recipe, [*SAME_FOR_BOTH, *same, *options]))
        for engine, options in ENGINES.items()
    }
    return {"recipe": recipe.parent.name, "updates": updates, "runs": runs}


def figures(run: RunDirectory) -> dict[str, Any]:
    rows = read_metrics(run)
    summary = json.loads(run.summary.read_text())
    kept = ("success", "steps", "entropy", "approximate_kl", "gradient_norm", "seconds_collect", "seconds_update")
    return {
        "before": summary["success_before"],
        "after": summary["success_after"],
        "curve": {key: [round(row[key], 4) for row in rows] for key in kept},
    }


def table(found: dict[str, Any]) -> str:
    """The table of docs/results/engines.md: a label and one cell for each engine."""
    runs = found["runs"].values()

    def percents(label: str, values: Iterable[float]) -> tuple[str, ...]:
        return (label, *(f"{100 * value:.1f} %" for value in values))

    lines = [percents("held-out games, before", (run["before"] for run in runs))]
    for first in range(0, found["updates"], BLOCK):
        last = min(first + BLOCK, found["updates"])
        lines.append(
            percents(f"rollouts of updates {first + 1}–{last}", (mean(run, "success", first, last) for run in runs))
        )
    lines.append(percents("held-out games, after", (run["after"] for run in runs)))
    for key, label in (("seconds_collect", "collecting"), ("seconds_update", "updating")):
        lines.append((f"seconds an update, {label}", *(f"{mean(run, key, 0, found['updates']):.1f}" for run in runs)))
    return markdown_table(["", *found["runs"]], lines)


def samplers_table(found: dict[str, Any]) -> str:
    """A row for each precision and sampler of benchmarks/samplers.py, which loads models; this module does not."""
    lines = []
    for precision, measured in found["precisions"].items():
        for name in sorted(measured.keys() & set(SAMPLERS)):  # stored figures can have a removed sampler
            one, ratio = measured[name], measured[name]["times_transformers"]
            speeds = [f"{one['tokens_per_second']:.0f}", "" if ratio is None else f"{ratio:.2f}"]
            gaps = [f"{one['log_prob_gap'][key]:.1e}" for key in ("mean", "max")]
            lines.append([precision, f"`{name}`", *speeds, f"{one['seconds_start']:.0f}", *gaps])
    heads = ["precision", "sampler", "response tokens/s", "relative speed", "start, s", "gap, mean", "gap, largest"]
    return markdown_table(heads, lines)


def mean(run: dict[str, Any], key: str, first: int, last: int) -> float:
    """Mean of a figure over updates `first` + 1 to `last`."""
    return float(statistics.fmean(run["curve"][key][first:last]))


def draw(found: dict[str, Any], path: Path) -> None:
    """Success of the rollouts of each update, faint, and the mean of eleven updates around it."""
    with empty_figure(7, 3.5) as figure:
        axes = figure.subplots()
        for (engine, run), colour in zip(found["runs"].items(), PALETTE, strict=False):
            success_U = 100 * np.asarray(run["curve"]["success"])
            update_U = np.arange(1, len(success_U) + 1)
            window = np.abs(update_U[:, None] - update_U) <= BLOCK / 2
            axes.plot(update_U, success_U, color=colour, alpha=0.3, linewidth=1)
            axes.plot(update_U, window @ success_U / window.sum(1), color=colour, linewidth=2, label=engine)
        axes.set(xlabel="update", ylabel="success of the rollouts, %", ylim=(0, 100))
        axes.legend()
        save_figure(figure, path, path.suffix)


if __name__ == "__main__":
    main()
