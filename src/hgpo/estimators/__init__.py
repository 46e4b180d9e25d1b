"""Advantage estimators by name: `compute_advantages` runs one, `register` adds one.

An `Estimator` is a function (batch, gamma, options) -> `Advantages` with a dataclass of its options and with the facts
that are needed before it runs: its label, the columns that it needs, the names of its levels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hgpo.estimators.base import Advantages, Estimator, Level
from hgpo.plugins import Registry
from hgpo.steps import StepBatch

__all__ = ["Advantages", "Estimator", "Level", "compute_advantages", "names", "parse_options", "register"]


ESTIMATORS: Registry[Estimator] = Registry(
    "estimator",
    "hgpo.estimators",
    {
        "dr_grpo": "hgpo.estimators.dr_grpo:DR_GRPO",
        "g2po": "hgpo.estimators.g2po:G2PO",
        "gae": "hgpo.estimators.gae:GAE",
        "gigpo": "hgpo.estimators.gigpo:GIGPO",
        "graphgpo": "hgpo.estimators.graphgpo:GRAPHGPO",
        "grpo": "hgpo.estimators.grpo:GRPO",
        "hgpo": "hgpo.estimators.hgpo:HGPO",
        "mixed_effects": "hgpo.estimators.mixed_effects:MIXED_EFFECTS",
        "nested_td": "hgpo.estimators.nested_td:NESTED_TD",
        "reinforce": "hgpo.estimators.reinforce:REINFORCE",
        "rloo": "hgpo.estimators.rloo:RLOO",
    },
    check=lambda part: None if isinstance(part, Estimator) else "is no `hgpo.estimators.Estimator`",
)
"""Estimators by name; see `hgpo.plugins`."""


def register(
    name: str, compute: Callable[[StepBatch, float, Any], Advantages], options: type[Any], **facts: Any
) -> Estimator:
    """Add an estimator under a new name.

    Args:
        name: the name for `compute_advantages`.
        compute: (batch, gamma, options) -> `Advantages`.
        options: a dataclass whose fields are the options.
        **facts: further attributes of `Estimator`, such as `label`, `needs`, `levels`.

    Raises:
        ValueError: the name is taken, or `options` is not a dataclass.
    """
    return ESTIMATORS.register(name, Estimator(name, compute, options, **facts))


def names() -> tuple[str, ...]:
    """Return the registered names, sorted."""
    return tuple(ESTIMATORS.names())


def parse_options(estimator: str, /, **options: Any) -> Any:
    """Check the options of an estimator without running it, and return an instance of its options class.

    Raises:
        ValueError: an unknown estimator, an unknown option (the message lists the valid ones) or a value out of range.
    """
    return ESTIMATORS.get(estimator).parse(**options)


def compute_advantages(batch: StepBatch, estimator: str = "hgpo", gamma: float = 0.95, **options: Any) -> Advantages:
    """Advantage of every step of a batch.

    Args:
        batch: the steps, N of them.
        estimator: a registered name, see `names`.
        gamma: discount per step of time, 0 to 1.
        **options: fields of the estimator's options class; "hgpo" also takes preset="paper" | "verl-agent".

    Returns:
        `.values` float64[N] and `.returns` float64[N] in the batch's row order; `.levels`, empty for estimators without
        step groups.

    Raises:
        ValueError: an unknown estimator or option, a value out of range, or an error of `Estimator.run`.
        TypeError: `batch` is not a `StepBatch`.
    """
    entry = ESTIMATORS.get(estimator)
    parsed = entry.parse(**options)
    if not isinstance(batch, StepBatch):
        raise TypeError(f"expected a StepBatch, got {type(batch).__name__}; build one with StepBatch.from_columns")
    return entry.run(batch, gamma, parsed)
