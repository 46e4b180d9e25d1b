"""What an update of the built-in trainer costs as the policy grows: tokens a second, memory, and where the time goes.

Every policy is made from scratch, imitates the expert for a moment, so that its responses end and have the right form,
and then trains on household games with the published batch of 16 tasks x 8 rollouts.

.venv/bin/python benchmarks/model_sizes.py FOLDER -o benchmarks/model_sizes.cpu.json
python benchmarks/model_sizes.py FOLDER --device cuda --sizes 1M 25M 100M 350M -o benchmarks/model_sizes.cuda.json
.venv/bin/python benchmarks/model_sizes.py --read benchmarks/model_sizes.*.json
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from hgpo.policies.device import resolve_device
from hgpo.runs.folder import RunDirectory, read_metrics
from runs import train

RECIPE = Path(__file__).parents[1] / "recipes" / "quickstart" / "hgpo.toml"
PHASES = ("collect", "advantages", "update")


@dataclass(frozen=True, slots=True)
class Size:
    """The shape of a tiny policy. Example: `Size(64, 2, 2)`, the quickstart's."""

    hidden_size: int
    layers: int
    attention_heads: int


SIZES = {
    "0.1M": Size(64, 2, 2),
    "1M": Size(192, 2, 3),
    "5M": Size(320, 4, 5),
    "25M": Size(576, 6, 9),
    "100M": Size(832, 11, 13),
    "350M": Size(1024, 26, 16),
    "1.3B": Size(2048, 24, 16),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="where the runs are written; finished ones are kept")
    parser.add_argument("--sizes", nargs="+", default=["0.1M", "1M", "5M"], choices=list(SIZES))
    parser.add_argument("--device", default="auto", help="auto: CUDA where there is one, else the CPU")
    parser.add_argument("--updates", type=int, default=4, help="the first one is not counted (default: 4)")
    parser.add_argument("-o", "--output", type=Path, help="write the figures as JSON")
    parser.add_argument("--read", type=Path, nargs="+", help="show figures that were written before, run nothing")
    parser.add_argument("overrides", nargs="*", default=[], help="further settings of the recipe, for all sizes")
    arguments = parser.parse_intermixed_args()
    if (arguments.folder is None) == (arguments.read is None):
        parser.error("give a FOLDER to run in, or --read files of figures")
    if arguments.updates < 2:
        parser.error("--updates: the first update is not counted, so ask for 2 or more")
    if arguments.read:
        found = [json.loads(path.read_text()) for path in arguments.read]
    else:
        found = [measure(arguments)]
    if arguments.output:
        arguments.output.write_text(json.dumps(found[0], indent=1) + "\n")
    for one in found:
        show(one, Console())


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    folder = arguments.folder.resolve()
    sizes = {}
    for name in arguments.sizes:
        options = [f"policy.device={arguments.device}", *settings(SIZES[name])]
        run = train(folder, name, RECIPE, [*options, f"training.updates={arguments.updates}", *arguments.overrides])
        sizes[name] = figures(run)
    return {
        "device": device_name(arguments.device),
        "torch": torch.__version__,
        "updates": arguments.updates,
        "overrides": arguments.overrides,
        "sizes": sizes,
    }


def settings(size: Size) -> list[str]:
    """100 updates of imitation, whatever they lead to; no more evaluation and storage than a run has to have.

    Learning rates fall with the width, as wider models need; the quickstart's are those of width 64.
    """
    narrower = 64 / size.hidden_size
    return [
        f"policy.tiny.hidden_size={size.hidden_size}",
        f"policy.tiny.layers={size.layers}",
        f"policy.tiny.attention_heads={size.attention_heads}",
        f"warm_start.learning_rate={2e-3 * narrower:g}",
        "warm_start.max_updates=100",
        "warm_start.evaluate_every=100",
        "warm_start.probe_games=16",
        "evaluation.games=16",
        f"training.learning_rate={5e-4 * narrower:g}",
        "training.checkpoint_every=1000",
        "rollout.store_every=0",
    ]


def figures(run: RunDirectory) -> dict[str, float]:
    """Medians over the updates after the first one, which also warms the device up."""
    rows = read_metrics(run)[1:]
    middle = {key: statistics.median(row[key] for row in rows) for key in ("tokens_per_second", "steps", "success")}
    seconds = {phase: statistics.median(row[f"seconds_{phase}"] for row in rows) for phase in PHASES}
    start = json.loads((run.start / "warm_start.json").read_text())
    return {
        "parameters": start["parameters"],
        **{key: round(value, 3) for key, value in middle.items()},
        **{f"seconds_{phase}": round(value, 4) for phase, value in seconds.items()},
        "peak_memory_gib": round(rows[-1]["peak_memory_gib"], 3),
    }


def rows(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """The table of docs/scaling.md."""
    table = []
    for run in found["sizes"].values():
        seconds = sum(run[f"seconds_{phase}"] for phase in PHASES)
        shares = [f"{100 * run[f'seconds_{phase}'] / seconds:.1f} %" for phase in PHASES]
        memory = f"{run['peak_memory_gib']:.2f} GiB"
        parameters = f"{run['parameters'] / 1e6:,.1f} M"
        table.append((parameters, f"{run['tokens_per_second']:,.0f}", memory, f"{seconds:.1f}", *shares))
    return table


def show(found: dict[str, Any], console: Console) -> None:
    table = Table("parameters", "tokens/s", "peak memory", "s an update", *PHASES, title=found["device"])
    for row in rows(found):
        table.add_row(*row)
    console.print(table)


def device_name(name: str) -> str:
    device = resolve_device(name)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()} CPU"


if __name__ == "__main__":
    main()
