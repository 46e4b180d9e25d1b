"""docs/results/trained-policies.md: the campaigns of benchmarks/campaign.json."""

# ruff: noqa: E501 - the page has long lines
from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import combinations

import numpy as np

import campaign_table
from hgpo.utils.text import counted
from paired import SIGNIFICANT, Difference, holm, paired_difference, sign_flip_p_value
from stored_rows import markdown_table

HOUSEHOLD = "quickstart training.updates=60 training.learning_rate_schedule=constant"
EQUAL_STEPS = "training.warmup_updates=3 training.skip_zero_advantage=false"


@dataclass(frozen=True, slots=True)
class Campaign:
    """Trainings with the same recipe and settings, by several estimators.

    Attributes:
        settings: recipe and settings, as in `campaign_table.Trained.settings`.
        title: title of its section.
        split: split of the evaluation.
        row: its row in docs/choosing.md; "": it has none.
        chosen_rates: whether each estimator has the best of some learning rates.
        trials: settings of the trials that decided on the rates; "": the campaign's settings.
        note: sentences about this campaign only.
        start: folder of the start policy that all its trainings have; "": the first training makes it.
        in_readme: whether README.md's table has the row, too.
        tiny: whether the policy is a tiny one; docs/choosing.md has a table of its own for a real model.
        package: folder in plugins/ of the package with the environment, whose README.md has a line of the results.
    """

    settings: str
    title: str
    split: str
    row: str = ""
    chosen_rates: bool = True
    trials: str = ""
    note: str = ""
    start: str = ""
    in_readme: bool = False
    tiny: bool = True
    package: str = ""


