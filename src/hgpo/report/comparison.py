"""Which estimators a report sets side by side: the one that trained, and the well-known ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hgpo.estimators import get, parse_options


@dataclass(frozen=True, slots=True)
class Training:
    """How the steps were trained on, where that is known.

    Attributes:
        estimator: what advantages were computed with.
        options: its options.
        gamma: the discount.
        metrics: the rows of metrics.jsonl.

    Example: `Training("hgpo", {"history_length": 2}, 0.95)`.
    """

    estimator: str = "hgpo"
    options: Mapping[str, Any] = field(default_factory=dict)
    gamma: float = 0.95
    metrics: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class ShownEstimator:
    """One estimator with its options.

    Attributes:
        key: short and unique, for links. label: what people read. name, options: for `compute_advantages`.
        needs: columns without which it cannot be computed.
        trained: whether these are the advantages that were trained on.

    Example: `ShownEstimator("verl", "HGPO (verl-agent)", "hgpo", {"preset": "verl-agent", "history_length": 2})`.
    """

    key: str
    label: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    trained: bool = False


def shown_estimators(training: Training | None) -> tuple[ShownEstimator, ...]:
    """The estimators of a report, the one that trained first.

    All take the history length and mode of the one that trained (else 2 and "mean_std_norm"), so that they differ in
    what they compare and not in their units.
    """
    options = dict(training.options) if training else {}
    history = {"history_length": options.get("history_length", 2)}
    mode = {"mode": options["mode"]} if "mode" in options else {}
    known = (
        ShownEstimator("paper", "HGPO (paper)", "hgpo", {"preset": "paper", **history, **mode}),
        ShownEstimator("verl", "HGPO (verl-agent)", "hgpo", {"preset": "verl-agent", **history, **mode}),
        ShownEstimator("pooled", "HGPO (pooled)", "hgpo", {"weight_type": "pooled", **history, **mode}),
        ShownEstimator("gigpo", "GiGPO", "gigpo", mode),
        ShownEstimator("grpo", "GRPO", "grpo", mode),
        ShownEstimator("mixed", "Mixed effects", "mixed_effects", {**history, **mode}, needs=("action",)),
        ShownEstimator("prompt", "HGPO (equal prompts)", "hgpo", {"context": "prompt", **mode}, needs=("prompt",)),
    )
    if training is None:
        return known
    wanted = (training.estimator, parse_options(training.estimator, **options))
    same = next((shown for shown in known if (shown.name, parse_options(shown.name, **shown.options)) == wanted), None)
    if same is None:
        label = f"{training.estimator} (as trained)"
        first = ShownEstimator("trained", label, training.estimator, options, _needs(training.estimator), trained=True)
    else:
        first = ShownEstimator(same.key, same.label, same.name, same.options, same.needs, trained=True)
    return (first, *(shown for shown in known if shown is not same))


def level_estimator(estimators: tuple[ShownEstimator, ...]) -> ShownEstimator:
    """The estimator whose levels the overview follows: the one that trained, or HGPO (paper) if that has no levels."""
    first = estimators[0]
    if "history_length" in get(first.name).keywords and first.name == "hgpo":
        return first
    return next(shown for shown in estimators if shown.key == "paper")


def _needs(name: str) -> tuple[str, ...]:
    return {"gae": ("value",), "mixed_effects": ("action",)}.get(name, ())
