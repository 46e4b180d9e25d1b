"""HGPO: one advantage per context length, averaged with weights that grow with the length.

Shapes: N steps in group order, K = history_length. Source: arXiv 2602.22817 §3, published `recipe/hgpo`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from hgpo.estimators.base import Advantages, Estimator, Level, check_choice, check_history, check_integer, check_number
from hgpo.estimators.levels import (
    BASELINES,
    EPSILON,
    MISSING,
    MODES,
    Matching,
    Normalisation,
    critic_level,
    episode_level,
    length_weights,
    step_level,
)
from hgpo.estimators.pooled import pooled_levels
from hgpo.grouping import CONTEXTS, EARLY, GroupedValues, group_steps
from hgpo.returns import discounted_magnitudes, discounted_returns
from hgpo.steps import StepBatch

WEIGHT_TYPES = ("length", "pooled")
PRESETS = MappingProxyType(
    {
        "paper": MappingProxyType({"length_offset": 1, "missing": "zero", "early": "truncate"}),
        "verl-agent": MappingProxyType({"length_offset": 2, "missing": "drop_zero", "early": "drop"}),
    }
)
"""What the presets set; the options not named here are the same in both."""

_LONGEST = 1_000_000
_LENGTH_WEIGHTS_ONLY = ("length_weight_alpha", "length_offset", "base_group", "missing")


@dataclass(frozen=True, slots=True)
class HgpoOptions:
    """Options of HGPO; the defaults are the preset "paper". See docs/algorithms/hgpo.md for each one's meaning.

    Attributes:
        history_length: K, the longest context, at least 0.
        mode: "mean_std_norm" divides by std + epsilon, "mean_norm" does not.
        weight_type: "length", as published, or "pooled": decided by the batch's returns, see `pooled_levels`; it reads
            history_length, mode, early, context, baseline, ddof and epsilon.
        length_weight_alpha: alpha, at least 0; inf uses only level K, with `missing` other than "zero" the longest
            level that has other members.
        length_offset: level k has length L = k + length_offset (paper 1, published code 2).
        base_group: add the episode advantage as one more item of length 1.
        missing: weight of a level that is absent or has no other member: "zero" keeps it (and adds 0), "renormalize"
            spreads it over the others, "drop_zero" also treats a level with advantage 0 as missing.
        early: context of steps with t < k, see `group_steps`.
        context: what must be equal, see `group_steps`.
        baseline: "mean" of the group, "leave_one_out": of the other members, or "critic": the critic's value of the
            step, for which all levels are the same (`critic_level`).
        ddof: 0 population std, 1 unbiased std, of the step levels (the episode item is always unbiased).
        epsilon: added to the std of the step levels.
        match_threshold, match_by, match_kernel, match_own_trajectory: compare similar states, see `Matching`.

    Example: `HgpoOptions.from_preset("verl-agent", history_length=4).missing == "drop_zero"`.
    """

    history_length: int = 2
    mode: str = "mean_std_norm"
    weight_type: str = "length"
    length_weight_alpha: float = 1.0
    length_offset: int = 1
    base_group: bool = False
    missing: str = "zero"
    early: str = "truncate"
    context: str = "observation"
    baseline: str = "mean"
    ddof: int = 0
    epsilon: float = EPSILON
    match_threshold: float = 1.0
    match_by: str = "text"
    match_kernel: str = "uniform"
    match_own_trajectory: bool = True

    def __post_init__(self) -> None:
        check_history(self.history_length)
        check_choice("mode", self.mode, MODES)
        check_choice("weight_type", self.weight_type, WEIGHT_TYPES)
        check_number("length_weight_alpha", self.length_weight_alpha, finite=False)
        check_integer("length_offset", self.length_offset, lowest=1, highest=_LONGEST)
        if not isinstance(self.base_group, (bool, np.bool_)):
            raise ValueError(f"base_group must be True or False, got {self.base_group!r}")
        check_choice("missing", self.missing, MISSING)
        check_choice("early", self.early, EARLY)
        check_choice("context", self.context, CONTEXTS)
        check_choice("baseline", self.baseline, BASELINES)
        check_integer("ddof", self.ddof, lowest=0, highest=1)
        check_number("epsilon", self.epsilon)
        if self.weight_type == "pooled" and self.baseline == "critic":
            raise ValueError("weight_type='pooled' needs group means: remove baseline='critic'")
        if Matching.of(self).soft and (self.context == "prompt" or self.weight_type == "pooled"):
            raise ValueError(
                "context='prompt' and weight_type='pooled' compare equal states only: set match_threshold = 1"
            )

    @classmethod
    def from_preset(cls, preset: str = "paper", **options: Any) -> HgpoOptions:
        """Options of a preset, with `options` given explicitly taking precedence.

        Raises:
            ValueError: an unknown preset, a value out of range, or options that weight_type="pooled" does not read.
        """
        check_choice("preset", preset, tuple(PRESETS))
        unread = [name for name in _LENGTH_WEIGHTS_ONLY if name in options]
        if options.get("weight_type") == "pooled" and unread:
            raise ValueError(f"{', '.join(unread)} has no meaning with weight_type='pooled': leave it out")
        return cls(**{**PRESETS[preset], **options})


def hgpo(batch: StepBatch, gamma: float, options: HgpoOptions) -> Advantages:
    """HGPO advantages: A = sum_{k=0..K} w_k A_k, one term for each context length.

        A_k = (R - mean(G_k)) / F                     F = std + epsilon, or 1     (`step_level`)
        w_k = (k + 1)^alpha / sum_l (l + 1)^alpha     paper                       (`length_weights`)

    R is the discounted step return minus the step's penalty. `length_offset`, `missing` and `base_group` change the
    weights w_k. Deviations of the published code are preset "verl-agent".

    Raises:
        ValueError: context="prompt" and a step has no prompt, or match_by="text" and an observation is not text.
    """
    groups = group_steps(batch, options.history_length, options.context, options.early)
    returns = discounted_returns(batch, gamma)
    compared = GroupedValues(returns[groups.row_N], discounted_magnitudes(batch, gamma, groups.row_N))
    norm = Normalisation(options.mode, options.baseline, options.ddof, options.epsilon)
    if options.weight_type == "pooled":
        return Advantages.of(returns, pooled_levels(batch, groups, compared, norm))
    matches = Matching.of(options).levels(batch, groups, options.context, options.early)
    terms = [step_level(k, groups, compared, norm, matches=each) for k, each in enumerate(matches)]
    if options.baseline == "critic":
        terms = [critic_level(term, batch, gamma, norm) for term in terms]
    lengths = [k + options.length_offset for k in range(len(terms))]
    if options.base_group:
        others = "leave_one_out" if options.baseline == "leave_one_out" else "mean"
        terms.insert(0, episode_level(batch, groups, Normalisation(options.mode, others)))
        lengths.insert(0, 1)
    return Advantages.of(returns, _by_length(terms, lengths, options))


def _by_length(terms: list[Level], lengths: list[int], options: HgpoOptions) -> list[Level]:
    """Set the weight of each level, which depends on its length; the published code drops levels with advantage 0."""
    used_IN = [term.advantage_N != 0.0 if options.missing == "drop_zero" else term.used_N for term in terms]
    weights = length_weights(lengths, options.length_weight_alpha, used_IN, options.missing)
    return [term.weighted(w_N, used_N) for term, w_N, used_N in zip(terms, weights, used_IN, strict=True)]


def columns_needed(options: HgpoOptions) -> tuple[str, ...]:
    """The optional columns of `StepBatch` that these options need."""
    others = (("value",) if options.baseline == "critic" else ()) + Matching.of(options).needs
    if options.context == "prompt":
        return ("prompt", *others)
    return ("action", *others) if options.context == "observation_action" and options.history_length else others


def level_names(options: HgpoOptions) -> tuple[str, ...]:
    """What the steps of a level-k group have in common, k = 0..K."""
    if options.context == "prompt":
        return ("same prompt",)
    actions = ", actions included" if options.context == "observation_action" else ""
    return Matching.of(options).level_names(options.history_length, f"of history{actions}")


HGPO = Estimator(
    "hgpo",
    hgpo,
    HgpoOptions,
    label="HGPO",
    needs=columns_needed,
    levels=level_names,
    make_options=HgpoOptions.from_preset,
    extra_keywords=("preset",),
)
