"""Writes the pages of docs/results/ and the tables of README.md and docs/choosing.md from benchmarks/*.json.

    python tools/results_pages.py

A test compares the stored pages with this module's output.
"""

# ruff: noqa: E402, E501 - benchmarks/ is put on the path first; pages have long lines
from __future__ import annotations

import json
import re
import sys
from math import ceil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
RESULTS = ROOT / "docs" / "results"
PACKAGE_LINE = re.compile(r"<!-- trained -->\n(?:Trained .*\n)?")
README_TABLE = re.compile(r"<!-- results -->\n(?:\|.*\n)*")

sys.path.insert(0, str(BENCHMARKS))

import engines
import yardsticks
from choosing_tables import package_line, training_table, with_tables
from field_page import field_page
from gradients_page import gradients_page
from long_games.contenders import CONTENDERS
from long_games.tables import as_markdown
from reference_pages import write
from trained_page import CAMPAIGNS, trained_page


def pages() -> dict[Path, str]:
    """Path and text of every page, including README.md, docs/choosing.md and the pages of packages with environments."""
    texts = {
        "README.md": index_page(),
        "trained-policies.md": trained_page(),
        "gradients.md": gradients_page(
            BENCHMARKS / "gradients.json", BENCHMARKS / "step_errors.json", BENCHMARKS / "updates.json"
        ),
        "games.md": games_page(),
        "chains.md": chains_page(),
        "engines.md": engines_page(),
        "field.md": field_page(BENCHMARKS / "field.json"),
    }
    readme = ROOT / "README.md"
    with_table = README_TABLE.sub(
        f"<!-- results -->\n{training_table([one for one in CAMPAIGNS if one.in_readme])}",
        readme.read_text(encoding="utf-8"),
    )
    choosing = ROOT / "docs" / "choosing.md"
    chosen = with_tables(choosing.read_text(encoding="utf-8"), BENCHMARKS / "gradients.json", CAMPAIGNS)
    packages = {ROOT / "plugins" / one.package / "README.md": package_line(one) for one in CAMPAIGNS if one.package}
    with_lines = {
        page: PACKAGE_LINE.sub(f"<!-- trained -->\n{line}", page.read_text(encoding="utf-8"))
        for page, line in packages.items()
    }
    return {
        readme: with_table,
        choosing: chosen,
        **with_lines,
        **{RESULTS / name: text for name, text in texts.items()},
    }


def index_page() -> str:
    """The list of the pages."""
    return """# Results

`python tools/results_pages.py` writes these pages from the stored figures in `benchmarks/*.json`; a test compares them with the
stored figures. Figures of single runs, below, are written by hand.

In the campaigns with one learning rate or unequal steps and in some rows of the recipes, one generator per evaluation seed drew the random numbers of all tasks.
Now each seed and task has separate random numbers ([decision 021](../decisions/021-redesign.md)). A rerun of these figures is a new random sample, with
the same expected value.

- [Trained policies](trained-policies.md): policies trained with different estimators on household games, shops and ALFWorld
- [Gradients](gradients.md): batch gradients of estimators compared with the true policy gradient
- [Small games](games.md): estimators on games whose exact gradient is known
- [Chains](chains.md): gradients of one decision, by estimator and number of rollouts
- [Engines and samplers](engines.md): the built-in trainer compared with verl, and samplers
- [Figures of the field](field.md): figures that papers and repositories report, with sources, and the spread of one method between sources
- Single runs: [smollm2](../../recipes/smollm2/README.md), [quickstart](../../recipes/quickstart/README.md),
  [webshop-tiny](../../recipes/webshop-tiny/README.md), [alfworld-tiny](../../recipes/alfworld-tiny/README.md)
"""


