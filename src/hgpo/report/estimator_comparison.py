"""The estimators that a report compares: the explained one and the common ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hgpo.estimators import ESTIMATORS, parse_options
from hgpo.estimators.levels import MODES


@dataclass(frozen=True, slots=True)
class Training:
    """The estimator that a report explains, and what is known of the training.

    Attributes:
        estimator: name of the estimator.
        options: its options.
        gamma: the discount.
        metrics: the rows of metrics.jsonl.
        facts: see `hgpo.report.run_facts.run_facts`; None without a run.
        trained: whether the policy was trained with this estimator, these options and this discount.
    """

    estimator: str = "hgpo"
    options: Mapping[str, Any] = field(default_factory=dict)
    gamma: float = 0.95
    metrics: Sequence[Mapping[str, Any]] = ()
    facts: Mapping[str, Any] | None = None
    trained: bool = True


NO_TRAINING = Training(trained=False)
"""HGPO with its defaults, for steps of which nothing else is known."""


@dataclass(frozen=True, slots=True)
class ReportEstimator:
    """One estimator with its options.

    Attributes:
        key: short and unique, for links.
        label: name in the report.
        name: for `compute_advantages`.
        options: for `compute_advantages`.
        trained: whether these are the advantages that were trained on.
    """

    key: str
    label: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    trained: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        """Columns without which it cannot be computed."""
        return ESTIMATORS.get(self.name).needs(self.parsed)

    @property
    def levels(self) -> tuple[str, ...]:
        """What the members of its step groups share, per level; empty without levels."""
        return ESTIMATORS.get(self.name).levels(self.parsed)

    @property
    def parsed(self) -> Any:
        """The options as the estimator's dataclass."""
        return parse_options(self.name, **self.options)


def report_estimators(training: Training) -> tuple[ReportEstimator, ...]:
    """The estimators that a report compares. The explained one comes first.

    All use its history length and mode (default: 2, "mean_std_norm"), so that they differ in method and not in units.
    """
    options = training.options
    history = {"history_length": options.get("history_length", 2)}
    mode = {"mode": options["mode"]} if options.get("mode") in MODES else {}  # some estimators have other modes
    known = (
        _known("paper", "hgpo", {"preset": "paper", **history, **mode}, "paper"),
        _known("verl", "hgpo", {"preset": "verl-agent", **history, **mode}, "verl-agent"),
        _known("pooled", "hgpo", {"weight_type": "pooled", **history, **mode}, "pooled"),
        _known("gigpo", "gigpo", mode),
        _known("grpo", "grpo", mode),
        _known("mixed", "mixed_effects", {**history, **mode}),
        _known("prompt", "hgpo", {"context": "prompt", **mode}, "equal prompts"),
    )
    wanted = (training.estimator, parse_options(training.estimator, **options))
    same = next((one for one in known if (one.name, one.parsed) == wanted), None)
    variant = "as trained" if training.trained else "given options" if options else ""
    first = same or _known("trained", training.estimator, options, variant)
    return (replace(first, trained=training.trained), *(one for one in known if one is not same))


def _known(key: str, name: str, options: Mapping[str, Any], variant: str = "") -> ReportEstimator:
    label = ESTIMATORS.get(name).label
    return ReportEstimator(key, f"{label} ({variant})" if variant else label, name, options)


def paper_settings(estimators: Sequence[ReportEstimator]) -> ReportEstimator:
    """HGPO with the paper's settings, which every report has."""
    return next(one for one in estimators if one.key == "paper")


def level_estimator(estimators: Sequence[ReportEstimator]) -> ReportEstimator:
    """The estimator whose step levels tables and charts show: the first or, if it has none, HGPO (paper)."""
    return estimators[0] if estimators[0].levels else paper_settings(estimators)


def whose_levels(estimators: Sequence[ReportEstimator]) -> str:
    """A text that names the levels of tables and charts, such as "levels of GiGPO"."""
    first, shown = estimators[0], level_estimator(estimators)
    if shown is first:
        return f"levels of {first.label}"
    return f"step levels of {shown.label}, because {ESTIMATORS.get(first.name).label} has none"
