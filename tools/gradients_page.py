# ruff: noqa: E501 -- texts of pages
"""The page docs/results/gradients.md: batch gradients compared with the true policy gradient."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stored_rows import markdown_table

POOLS = {
    "report-start": "Generated household tasks, start of the quickstart",
    "report-100": "Generated household tasks, after 100 of its updates",
    "report-200": "Generated household tasks, after 200 updates",
    "alfworld-start": "ALFWorld's training games, start of alfworld-tiny",
    "alfworld-seen": "ALFWorld's valid_seen games, the same policy",
    "webshop-start": "Generated shops, start of webshop-tiny",
}
"""Name of a pool of rollouts -> title of its section."""
STEP_POOLS = {
    "quickstart-start": "Generated household tasks, start of another quickstart (`run.seed=0`)",
    "webshop-start": POOLS["webshop-start"],
}
"""The same for pools of which single steps were measured."""
FEWEST_STEPS = 64
"""Fewest steps of a table of single steps: with fewer, a squared bias can have a negative estimate."""
KEYS = {
    "observation": "text",
    "observation_and_commands": "text + commands",
    "published_g2po": "G2PO's",
    "simulator": "exact state",
}
SHOWN = (
    "nested_td",
    "nested_td, gamma .9",
    "proposal 1",
    "certainty-equivalent TD",
    "graphgpo",
    "g2po",
    "gagpo, lambda .5",
    "atd",
    "hgpo paper",
    "hgpo paper, no std",
    "hgpo level 0, no std",
    "gigpo",
    "grpo",
)
"""Estimators in the tables of all figures and of numbers of rollouts."""
ROLLOUTS = 8
HGPO = "hgpo paper / observation"
MOST = ("published_g2po", "observation")
"""The state key of the tables with one key is the first of these that the pool has."""
Row = Mapping[str, Any]


def gradients_page(path: Path, steps: Path, updates: Path) -> str:
    """The page, from the stored rows of batch gradients, of single steps, and of single updates."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    parts = [INTRODUCTION]
    for pool, title in POOLS.items():
        here = [row for row in rows if row["pool"] == pool]
        if here:
            key = next(key for key in MOST if any(row["key"] == key for row in here))
            of_key = [row for row in here if row["key"] == key and row["estimator"] in SHOWN]
            parts += [f"## {title}\n", _by_key(here, key), _by_figure(of_key, key), _by_rollouts(of_key, key)]
    parts += [SINGLE_STEPS, *_step_tables(json.loads(steps.read_text(encoding="utf-8")))]
    parts += [ONE_UPDATE, *_update_tables(json.loads(updates.read_text(encoding="utf-8")))]
    return "\n".join([*parts, COMMANDS])


def _step_tables(rows: Sequence[Row]) -> list[str]:
    """The errors of advantages of single steps: a table for each pool, state key and set of steps."""
    figures = ("bias", "squared_bias", "variance", "squared_error", "correlation")
    parts = []
    for pool, key, of in dict.fromkeys((row["pool"], row["key"], row["of"]) for row in rows):
        here = [row for row in rows if (row["pool"], row["key"], row["of"]) == (pool, key, of)]
        if here[0]["steps"] < FEWEST_STEPS:
            level_2 = next(row for row in here if row["estimate"] == "level 2")
            parts.append(
                f'{STEP_POOLS[pool]}, key "{KEYS[key]}", {of} (n = {here[0]["steps"]}): squared bias of level 2 − level 0 {_bias_lead(level_2)}.\n'
            )
            continue
        lines = ([row["estimate"], *(f"{row[figure]:.2f}" for figure in figures), _bias_lead(row)] for row in here)
        parts.append(
            f'{STEP_POOLS[pool]}, key "{KEYS[key]}", {of} (n = {here[0]["steps"]}, mean squared advantage {here[0]["signal"]:.2f}):\n\n'
            + markdown_table(
                ["estimate", *(figure.replace("_", " ") for figure in figures), "squared bias − level 0"], lines
            )
        )
    return parts