def games_page() -> str:
    """The page of small games of many steps."""
    stored = read("multistep.json")
    instances = {
        figure: next(row["instances"] for row in stored["rows"] if row["figure"] == figure)
        for figure in ("kl", "adam", "cosine")
    }
    figures = {figure: as_markdown(stored, figure, CONTENDERS) for figure in ("kl", "adam", "cosine", "cosine of mean")}
    figures["kl end"] = as_markdown(stored, "kl end", CONTENDERS)
    return f"""# Small games

There are five families of small games. A seed draws an *instance* of a family, with 16 tasks. The policy is a table of logits for each goal,
observation and last two (observation, action) pairs; its success is 30 % at the start. Success and the policy gradient are computed exactly, by
dynamic programming.

| family | property | steps at most |
|---|---|---|
| traps | fully observed; a wrong step can end the episode | 16 |
| search | different places have equal observations | 16 |
| policy only | the history changes the policy's next action, not the game | 6 |
| loops | two keys have to be found in order; shortcuts lead back | 30 |
| household | every invalid command has the observation "Nothing happens." | 15 |

An update plays 16 tasks × 8 rollouts, γ = 0.95. In tables of success, the row "nested_td" has its success, other rows have the difference to it, paired by
instance; ± is half of the 95 % CI over instances, not corrected for the number of comparisons. "no std" is `mode="mean_norm"`. Three rows use
exact values, which no estimator knows: `R - V` is the trajectory's sum of rewards minus the state's value, `R - V, discounted` the same with discounted return and value,
`Q - V` the exact advantage.

![Learning curves of five families, and the difference of each estimator to NestedTD](../images/multistep.png)

## Success while learning, equal divergence

Each update follows the gradient until the mean KL divergence from the policy before it is 0.01. Success averaged over 40 updates, in points;
{instances["kl"]} instances per family.

{figures["kl"]}
After 40 updates:

{figures["kl end"]}
## Success while learning, PPO and Adam

Two passes in four mini-batches, learning rate 0.03. Success averaged over 40 updates, in points; {instances["adam"]} instances per family.

{figures["adam"]}
## Cosine of one batch's gradient with the exact gradient

With the start policy; mean of 50 batches, {instances["cosine"]} instances per family.

{figures["cosine"]}
## Cosine of the mean gradient with the exact gradient

Corrected for the noise in the mean of 50 batches; 1 means that the direction has no bias.

{figures["cosine of mean"]}
## Commands

    python benchmarks/multistep.py choose --cells runs/choosing.jsonl
    python benchmarks/multistep.py report --cells runs/reporting.jsonl --measures kl --instances 12
    python benchmarks/multistep.py report --cells runs/reporting.jsonl --measures cosine adam --instances 4 --json benchmarks/multistep.json
    python benchmarks/multistep.py report --read benchmarks/multistep.json --picture docs/images/multistep.png

Settings were chosen (`choose`) on other instances than the reported ones. We chose the families of games knowing the results of `benchmarks/atd.py`, not
NestedTD's; NestedTD has its defaults.
"""


