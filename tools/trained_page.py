"""docs/results/trained-policies.md: the campaigns of benchmarks/campaign.json, and the quickstart's own comparison."""

# ruff: noqa: E501 - the page has long lines
from __future__ import annotations

import json
import runpy
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import campaign_table
from stored_rows import markdown_table

QUICKSTART = Path(__file__).parents[1] / "recipes" / "quickstart"
HOUSEHOLD = "quickstart training.updates=60 training.learning_rate_schedule=constant"
EQUAL_STEPS = "training.warmup_updates=3 training.skip_zero_advantage=false"


@dataclass(frozen=True, slots=True)
class Campaign:
    """Trainings with the same recipe and settings, by several estimators.

    Attributes:
        settings: recipe and settings, as in `campaign_table.Trained.settings`.
        title: title of its section.
        split: split of the evaluation.
        row: its row in docs/choosing.md.
        chosen_rates: whether each estimator has the best of some learning rates.
        trials: settings of the trials that decided on the rates; "": the campaign's settings.
        in_readme: whether README.md's table has it.
    """

    settings: str
    title: str
    split: str
    row: str
    chosen_rates: bool = True
    trials: str = ""
    in_readme: bool = False

    @property
    def heading(self) -> str:
        """The title with the split."""
        return f"{self.title}, `{self.split}`"


_PPO = f"{HOUSEHOLD} training.skip_zero_advantage=false"
CAMPAIGNS = (
    Campaign(
        HOUSEHOLD,
        "Household games",
        "valid_unseen",
        "Household games, unequal steps",
        chosen_rates=False,
        in_readme=True,
    ),
    Campaign("webshop-tiny", "Shops", "valid_unseen", "Shops, unequal steps", chosen_rates=False, in_readme=True),
    Campaign(
        "alfworld-tiny training.updates=30",
        "ALFWorld",
        "valid_seen",
        "ALFWorld, unequal steps",
        chosen_rates=False,
        in_readme=True,
    ),
    Campaign(_PPO, "Household games with PPO, chosen learning rates", "valid_unseen", "Household games, equal steps"),
    Campaign(
        f"alfworld-tiny training.updates=30 {EQUAL_STEPS}",
        "ALFWorld with PPO, chosen learning rates",
        "valid_seen",
        "ALFWorld, equal steps",
    ),
    Campaign(
        "quickstart training.updates=60 training.skip_zero_advantage=false training.learning_rate_schedule=constant",
        "Household games with NestedTD, chosen learning rates",
        "valid_unseen",
        "Household games, equal steps, another start",
        trials=_PPO,
    ),
    Campaign(
        f"{HOUSEHOLD} {EQUAL_STEPS} rollout.state=published_g2po",
        "Household games with G2PO's state key for all, chosen learning rates",
        "valid_unseen",
        "Household games, equal steps, G2PO's key for all",
    ),
)
"""In the order of the page; steps are optimiser steps."""