def _update_tables(rows: Sequence[Row]) -> list[str]:
    """What one update changes: a table for each pool, whose first row the others are compared with."""
    parts = []
    for pool in dict.fromkeys(row["pool"] for row in rows):
        here = [row for row in rows if row["pool"] == pool]
        sets = ("same tasks", "other tasks")
        lines = (
            [
                row["estimator"],
                KEYS[row["key"]],
                *(f"{row[of]:+.2f}" for of in sets),
                *(row[f"{of}, difference"] for of in sets),
            ]
            for row in here
        )
        heads = ["estimator", "state key", *sets, *(f"{of}, − first row" for of in sets)]
        parts.append(f"{STEP_POOLS[pool]}, {here[0]['batches']} batches:\n\n{markdown_table(heads, lines)}")
    return parts


def _bias_lead(row: Row) -> str:
    return "" if row["estimate"] == "level 0" else _interval(row["squared bias minus level 0"], signed=True)


def _by_key(rows: Sequence[Row], most: str) -> str:
    """The table of the cosine with the true gradient of the same tasks, by state key."""
    found = {(row["estimator"], row["key"]): row for row in rows if row["rollouts"] == ROLLOUTS}
    keys = [key for key in KEYS if any(key == of for _, of in found)]
    names = sorted({name for name, _ in found}, key=lambda name: (-_value(found[name, most], "same tasks"), name))
    lines = []
    for name in names:
        cells = [f"{_value(found[name, key], 'same tasks'):.2f}" for key in keys]
        lead = found[name, most]["figures"]["same tasks"].get(HGPO)
        lines.append([name, *cells, _interval(lead, signed=True)])
    return (
        f"Cosine with the true gradient of the same tasks by state key, {ROLLOUTS} rollouts of each of 16 tasks. Last column: cosine with the key "
        f'"{KEYS[most]}" minus "hgpo paper" with the text:\n\n'
        + markdown_table(["estimator", *(KEYS[key] for key in keys), f"{KEYS[most]} − hgpo paper, text"], lines)
    )


def _by_figure(rows: Sequence[Row], key: str) -> str:
    """The table of all figures with one state key."""
    figures = ("same tasks", "other tasks", "direction", "noise")
    chosen = [row for row in rows if row["rollouts"] == ROLLOUTS]
    chosen.sort(key=lambda row: (-_value(row, "same tasks"), row["estimator"]))
    lines = ([row["estimator"], *(_interval(row["figures"][figure][""]) for figure in figures)] for row in chosen)
    return f'All figures with the key "{KEYS[key]}", with 95 % CI:\n\n{markdown_table(["estimator", *figures], lines)}'


def _by_rollouts(rows: Sequence[Row], key: str) -> str:
    """The table of the cosine by the number of rollouts; empty if there is one number."""
    sizes = sorted({row["rollouts"] for row in rows})
    if len(sizes) == 1:
        return ""
    found = {(row["estimator"], row["rollouts"]): row for row in rows}
    names = sorted({name for name, _ in found}, key=lambda name: (-_value(found[name, ROLLOUTS], "same tasks"), name))
    lines = ([name, *(f"{_value(found[name, size], 'same tasks'):.2f}" for size in sizes)] for name in names)
    return (
        f'Cosine with the true gradient of the same tasks by the number of rollouts of each task, with the key "{KEYS[key]}":\n\n'
        + markdown_table(["estimator", *map(str, sizes)], lines)
    )


def _value(row: Row, figure: str) -> float:
    interval = row["figures"][figure][""]
    return float("-inf") if interval is None else float(interval[0])


def _interval(numbers: Sequence[float] | None, *, signed: bool = False) -> str:
    if numbers is None:
        return "–"
    value, low, high = (f"{number:+.2f}" if signed else f"{number:.2f}" for number in numbers)
    return f"{value} ({low} to {high})"


