"""ECPO: episode advantage plus the shrunken mean of the step's action in its state, as far as actions explain returns.

Shapes: N steps. Source: arXiv 2606.05885, at second hand: from a description of it, not from the paper or its code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hgpo.columns import FloatArray
from hgpo.estimators.action_cells import action_cells
from hgpo.estimators.advantages import Advantages
from hgpo.estimators.checks import check_choice, check_number
from hgpo.estimators.episode import episode_level
from hgpo.estimators.estimator import Estimator
from hgpo.estimators.normalise import MODES, Compared, Normalisation, group_statistics
from hgpo.estimators.step_level import step_level
from hgpo.grouping import Runs, group_steps
from hgpo.returns import discounted_magnitudes, discounted_returns
from hgpo.steps import StepBatch


@dataclass(frozen=True, slots=True)
class EcpoOptions:
    """Options of ECPO; the description names none of their values, so these defaults are the project's.

    Attributes:
        mode: "mean_std_norm" divides both terms by their unbiased std + 1e-6, "mean_norm" neither.
        step_advantage_w: weight of the step term, at least 0.
        prior: kappa, how many steps with the mean return of the state are added to those of an action, at least 0.
        evidence: tau, above 0: an action that was taken n times counts tanh(n / tau).
    """

    mode: str = "mean_std_norm"
    step_advantage_w: float = 1.0
    prior: float = 1.0
    evidence: float = 2.0

    def __post_init__(self) -> None:
        """Raise ValueError for an option out of its range."""
        check_choice("mode", self.mode, MODES)
        check_number("step_advantage_w", self.step_advantage_w)
        check_number("prior", self.prior)
        if check_number("evidence", self.evidence) == 0.0:
            raise ValueError("evidence must be above 0, got 0")


def ecpo(batch: StepBatch, gamma: float, options: EcpoOptions) -> Advantages:
    """A = A_episode + step_advantage_w * tanh(n / tau) * B / (B + W) * (m~ - m) / F.

        m~ = (n * m_action + kappa * m) / (n + kappa)

    m is the mean return of the step's state (equal observation in its task), m_action of the n steps there that took
    the same action; B and W are the variances of the returns between and within the actions of the state, over its
    steps, B / (B + W) = 0 where all are equal. `levels[0].weight` holds the first three factors.
    """
    assert batch.action is not None, "`ECPO.needs` says so"
    groups, how = group_steps(batch, history_length=0), Normalisation(options.mode)
    return_N, runs = discounted_returns(batch, gamma), Runs.from_starts(groups.starts[0])
    compared = Compared(return_N[groups.row_N], discounted_magnitudes(batch, gamma, groups.row_N))
    statistics = group_statistics(compared, runs, how.ddof)

    cells = action_cells(runs, batch.action[groups.row_N])
    within_N = cells.spread(statistics.deviation_N).deviation_N
    effect_N = statistics.deviation_N - within_N
    explained_G = _explained(runs, effect_N, within_N)
    shrunken = replace(statistics, deviation_N=cells.count_N / (cells.count_N + options.prior) * effect_N)
    step = step_level(0, groups, compared, how, batch.trajectory, shrunken)
    weight_N = options.step_advantage_w * np.tanh(cells.count_N / options.evidence) * explained_G[runs.run_N]
    return Advantages.of(return_N, (episode_level(batch, groups, how), step.weighted(weight_N)))


def _explained(runs: Runs, between_N: FloatArray, within_N: FloatArray) -> FloatArray:
    """Share B / (B + W) of each state, float64[G]; 0 where nothing varies."""
    between_G, within_G = (np.bincount(runs.run_N, weights=part_N**2) for part_N in (between_N, within_N))
    total_G = between_G + within_G
    share_G: FloatArray = between_G / np.where(total_G > 0.0, total_G, 1.0)
    return share_G


ECPO = Estimator(
    "ecpo",
    ecpo,
    EcpoOptions,
    label="ECPO",
    needs=lambda options: ("action",),
    levels=lambda options: ("same state",),
)