_UNEQUAL = (
    "Estimators took different numbers of optimiser steps, because samples with advantage 0 did not count for that number "
    "([decision 023](../decisions/023-optimiser-steps.md)); the command now gives equal numbers."
)
_TEXT = (
    "The recipe had no warm-up and the text as state key: append `training.warmup_updates=0`, and for other estimators than `g2po` and `nested_td` "
    "`rollout.state=observation`, to its commands."
)
_HALF = (
    "Half of the lowest rate was tried afterwards, from another start: on `valid_seen`, 0.000125 minus 0.00025 is +0.4 points with grpo, −4.7 with gigpo, −1.2 with g2po, "
    "−1.6 with hgpo mean_norm."
)
_TIE = "Two rates of hgpo paper had equal success on `valid_seen`; success while training decided."
_SHOPS = 'All rows but nested_td have the recipe\'s `mode="mean_norm"` (no division by the std), all a KL coefficient of 0.01.'
_ALFWORLD = (
    "Five seeds were planned; tables of three and four were published before. HGPO has the text as state key, as published (G2PO's key changes the cosine of its "
    "[gradients](gradients.md) by .01 on training games, −.03 on `valid_seen`), the others have G2PO's. 0.001 was tried with "
    "NestedTD, GiGPO and GraphGPO, too: success of the rollouts fell to .23 to .25."
)
_SMOLLM2 = (
    "The policy is SmolLM2-135M-Instruct, evaluated at temperature 1. All trainings have the recipe's learning rate and one optimiser step per update; steps "
    "with advantage 0 are left out ([recipe](../../recipes/smollm2/README.md))."
)
_PACKAGE = (
    "The environment is a [package](../environments.md). All trainings have the recipe's learning rate. Mini-batch size and warm-up were chosen for all four packages "
    "with HGPO and seed 0, by the rollouts of Sokoban."
)
_SOKOBAN = f"{_PACKAGE} The split was `valid_unseen` at first (larger boards: 7.0 % before training, 7.8 and 5.1 % after it with GRPO and GiGPO) and then changed."
_NO_WARM_UP = f"{HOUSEHOLD} training.skip_zero_advantage=false"
_OF_KEY = f"{HOUSEHOLD} {EQUAL_STEPS} rollout.state="
_MOST_NAMED = 3  # pairs in a sentence
KEYS = {"published_g2po": "G2PO's", "observation_and_commands": "text + commands"}
"""State keys that are compared with the text."""
CAMPAIGNS = (
    Campaign(
        f"{_OF_KEY}published_g2po",
        "Household games, G2PO's key for all",
        "valid_unseen",
        "Household games, G2PO's key",
        note=_HALF,
        in_readme=True,
    ),
    Campaign(
        f"{_OF_KEY}observation",
        "Household games, text for all",
        "valid_unseen",
        "Household games, text",
    ),
    Campaign(
        f"{_OF_KEY}observation_and_commands",
        "Household games, text and commands for all",
        "valid_unseen",
        "Household games, text and commands",
    ),
    Campaign(
        f"alfworld-tiny training.updates=30 {EQUAL_STEPS}",
        "ALFWorld, chosen learning rates",
        "valid_seen",
        "ALFWorld, G2PO's key (HGPO: text)",
        note=_ALFWORLD,
        start="benchmarks/starts/alfworld-tiny",
        in_readme=True,
    ),
    Campaign(
        f"webshop-tiny {EQUAL_STEPS}",
        "Shops, chosen learning rates",
        "valid_unseen",
        "Shops, text",
        note=f"{_SHOPS} {_TIE}",
        in_readme=True,
    ),
    Campaign(
        "smollm2 rollout.state=published_g2po",
        "SmolLM2-135M on short household games, G2PO's key for all",
        "valid_unseen",
        "Short household games, SmolLM2-135M",
        chosen_rates=False,
        note=_SMOLLM2,
        in_readme=True,
        tiny=False,
    ),
    Campaign(
        "sokoban-tiny",
        "Sokoban",
        "valid_seen",
        chosen_rates=False,
        note=_SOKOBAN,
        start="benchmarks/starts/sokoban-tiny",
        package="sokoban",
    ),
    Campaign("babyai-tiny", "BabyAI", "valid_unseen", chosen_rates=False, note=_PACKAGE, package="babyai"),
    Campaign("backoffice-tiny", "Back office", "valid_unseen", chosen_rates=False, note=_PACKAGE, package="backoffice"),
    Campaign(
        "scienceworld-tiny", "ScienceWorld", "valid_unseen", chosen_rates=False, note=_PACKAGE, package="scienceworld"
    ),
    Campaign(_NO_WARM_UP, "Household games with PPO, without warm-up", "valid_unseen", note=_TEXT),
    Campaign(
        "quickstart training.updates=60 training.skip_zero_advantage=false training.learning_rate_schedule=constant",
        "Household games with NestedTD, without warm-up",
        "valid_unseen",
        trials=_NO_WARM_UP,
        note=f"The rows differ in the state key, too. {_TEXT}",
    ),
    Campaign("webshop-tiny", "Shops, one learning rate", "valid_unseen", chosen_rates=False, note=_SHOPS),
    Campaign(
        HOUSEHOLD, "Household games, unequal steps", "valid_unseen", chosen_rates=False, note=f"{_UNEQUAL} {_TEXT}"
    ),
    Campaign(
        "alfworld-tiny training.updates=30",
        "ALFWorld, unequal steps",
        "valid_seen",
        chosen_rates=False,
        note=_UNEQUAL,
    ),
)
"""In the order of the page."""
CURVES = "![Success of the rollouts, mean of the last four updates; bands: from the lowest to the highest of three seeds](../images/{}.png)\n"
INTRODUCTION = """# Trained policies

A policy, tiny in all campaigns but one, is trained with each estimator from the same warm start. "After" is success on held-out tasks at temperature 0.4
(SmolLM2-135M: 1), after training; "while training" is the mean success of all rollouts. "− gigpo": difference to the row "gigpo" in points, paired by training seed. ± is half of its 95 % CI over
training seeds (Student's t), without correction; it does not cover other start policies and tasks, since all trainings of a campaign have one start and one
set of held-out tasks. "n.s.": not significant at 5 %, with p values corrected by Holm's method for all pairs of a table of differences (held-out success and
success while training separately); the conclusions use the same test. "Detectable": smallest true difference in points that is found with 80 % power with as many seeds and the median spread, at
the strictest step of the correction.

Rows: "hgpo paper" and "hgpo verl-agent" are HGPO's two presets. "hgpo mean_norm" omits the division by the std. "atd" is `benchmarks/atd.py`. NestedTD and atd
have `mode="batch_std"`. States are equal if their texts are equal; only "g2po" and "nested_td" have the published G2PO's state key on household games and
ALFWorld (`rollout.state=published_g2po`), and the rows that name it, except where the settings name a key for all rows.
"""


