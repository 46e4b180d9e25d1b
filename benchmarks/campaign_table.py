"""The stored trainings of benchmarks/campaign.py, and their tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from hgpo.columns import FloatArray
from hgpo.utils.files import write_text
from paired import SIGNIFICANT, Difference, holm, paired_difference
from stored_rows import json_rows, markdown_table

HERE = Path(__file__).parent
STORED = HERE / "campaign.json"
RATES = HERE / "campaign_rates.json"
REFERENCE = "gigpo"
"""The estimator that the others are compared with; without trainings of it, the first of ESTIMATORS that has some."""
_G2PO_KEY = ("rollout.state=published_g2po",)
OF_KEY = " G2PO key"
"""End of a row's name: the same estimator with G2PO's state key, where other rows of the campaign have the text."""
ESTIMATORS: dict[str, tuple[str, ...]] = {
    REFERENCE: ("advantage.estimator=gigpo",),
    "hgpo paper": ("advantage.estimator=hgpo",),
    "hgpo verl-agent": ("advantage.estimator=hgpo", "advantage.options.preset=verl-agent"),
    "hgpo mean_norm": ("advantage.estimator=hgpo", "advantage.options.mode=mean_norm"),
    "grpo": ("advantage.estimator=grpo",),
    "atd": ("advantage.estimator=atd:ATD", "advantage.options.mode=batch_std"),
    "mixed_effects": ("advantage.estimator=mixed_effects",),
    "g2po": ("advantage.estimator=g2po",),
    "graphgpo": ("advantage.estimator=graphgpo",),
    "ppo": ("advantage.estimator=gae", "advantage.options.mode=mean_std_norm"),
    "nested_td": ("advantage.estimator=nested_td", "advantage.options.mode=batch_std"),
    f"gigpo{OF_KEY}": ("advantage.estimator=gigpo", *_G2PO_KEY),
    f"graphgpo{OF_KEY}": ("advantage.estimator=graphgpo", *_G2PO_KEY),
}
"""Name of a row -> its settings. ATD's advantages are divided by the batch's std, so one learning rate fits all."""
_NO_OPTIONS = ("advantage.options={}",)
OF_ENVIRONMENT: dict[str, dict[str, tuple[str, ...]]] = {
    "alfworld": {"g2po": _G2PO_KEY, "nested_td": _G2PO_KEY},
    "backoffice": {"grpo": _NO_OPTIONS, "gigpo": _NO_OPTIONS},
}
"""Environment -> name of a row -> further settings. In household games, the published G2PO has a special state key; in
the back office, the recipe's `history_length` is an option of HGPO and NestedTD only. Settings for all trainings of a
campaign win over them."""
FEWEST_SEEDS = 3
"""Fewest seeds of a table: two do not show the spread between seeds."""


@dataclass(frozen=True, slots=True)
class Trained:
    """One finished training.

    Attributes:
        estimator, seed: name of the row, and the training seed.
        settings: the recipe and the overrides for all its trainings, as given on the command line.
        start: first digits of the SHA-256 of the start's weights; only trainings from one start are compared.
        before, after: success on the held-out tasks, 0-1. during: mean success of the rollouts over all updates.
        minutes: wall time, with other work on the machine; some early rows lack the time before an interruption.
        rate: the chosen learning rate as a setting; "": the recipe's.
    """

    estimator: str
    seed: int
    settings: str
    start: str
    before: float
    after: float
    during: float
    minutes: float
    rate: str = ""


@dataclass(frozen=True, slots=True)
class Lead:
    """One estimator minus another, paired by seed, in points of success.

    Attributes:
        difference: the mean difference with its interval.
        adjusted: the difference's p value, corrected by Holm's method for all pairs of the table.
    """

    difference: Difference
    adjusted: float

    @property
    def significant(self) -> bool:
        """Whether the difference is significant after the correction for all pairs of the table."""
        return self.adjusted < SIGNIFICANT

    def __str__(self) -> str:
        """The difference with half of its interval, and "n.s." if it is not significant."""
        return f"{self.difference}{'' if self.significant else ' n.s.'}"


@dataclass(frozen=True, slots=True)
class Row:
    """One estimator over the complete seeds, in points of success.

    Attributes:
        after, during: mean success on held-out tasks, and of the rollouts while training.
        leads, leads_during: leads over every other estimator of the table, by its name.
        reference: the estimator with which the conclusion compares.
    """

    estimator: str
    seeds: int
    after: float
    during: float
    leads: dict[str, Lead]
    leads_during: dict[str, Lead]
    reference: str = REFERENCE

    @property
    def is_reference(self) -> bool:
        """Whether the others are compared with this estimator."""
        return self.estimator == self.reference


@dataclass(frozen=True, slots=True)
class RateTrial:
    """One training that helps to choose an estimator's learning rate.

    Attributes:
        estimator, rate: name of the row, and the learning rate.
        settings: as in `Trained`.
        start: as in `Trained`.
        success: success that decides on the rate, 0-1: on `CHOOSING_SPLIT`, or of the last third's rollouts.
        during: mean success of the rollouts over all updates; None: not recorded.
        updates: number of updates of the trial; 0: as many as in the settings.
    """

    estimator: str
    rate: float
    settings: str
    start: str
    success: float
    during: float | None
    updates: int = 0


def rate_trials() -> list[RateTrial]:
    """All finished trials."""
    return [RateTrial(**row) for row in json.loads(RATES.read_text(encoding="utf-8"))] if RATES.exists() else []


def store_rate_trials(done: list[RateTrial]) -> None:
    """Write the trials, one per line."""
    _write_lines(RATES, sorted(done, key=lambda one: (one.settings, one.estimator, one.rate)))


def chosen_rate(estimator: str, settings: str) -> tuple[str, ...]:
    """The setting of the learning rate with the highest success in `rate_trials`; () if there are none."""
    trials = [one for one in rate_trials() if (one.estimator, one.settings) == (estimator, settings)]
    if not trials:
        return ()
    return (f"training.learning_rate={best_trial(trials).rate:g}",)


def best_trial(trials: Sequence[RateTrial]) -> RateTrial:
    """The trial whose rate is chosen: the highest success; of equal ones, the highest success while training."""
    return max(trials, key=lambda one: (one.success, one.during or 0.0))


def settings_of(estimator: str, environment: str) -> tuple[str, ...]:
    """Settings of a row in an environment, which is named as in `environment.name`."""
    return ESTIMATORS[estimator] + OF_ENVIRONMENT.get(environment, {}).get(estimator, ())


def stored() -> list[Trained]:
    """All finished trainings."""
    return [Trained(**row) for row in json.loads(STORED.read_text(encoding="utf-8"))] if STORED.exists() else []


def store(done: list[Trained]) -> None:
    """Write the trainings, one per line."""
    _write_lines(STORED, sorted(done, key=lambda one: (one.settings, one.seed, one.estimator)))


def _write_lines(path: Path, trainings: Sequence[Trained | RateTrial]) -> None:
    write_text(path, json_rows(map(asdict, trainings)) + "\n")


def rows(done: list[Trained]) -> list[Row]:
    """The table of one campaign, over the seeds that all its estimators have finished from one start."""
    done = of_complete_seeds(done)
    names = [name for name in ESTIMATORS if name in {one.estimator for one in done}]
    found = {(one.estimator, one.seed): one for one in done}
    seeds = sorted({one.seed for one in done})
    if len(seeds) < FEWEST_SEEDS or len(names) < 2:
        return []
    after_ES = 100.0 * np.array([[found[name, seed].after for seed in seeds] for name in names])
    during_ES = 100.0 * np.array([[found[name, seed].during for seed in seeds] for name in names])
    after, during = _leads(names, after_ES), _leads(names, during_ES)
    return [
        Row(name, len(seeds), after_S.mean(), during_S.mean(), after[name], during[name], reference=names[0])
        for name, after_S, during_S in zip(names, after_ES, during_ES, strict=True)
    ]


def of_complete_seeds(done: Sequence[Trained]) -> list[Trained]:
    """The trainings of the seeds that all estimators of a campaign have finished from one start."""
    names = {one.estimator for one in done}
    by_seed: dict[int, list[Trained]] = {}
    for one in done:
        by_seed.setdefault(one.seed, []).append(one)
    complete = (
        here
        for here in by_seed.values()
        if {one.estimator for one in here} == names and len({one.start for one in here}) == 1
    )
    return [one for here in complete for one in here]


def success_of_starts(done: Sequence[Trained]) -> dict[str, float]:
    """Start -> its success before training, 0-1: the most frequent one, since rounding can change it."""
    found: dict[str, Counter[float]] = {}
    for one in done:
        found.setdefault(one.start, Counter())[one.before] += 1
    return {start: counts.most_common(1)[0][0] for start, counts in found.items()}


def _leads(names: Sequence[str], success_ES: FloatArray) -> dict[str, dict[str, Lead]]:
    """The leads of every estimator over every other; p values are corrected for all pairs."""
    pairs = list(combinations(range(len(names)), 2))
    adjusted = holm([paired_difference(success_ES[one], success_ES[other]).p_value for one, other in pairs])
    found: dict[str, dict[str, Lead]] = {name: {} for name in names}
    for (one, other), p_value in zip(pairs, adjusted, strict=True):
        for this, that in ((one, other), (other, one)):
            difference = paired_difference(success_ES[this], success_ES[that], len(pairs))
            found[names[this]][names[that]] = Lead(difference, p_value)
    return found


def tables() -> dict[str, list[Row]]:
    """`Trained.settings` -> rows of the table; no rows if there are too few seeds."""
    done = stored()
    by_settings = {one.settings: [other for other in done if other.settings == one.settings] for one in done}
    return {settings: rows(trainings) for settings, trainings in sorted(by_settings.items())}


def claim(row: Row) -> str:
    """The conclusion from a row, in one sentence."""
    if row.is_reference:
        return "Reference."
    held_out, during = row.leads[row.reference], row.leads_during[row.reference]
    if held_out.significant:
        return f"{'Better' if held_out.difference.mean > 0 else 'Worse'} than {row.reference} on held-out tasks."
    if during.significant:
        wins = f"Wins {'more' if during.difference.mean > 0 else 'less'} often than {row.reference} while training"
        return f"{wins}; no significant difference on held-out tasks."
    return f"No significant difference to {row.reference}."


def as_markdown(found: list[Row]) -> str:
    """The rows as a Markdown table."""
    reference = found[0].reference
    lines = []
    for row in found:
        after, during = (
            "" if row.is_reference else str(leads[reference].difference) for leads in (row.leads, row.leads_during)
        )
        lines.append([row.estimator, f"{row.after:.1f}", after, f"{row.during:.1f}", during, claim(row)])
    heads = ["estimator", "after, %", f"− {reference}", "while training, %", f"− {reference}", "conclusion"]
    return markdown_table(heads, lines)


def detectable(found: list[Row]) -> float:
    """Median over the table's pairs of the least difference in held-out success found in 80 of 100 cases."""
    return float(np.median([lead.difference.detectable for row in found for lead in row.leads.values()]))