INTRODUCTION = """# Batch gradients compared with the true policy gradient

This page shows how close the batch gradient of an estimator is to the gradient of the probability to win, for tasks and a policy of this project.

**Measurement.** One policy played 128 tasks, 64 rollouts of each. The gradient of every step's log-prob is stored as a sketch of 8,192 numbers;
inner products of sketches equal inner products of gradients up to about 1 % of the product of the lengths. The true gradient of a task is estimated without bias
from 32 rollouts, with the mean win of the other 31 as baseline, and compared with batches of the task's other 32 rollouts. A batch has 16 tasks. CI: 95 %, from
1,000 resampled sets of tasks. Cosines are ratios of means: the mean inner product over batches, divided by the root of the product of the mean squared lengths; so
batches with long gradients count more.

- **same tasks**: cosine of a batch gradient with the true gradient of the batch's tasks, corrected for the noise of the true gradient's estimate.
- **other tasks**: cosine of a batch gradient with the true gradient over all tasks, estimated from other tasks than the batch's. "–": too noisy (a
  squared length has a negative estimate). Its CI leaves out resampled sets with such an estimate.
- **direction**: cosine of the mean batch gradient with the true gradient of the same tasks; below 1 is bias.
- **noise**: variance of a batch gradient divided by its squared mean.

States are equal if their *state key* is equal: the observation's text, the text and the admissible commands, G2PO's published key, or the game's exact state.

Limits: generated household tasks with three checkpoints (117,000 parameters) of one training, ALFWorld (379,000 parameters) and shops (126,000) with one start policy
each; no clipping and no AdamW. A language model (SmolLM2-135M, 8 ALFWorld tasks) had too few rollouts for a table ([log](../log.md)). Estimators that estimate variances from a whole batch (NestedTD, "pooled", `mixed_effects`, "atd") estimate them from 8 tasks with 64 rollouts,
which form more groups of the stated size than an update of 16 tasks.
Intervals are not corrected for the number of comparisons. They are somewhat narrow where few tasks have most of the squared length: simulated with 77 and 83 % of it
in five of 16 tasks, 93 and 88 of 100 intervals of "same tasks" contained the true value ([log](../log.md)). A good direction does not imply a good training ([trained policies](trained-policies.md)).

Names of estimators: "hgpo paper" is `hgpo` with its defaults; "no std" is `mode="mean_norm"`; "level 0" is `history_length=0`; "atd" is `benchmarks/atd.py`,
"gagpo" the same with `trust=0`. "certainty-equivalent TD" is r + γV(s') - V(s) for a step from state s to s' with reward r; V(s) is the mean of r + γV(s') over the
steps of a task from s; with "own ends", cut episodes end. "shrunk TD" multiplies it by m/(m + 1), with m the number of rollouts that act in
s'; "+ episode" adds the advantage of whole trajectories. "proposal 1" (a trial) adds GraphGPO's advantage to shrunk TD, both divided by their root mean square; "proposal 2"
divides temporal differences by their spread first. [NestedTD](../algorithms/nested_td.md) was developed from these on other tasks: "no power", "no frequencies",
"no history", "no shrinkage" and "cut is lost" each omit one of its parts.
"""

SINGLE_STEPS = """## Single steps

The HGPO paper says that a comparison of steps with different histories biases advantages. Here the advantage Q − V of a step is measured by 32 rollouts from its state
and history before its action (V), and 32 after it (Q). An estimator's advantage of the step is computed up to eight times, each time with another future of the step and
seven other rollouts of its task. Units: the return, discounted with .95; a win is 10.

- **bias**: mean of expected estimate minus advantage. **squared bias**: mean of its square over steps, without the noise of both.
- **variance**: of one estimate. **squared error**: squared bias + variance. **correlation**: of the expected estimate with the advantage, over steps; deviations are
  from 0, not from the means.
- **squared bias − level 0**: difference to the row "level 0", with a 95 % CI from 1,000 resampled sets of tasks, not corrected for the number of rows.

"level k" is HGPO's advantage at that level, without division by the std; "full history" compares steps with an equal whole history; "leave one out" leaves the step's own return
out of the mean. A step that is alone in its group has the estimate 0, which is a bias, too; so a second table has only steps whose full history another rollout has in
every batch. With fewer than 64 steps, only level 2 is stated.
"""