def trained_page() -> str:
    """The page."""
    parts, tables, done = [INTRODUCTION], campaign_table.tables(), campaign_table.stored()
    for campaign in CAMPAIGNS:
        here = campaign_table.of_complete_seeds([one for one in done if one.settings == campaign.settings])
        parts += campaign_section(campaign, tables[campaign.settings], here)
    parts.append(keys_section(done))
    return "\n".join(parts)


def campaign_section(
    campaign: Campaign, rows: Sequence[campaign_table.Row], trainings: Sequence[campaign_table.Trained]
) -> list[str]:
    """The section of a campaign: its table, how learning rates were chosen, all pairs, and the commands."""
    starts = [f"{100 * success:.1f} %" for success in campaign_table.success_of_starts(trainings).values()]
    start = ", ".join(starts) + (" (a start policy for each machine)" if len(starts) > 1 else "")
    return [
        f"## {campaign.title}, `{campaign.split}`\n\nRecipe and settings: `{campaign.settings}`. n = {rows[0].seeds} training seeds. Success after the warm start: {start}. "
        f"Detectable: {campaign_table.detectable(rows):.1f} points. {campaign.note}".rstrip()
        + "\n",
        campaign_table.as_markdown(rows),
        *([rates_line(campaign, trainings)] if campaign.chosen_rates else []),
        ranges_line(trainings),
        *([CURVES.format(campaign.package)] if campaign.package else []),
        f"Differences in held-out success, row minus column, in points:\n\n{pairs_table(rows)}",
        f"Differences in success while training:\n\n{pairs_table(rows, while_training=True)}",
        *exact_lines(rows, trainings),
        commands(campaign, rows),
    ]


def keys_section(trainings: Sequence[campaign_table.Trained]) -> str:
    """What a state key changes in comparison with the text, for the estimators with the same rate in both campaigns."""
    found = {(one.settings.removeprefix(_OF_KEY), one.estimator, one.seed): one for one in trainings}
    lines = []
    for key, title in KEYS.items():
        for name in campaign_table.ESTIMATORS:
            pairs = [
                (one, found["observation", name, seed])
                for (its_key, estimator, seed), one in found.items()
                if (its_key, estimator) == (key, name) and ("observation", name, seed) in found
            ]
            if pairs and pairs[0][0].rate == pairs[0][1].rate and name != "grpo":
                lines.append(
                    [title, name, str(len(pairs)), *(str(_lead(pairs, figure)) for figure in ("after", "during"))]
                )
    return (
        "## Household games, other keys minus the text\n\nDifferences in points to the campaign with the text, paired by training seed, for estimators with the same "
        "learning rate in both; ± as above, not corrected. The key has no effect on GRPO, whose trainings with G2PO's key and with the text are identical.\n\n"
        + markdown_table(["key", "estimator", "seeds", "after", "while training"], lines)
    )


def _lead(pairs: Sequence[tuple[campaign_table.Trained, campaign_table.Trained]], figure: str) -> Difference:
    """The mean difference of a figure within pairs, in points."""
    one, other = (100 * np.array([getattr(each, figure) for each in side]) for side in zip(*pairs, strict=True))
    return paired_difference(one, other)


def trials_of(campaign: Campaign, estimators: Set[str]) -> list[campaign_table.RateTrial]:
    """The trials of learning rates for these estimators."""
    settings = campaign.trials or campaign.settings
    return [one for one in campaign_table.rate_trials() if one.settings == settings and one.estimator in estimators]


