"""Advantage estimators by name: `compute_advantages` runs one, `register` adds one.

An estimator is a function (batch, gamma, options) -> `Advantages` and a dataclass of its options.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from hgpo.estimators.advantages import Advantages, Level
from hgpo.estimators.dr_grpo import DrGrpoOptions, dr_grpo
from hgpo.estimators.g2po import G2poOptions, g2po
from hgpo.estimators.gae import GaeOptions, gae
from hgpo.estimators.gigpo import GigpoOptions, gigpo
from hgpo.estimators.graphgpo import GraphgpoOptions, graphgpo
from hgpo.estimators.grpo import GrpoOptions, grpo
from hgpo.estimators.hgpo import HgpoOptions, hgpo
from hgpo.estimators.mixed_effects import MixedEffectsOptions, mixed_effects
from hgpo.estimators.reinforce import ReinforceOptions, reinforce
from hgpo.estimators.rloo import RlooOptions, rloo
from hgpo.plugins import Registry
from hgpo.returns import check_gamma
from hgpo.steps import StepBatch

__all__ = ["Advantages", "Estimator", "Level", "compute_advantages", "get", "names", "parse_options", "register"]


@dataclasses.dataclass(frozen=True, slots=True)
class Estimator:
    """A named estimator.

    Attributes:
        name: what users write. compute: (batch, gamma, options) -> `Advantages`.
        options: dataclass of the options; its defaults are the estimator's.
        make_options: builds the options from keywords, `options` itself unless presets are involved.
        keywords: the keywords it takes.

    Example: `get("grpo").keywords == ("mode", "count")`.
    """

    name: str
    compute: Callable[[StepBatch, float, Any], Advantages]
    options: type[Any]
    make_options: Callable[..., Any]
    keywords: tuple[str, ...]


def _no_estimator(part: Any) -> str | None:
    return None if isinstance(part, Estimator) else "is no `hgpo.estimators.Estimator`"


ESTIMATORS: Registry[Estimator] = Registry("estimator", "hgpo.estimators", check=_no_estimator)
"""Estimators by name; see `hgpo.plugins`."""


def register(
    name: str,
    compute: Callable[[StepBatch, float, Any], Advantages],
    options: type[Any],
    make_options: Callable[..., Any] | None = None,
    extra_keywords: tuple[str, ...] = (),
) -> Estimator:
    """Add an estimator under a new name.

    Args:
        name: the name for `compute_advantages`. compute: (batch, gamma, options) -> `Advantages`.
        options: a dataclass whose fields are the options.
        make_options, extra_keywords: a builder that takes more keywords than the fields (such as "preset"), and which.

    Raises:
        ValueError: the name is taken, or `options` is not a dataclass.
    """
    if not (isinstance(options, type) and dataclasses.is_dataclass(options)):
        raise ValueError(f"options of estimator {name!r} must be a dataclass")
    keywords = extra_keywords + tuple(option.name for option in dataclasses.fields(options))
    return ESTIMATORS.register(name, Estimator(name, compute, options, make_options or options, keywords))


def names() -> tuple[str, ...]:
    """Return the registered names, sorted."""
    return tuple(ESTIMATORS.names())


def get(name: str) -> Estimator:
    """Return an estimator by name.

    Raises:
        ValueError: no such name; the message lists the known ones.
    """
    return ESTIMATORS.get(name)


def parse_options(estimator: str, **options: Any) -> Any:
    """Check the options of an estimator without running it; cheap, so configuration errors can surface early.

    Raises:
        ValueError: an unknown estimator, an unknown option (the message lists the valid ones) or a value out of range.
    """
    entry = get(estimator)
    unknown = [option for option in options if option not in entry.keywords]
    if unknown:
        raise ValueError(
            f"unknown option {', '.join(map(repr, unknown))} for estimator {estimator!r}; "
            f"valid: {', '.join(entry.keywords)}"
        )
    return entry.make_options(**options)


def compute_advantages(batch: StepBatch, estimator: str = "hgpo", gamma: float = 0.95, **options: Any) -> Advantages:
    """Advantage of every step of a batch.

    Args:
        batch: the steps, N of them.
        estimator: a registered name, see `names`.
        gamma: discount per step of time, 0 to 1.
        **options: the estimator's own, see its options class; "hgpo" also takes preset="paper" | "verl-agent".

    Returns:
        `.values` float64[N] and `.returns` float64[N] in the batch's row order; `.levels` where there are step groups.

    Raises:
        ValueError: an unknown estimator or option, a value out of range, or a column that is needed and missing.
        TypeError: `batch` is not a `StepBatch`.
    """
    entry = get(estimator)
    parsed = parse_options(estimator, **options)
    if not isinstance(batch, StepBatch):
        raise TypeError(f"expected a StepBatch, got {type(batch).__name__}; build one with StepBatch.from_columns")
    return entry.compute(batch, check_gamma(gamma), parsed)


register("grpo", grpo, GrpoOptions)
register("gigpo", gigpo, GigpoOptions)
register("g2po", g2po, G2poOptions)
register("graphgpo", graphgpo, GraphgpoOptions)
register("dr_grpo", dr_grpo, DrGrpoOptions)
register("rloo", rloo, RlooOptions)
register("reinforce", reinforce, ReinforceOptions)
register("gae", gae, GaeOptions)
register("hgpo", hgpo, HgpoOptions, make_options=HgpoOptions.from_preset, extra_keywords=("preset",))
register("mixed_effects", mixed_effects, MixedEffectsOptions)