def trained_page() -> str:
    """The campaigns, and the quickstart's own comparison."""
    parts = [
        """# Trained policies

A tiny policy is trained with each estimator from the same warm start. "After" is success on held-out tasks at temperature 0.4, after training; "while
training" is the mean success of all rollouts. "− gigpo": difference to the row "gigpo" in points, paired by training seed. ± is half of its 95 % CI over
training seeds (Student's t). "n.s.": not significant at 5 %, with p values corrected by Holm's method for all pairs of the table; the conclusions use
the same test. "Detectable": the least true difference in points that one comparison of as many seeds finds in 80 of 100 cases, for the median spread.

Rows: "hgpo paper" and "hgpo verl-agent" are HGPO's two presets. "g2po" has its published state key on household games
(`rollout.state=published_g2po`). "hgpo mean_norm" omits the division by the std. "atd" is `benchmarks/atd.py` with `mode="batch_std"`. In campaigns without `skip_zero_advantage=false`, estimators
took different numbers of optimiser steps, because samples with advantage 0 did not count for that number
([decision 023](../decisions/023-optimiser-steps.md)).
"""
    ]
    tables, done = campaign_table.tables(), campaign_table.stored()
    for campaign in CAMPAIGNS:
        rows = tables[campaign.settings]
        here = [one for one in done if one.settings == campaign.settings]
        start = 100 * np.mean([one.before for one in here])
        parts += [
            f"## {campaign.heading}\n\nRecipe and settings: `{campaign.settings}`. n = {rows[0].seeds} training seeds. Success after the warm start: {start:.1f} %. "
            f"Detectable: {campaign_table.detectable(rows):.1f} points.\n",
            campaign_table.as_markdown(rows),
            *([rates_line(campaign, {one.estimator for one in here})] if campaign.chosen_rates else []),
            ranges_line(here),
            f"Differences in held-out success, row minus column, in points:\n\n{pairs_table(rows)}",
            f"Differences in success while training:\n\n{pairs_table(rows, while_training=True)}",
        ]
    compare = runpy.run_path(str(QUICKSTART / "compare.py"))
    for file, title in (
        ("comparison.json", "Household games, earlier settings"),
        ("comparison_states.json", "Household games, the admissible commands as part of the state"),
    ):
        found = json.loads((QUICKSTART / file).read_text(encoding="utf-8"))
        parts.append(
            f"## {title}\n\nThe recipe `quickstart` with `{' '.join(found['overrides'])}`. Success in %, mean over evaluation seeds 123, 456, 789; "
            f"n = {len(found['seeds'])} training seeds; ± is the standard deviation over training seeds.\n\n"
            + "\n".join(compare["success_table"](found))
            + "\n\n"
            + "\n".join(compare["difference_table"](found, "gigpo"))
            + "\n"
        )
    parts.append(
        """## Commands

    python benchmarks/campaign.py run runs/campaign training.updates=60 training.learning_rate_schedule=constant --at-once 2
    python benchmarks/campaign.py run runs/campaign --recipe webshop-tiny --seeds 3 --estimators gigpo "hgpo paper" g2po --at-once 2
    ALFWORLD_DATA=~/.cache/alfworld python benchmarks/campaign.py run runs/campaign training.updates=30 --recipe alfworld-tiny \\
        --seeds 3 --estimators gigpo "hgpo paper" g2po --at-once 2
    SETTINGS="training.updates=60 training.learning_rate_schedule=constant training.skip_zero_advantage=false"
    ESTIMATORS="ppo gigpo grpo"
    python benchmarks/campaign.py choose runs/campaign $SETTINGS --rates 1e-3 5e-4 2.5e-4 --estimators $ESTIMATORS "hgpo paper" --at-once 2
    python benchmarks/campaign.py run runs/campaign $SETTINGS --seeds 5 --estimators $ESTIMATORS "hgpo paper" --at-once 2
    SETTINGS="training.updates=60 training.learning_rate_schedule=constant training.warmup_updates=3 training.skip_zero_advantage=false"
    SETTINGS="$SETTINGS rollout.state=published_g2po"
    ESTIMATORS="nested_td g2po graphgpo gigpo grpo"
    python benchmarks/campaign.py choose runs/campaign $SETTINGS --rates 2.5e-4 5e-4 1e-3 --updates 30 \\
        --estimators $ESTIMATORS "hgpo paper" "hgpo mean_norm" --at-once 2
    python benchmarks/campaign.py run runs/campaign $SETTINGS --estimators $ESTIMATORS "hgpo paper" "hgpo mean_norm" --at-once 2
    python recipes/quickstart/compare.py --help
"""
    )
    return "\n".join(parts)


def rates_line(campaign: Campaign, estimators: Set[str]) -> str:
    """A sentence with the tried learning rates, the chosen ones, and the criterion of the choice.

    Where the campaign evaluates on `valid_seen`, rollouts decided (`campaign.py choose`).
    """
    settings = campaign.trials or campaign.settings
    trials = [one for one in campaign_table.rate_trials() if one.settings == settings and one.estimator in estimators]
    names = sorted({one.estimator for one in trials})
    tried = ", ".join(f"{rate:g}" for rate in sorted({one.rate for one in trials}))
    by_name = {name: campaign_table.chosen_rate(name, settings)[0].rpartition("=")[2] for name in names}
    chosen = ", ".join(f"{name} {rate}" for name, rate in by_name.items())
    updates = {one.updates for one in trials}.pop()
    length = f" of {updates} updates" if updates else ""
    judge = "rollouts, in the last third of the updates," if campaign.split == "valid_seen" else "`valid_seen`"
    starts = (
        " Not all of these trainings began with the same start policy."
        if len({one.start for one in trials}) > 1
        else ""
    )
    return (
        f"Learning rates {tried} were tried with each estimator, one training each{length} with a seed that the table does not use; the rate with the highest success on "
        f"{judge} was chosen: {chosen}.{starts} All steps are trained on, also steps with advantage 0, so the number of optimiser steps does not depend on the estimator.\n"
    )


def ranges_line(trainings: list[campaign_table.Trained]) -> str:
    """Success after training of the lowest and the highest seed, by estimator."""
    by_name: dict[str, list[float]] = {}
    for one in trainings:
        by_name.setdefault(one.estimator, []).append(100 * one.after)
    ranges = [f"{name} {min(after):.1f} to {max(after):.1f}" for name, after in by_name.items()]
    return f"Success after training, lowest to highest seed, in %: {'; '.join(ranges)}.\n"


def pairs_table(rows: Sequence[campaign_table.Row], *, while_training: bool = False) -> str:
    """The differences of all pairs of estimators, in held-out success or in that of the rollouts."""
    names = [row.estimator for row in rows]
    leads = [row.leads_during if while_training else row.leads for row in rows]
    lines = (
        [row.estimator, *(str(each.get(name, "")) for name in names)] for row, each in zip(rows, leads, strict=True)
    )
    return markdown_table(["", *names], lines)