def rates_line(campaign: Campaign, trainings: Sequence[campaign_table.Trained]) -> str:
    """A sentence with the tried learning rates, the chosen ones, and the criterion of the choice.

    Where the campaign evaluates on `valid_seen`, rollouts decided (`campaign.py choose`).
    """
    trials = trials_of(campaign, {one.estimator for one in trainings})
    tried = ", ".join(f"{rate:g}" for rate in sorted({one.rate for one in trials}))
    best = {
        name: campaign_table.best_trial([one for one in trials if one.estimator == name]).rate
        for name in {one.estimator for one in trainings}
    }
    rates = {one.estimator: float(one.rate.rpartition("=")[2] or best[one.estimator]) for one in trainings}
    lowest = {name: min(one.rate for one in trials if one.estimator == name) for name in best}
    chosen = ", ".join(f"{name} {rates[name]:g}{'*' * (rates[name] == lowest[name])}" for name in sorted(rates))
    edge = " (*: the lowest that was tried, so a lower one may be better)" if "*" in chosen else ""
    updates = {one.updates for one in trials}.pop()
    length = f" of {updates} updates" if updates else ""
    judge = "rollouts, in the last third of the updates," if campaign.split == "valid_seen" else "`valid_seen`"
    starts_here = {one.start for one in trainings}
    elsewhere = [one for one in trials if one.start not in starts_here]
    names = sorted({one.estimator for one in elsewhere})
    whose = f" of {', '.join(names)}" if len(names) < len(rates) else ""
    other_rates = ", ".join(f"{rate:g}" for rate in sorted({one.rate for one in elsewhere}))
    starts = (
        f" Trials with {other_rates}{whose} began with another start policy than the table's trainings, so the choice is less certain."
        if elsewhere
        else ""
    )
    return (
        f"Learning rates {tried} were tried with each estimator, one training each{length} with a seed that the table does not use; the rate with the highest success on "
        f"{judge} was chosen: {chosen}{edge}.{starts}{effect_of_rates(trials, set(rates.values()))} All steps are trained on, also steps with advantage 0, so the number of optimiser steps depends only on the lengths of episodes.\n"
    )


def effect_of_rates(trials: Sequence[campaign_table.RateTrial], chosen: Set[float]) -> str:
    """A sentence with what a rate changes while training, if estimators have different ones; trials of one start only."""
    during = {(one.estimator, one.start, one.rate): one.during for one in trials}
    low, high = min(chosen), max(chosen)
    changes = [
        100 * (higher - was)
        for (name, start, rate), was in during.items()
        if rate == low != high and was is not None and (higher := during.get((name, start, high))) is not None
    ]
    if not changes:
        return ""
    return f" The rates differ, which changes success while training, too: in these trials {high:g} minus {low:g} is {min(changes):+.1f} to {max(changes):+.1f} points."


def exact_lines(rows: Sequence[campaign_table.Row], trainings: Sequence[campaign_table.Trained]) -> list[str]:
    """What the exact sign-flip test says of the differences in place of Student's t, after the same correction; empty if
    nothing is significant by t and nothing can be by this test."""
    seeds, pairs = rows[0].seeds, len(rows) * (len(rows) - 1) // 2
    least = min(1.0, pairs * 2.0 / 2**seeds)
    if least >= SIGNIFICANT:
        if not any(lead.significant for row in rows for lead in (*row.leads.values(), *row.leads_during.values())):
            return []
        return [
            f"With {seeds} seeds and {counted(pairs, 'pair')}, the exact sign-flip test has a corrected p of at least {least:.2g}: it can confirm nothing of what is "
            "significant by Student's t, which assumes normal differences.\n"
        ]
    found = [_exact(rows, trainings, *of) for of in (("after", "leads"), ("during", "leads_during"))]
    return [
        f"With the exact sign-flip test in place of Student's t, which assumes normal differences: held out, {found[0]}; while training, {found[1]}.\n"
    ]