ONE_UPDATE = """## One update

The trainer's own update (AdamW, clipping) of a batch of 16 tasks × 8 rollouts, with the learning rate at which the policy diverges by .002 nats per token (within 10 %; where clipping makes it jump, 20 %); steps with advantage 0 are left out. The figures are
changes of the probability to win in points, estimated without bias from 16 other rollouts of each task by importance sampling: on the batch's tasks, and on all others.
± is half of a 95 % CI over batches (Student's t), not corrected; differences are paired by batch. All batches come from the same
128 tasks and are judged by the same rollouts, which ± does not cover.
"""

COMMANDS = """## Commands

    hgpo train quickstart run.seed=7101 run.name=q7101 training.keep_checkpoints=100 run.threads=1 training.warmup_updates=0 rollout.state=observation
    python benchmarks/gradients.py play runs/q7101 runs/report-start --checkpoint start --first 13000
    python benchmarks/gradients.py align runs/report-start --json benchmarks/gradients.json --sizes 8
    python benchmarks/gradients.py align runs/report-start --json benchmarks/gradients.json --sizes 4 32 --keys published_g2po
    python benchmarks/gradients.py branch runs/webshop-start --json benchmarks/step_errors.json
    python benchmarks/gradients.py update runs/webshop-start --json benchmarks/updates.json --batches 16 --contenders "hgpo paper / observation" \\
        "gigpo / observation" "g2po / observation" "graphgpo / observation" "nested_td / observation"
    python benchmarks/gradients.py update runs/quickstart-start --json benchmarks/updates.json --batches 16 --contenders "hgpo paper / observation" \\
        "hgpo paper / published_g2po" "gigpo / published_g2po" "g2po / published_g2po" "graphgpo / published_g2po" "nested_td / published_g2po"
    python tools/results_pages.py

The next two sections come from the same commands with `--checkpoint 100` and `200`, the section of shops from

    hgpo train webshop-tiny
    python benchmarks/gradients.py play runs/webshop-tiny runs/webshop-start --checkpoint start --first 3000
    python benchmarks/gradients.py align runs/webshop-start --json benchmarks/gradients.json --sizes 8 --keys observation simulator \\
        --references "gigpo / observation" "hgpo paper / observation"

The sections of ALFWorld come from

    hgpo train alfworld-tiny
    python benchmarks/gradients.py play runs/alfworld-tiny runs/alfworld-start --checkpoint start
    python benchmarks/gradients.py play runs/alfworld-tiny runs/alfworld-seen --checkpoint start --split valid_seen
    python benchmarks/gradients.py align runs/alfworld-start --json benchmarks/gradients.json --sizes 8 --estimators grpo gigpo "gigpo, no std" \\
        "hgpo paper" "hgpo paper, no std" "hgpo level 0" "hgpo level 0, no std" "hgpo pooled" mixed_effects atd "gagpo, lambda .5" g2po "g2po, no std" \\
        graphgpo "graphgpo, no std" nested_td "nested_td, gamma .9" "nested_td, no power" "nested_td, no history" "nested_td, no shrinkage" \\
        "nested_td, cut is lost" "certainty-equivalent TD" "proposal 1"

and the last command for `runs/alfworld-seen`. The start policy imitated 3,000 of the training games, perhaps some of the 128.

The tables of single steps come from `branch` with the default key and with `--key simulator` in shops, `--key published_g2po` in household tasks. The pool of household
tasks of single steps and of one update is

    hgpo train quickstart run.threads=1
    python benchmarks/gradients.py play runs/quickstart runs/quickstart-start --checkpoint start --first 13000

In shops, text and commands are equal to the text in every figure. No estimator or option was chosen on shops. NestedTD and its options were chosen on household tasks 12,000 to 12,127 (`--first 12000`), with the same three checkpoints.
"""