def chains_page() -> str:
    """The page of chains with one decision."""
    names = [
        "level 0", "level 1", "level 2", "paper", "renormalised", "verl-agent", "pooled", "pooled leave-one-out",
        "mixed_effects", "gigpo", "g2po", "graphgpo", "grpo std", "dr_grpo", "rloo", "reinforce", "gae, values 0",
    ]  # fmt: skip
    rows = read("yardsticks.json")["rows"]
    cosines = "\n".join(f"N = {count}:\n\n{yardsticks.table(rows, 'cosine', count, names)}" for count in (4, 8, 32))
    worst = {
        count: max(row["cosine_error"] for row in rows if (row["N"], row["estimator"] in names) == (count, True))
        for count in (4, 8, 32)
    }
    errors = ", ".join(f"{ceil(1000 * error) / 1000:.3f} (N = {count})" for count, error in worst.items())
    enumerated = read("yardsticks_enumerated.json")["rows"]
    exact = list(dict.fromkeys(row["estimator"] for row in enumerated))
    bias = yardsticks.table(enumerated, "direction_bias", 4, exact)
    return f"""# Chains

A chain is start → u → h → **s** → reward 0 or 1. All rollouts have the same observation at s; the history c = (u, h), the *context*, has one of four values.
Level 0 compares all steps at s, level 1 steps with equal h, level 2 steps with equal c. The action a at s is 0 or 1. The columns of probabilities list the
four contexts, or one number for all.

| problem | effect of the history | P(a = 1) | P(reward 1) |
|---|---|---|---|
| P | changes the policy only | .9 .5 .5 .1 | .1 + .8 a |
| P mild | the same, less | .7 .5 .5 .3 | .1 + .8 a |
| none | none | .5 | .1 + .8 a |
| A strong | changes the reward | .5 | 0 .3 .5 .8, + .2 a |
| A extreme | decides most of the reward | .5 | 0 0 .9 .9, + .1 a |
| A skewed | A strong, with a skewed policy | .8 | 0 .3 .5 .8, + .2 a |
| I opposed | the better action depends on u | .5 | .3 .3 .7 .7, ± .4 a |
| I partial | the action matters in two contexts only | .5 | 0 .3 .5 .4, + .5 a or 0 |
| I policy | as I opposed, and the policy depends on c | .8 .5 .5 .2 | 0 .3 .7 .9, + .5 .4 −.4 −.5 a |

## Cosine with the exact gradient

Mean of 2,000 batches of 16 tasks × N rollouts; returns are not divided by a standard deviation, except in `grpo std`. Standard errors are at most {errors}. The best of a
column is bold, also where others are as good within the error. `level k` uses only
level k; `paper` and `verl-agent` are HGPO's presets; `renormalised` is the preset `"paper"` with `missing="renormalize"`. All tasks of a batch are equal,
which favours the batch baseline of `reinforce`.

{cosines}
## Angle of the mean gradient, in radians

The angle is between the mean gradient and the exact gradient. The mean is over all outcomes of one task with N = 4, which are enumerated.

{bias}
## Commands

    python benchmarks/yardsticks.py -o benchmarks/yardsticks.json
    python benchmarks/yardsticks.py --enumerate -o benchmarks/yardsticks_enumerated.json
    python benchmarks/yardsticks.py --batches 100000 --trajectories 8 16 32 --estimators "pooled leave-one-out" \\
        --problems P "P mild" none "A strong" "A extreme" "A skewed" -o benchmarks/yardsticks_leave_one_out.json
"""


def engines_page() -> str:
    """The page of engines and samplers."""
    found = read("engines.json")
    sampled = read("samplers.cpu.json")
    return f"""# Engines and samplers

## Built-in trainer and verl

Both engines train the quickstart with earlier settings from one warm start, for {found["updates"]} updates with the same tasks in the same
order; verl has two FSDP2 ranks on a CPU. Figures in % are success. Other work ran on the machine. With one training seed and 256 held-out tasks they show that both
engines learn; they do not rank the engines. Both figures before training are of one policy, evaluated with different random numbers.

{engines.table(found)}
![Success of the rollouts on both engines](../images/engines.png)

    .venv-verl/bin/python benchmarks/engines.py FOLDER

## Samplers

{sampled["model"]}, {sampled["episodes"]} episodes of at most {sampled["max_steps"]} steps, {sampled["response_tokens"]} tokens per response, two
CPU cores; medians of three rounds, for the relative speed of the ratios of a round. "Gap": absolute difference between the sampler's and the trainer's log-prob of a token. "Start": time to create the sampler.

{engines.samplers_table(sampled)}
    LD_PRELOAD=$PWD/.venv-vllm/lib/libiomp5.so .venv-vllm/bin/python benchmarks/samplers.py MODEL --episodes 32 --max-steps 8
"""


def read(name: str) -> Any:
    """The content of a JSON file in benchmarks/."""
    return json.loads((BENCHMARKS / name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    write(pages())