def _exact(
    rows: Sequence[campaign_table.Row], trainings: Sequence[campaign_table.Trained], figure: str, leads: str
) -> str:
    """How many significant differences the exact test confirms, and the pairs on which the tests disagree, as words."""
    success = {(one.estimator, one.seed): getattr(one, figure) for one in trainings}
    seeds = sorted({seed for _, seed in success})
    pairs = list(combinations([row.estimator for row in rows], 2))
    sides = ([[success[name, seed] for seed in seeds] for name in pair] for pair in pairs)
    adjusted = holm([sign_flip_p_value(*side) for side in sides])
    by_t = {(row.estimator, name): lead.significant for row in rows for name, lead in getattr(row, leads).items()}
    decided = [
        (f"{one} − {other} (p = {p:.2g})", by_t[one, other], p < SIGNIFICANT)
        for (one, other), p in zip(pairs, adjusted, strict=True)
    ]
    lost = [pair for pair, t, exact in decided if t and not exact]
    more = [pair for pair, t, exact in decided if exact and not t]
    of_t = sum(t for _, t, _ in decided)
    said = f"it confirms {of_t - len(lost)} of {of_t}" if of_t else "nothing is significant by t"
    said += f", not {', '.join(lost)}" if 0 < len(lost) <= _MOST_NAMED else ""
    return said + (f"; it finds {', '.join(more)}" if more else "")


def commands(campaign: Campaign, rows: Sequence[campaign_table.Row]) -> str:
    """The commands that make the campaign, as a block of code."""
    recipe, *settings = campaign.settings.split()
    names = " ".join(shlex.quote(row.estimator) for row in rows)
    start = f" --start {campaign.start}" if campaign.start else ""
    common = f"--recipe {recipe}{start} --estimators {names} --at-once 2"
    lines = [f"run runs/campaign {' '.join(settings)} --seeds {rows[0].seeds} {common}"]
    if campaign.chosen_rates and not campaign.trials:
        trials = trials_of(campaign, {row.estimator for row in rows})
        rates = " ".join(f"{rate:g}" for rate in sorted({one.rate for one in trials}))
        updates = f"--updates {trials[0].updates} " if trials[0].updates else ""
        lines.insert(0, f"choose runs/campaign {' '.join(settings)} --rates {rates} {updates}{common}")
    return "".join(f"    python benchmarks/campaign.py {' '.join(line.split())}\n" for line in lines)


def ranges_line(trainings: Sequence[campaign_table.Trained]) -> str:
    """By estimator: success after training of the lowest and the highest seed, trainings that lowered it, and the gain."""
    by_name: dict[str, list[float]] = {}
    before: dict[str, list[float]] = {}
    of_start = campaign_table.success_of_starts(trainings)
    for one in trainings:
        by_name.setdefault(one.estimator, []).append(100 * one.after)
        before.setdefault(one.estimator, []).append(100 * of_start[one.start])
    ranges = [f"{name} {min(after):.1f} to {max(after):.1f}" for name, after in by_name.items()]
    gains = [f"{name} {paired_difference(after, before[name])}" for name, after in by_name.items()]
    fallen = Counter(one.estimator for one in trainings if one.after < of_start[one.start])
    lowered = ", ".join(f"{count} of {len(by_name[name])} of {name}" for name, count in fallen.items())
    ends = f" Trainings that lowered success: {lowered}." if lowered else ""
    return (
        f"Success after training, lowest to highest seed, in %: {'; '.join(ranges)}.{ends}\n\n"
        f"Gain over the warm start, in points: {'; '.join(gains)}.\n"
    )


def pairs_table(rows: Sequence[campaign_table.Row], *, while_training: bool = False) -> str:
    """The differences of all pairs of estimators, in held-out success or in that of the rollouts."""
    names = [row.estimator for row in rows]
    leads = [row.leads_during if while_training else row.leads for row in rows]
    lines = (
        [row.estimator, *(str(each.get(name, "")) for name in names)] for row, each in zip(rows, leads, strict=True)
    )
    return markdown_table(["", *names], lines)
