"""PACE: episode advantage plus the mean return of the step's action in its state over that of the state.

Shapes: N steps. Source: arXiv 2606.25556 (BiPACE), at second hand: from a description of it, not from the paper or its
code. Theirs clusters hidden states of the policy; here a state is an observation, equal or similar.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hgpo.estimators.action_cells import action_cells
from hgpo.estimators.advantages import Advantages
from hgpo.estimators.episode import episode_level
from hgpo.estimators.estimator import Estimator
from hgpo.estimators.gigpo import GigpoOptions, level_names
from hgpo.estimators.normalise import Compared, Normalisation, group_statistics
from hgpo.estimators.similarity import seen_as_similar
from hgpo.estimators.step_level import step_level
from hgpo.grouping import Runs, group_steps
from hgpo.returns import discounted_magnitudes, discounted_returns
from hgpo.steps import StepBatch


@dataclass(frozen=True, slots=True)
class PaceOptions(GigpoOptions):
    """Options of PACE, which are those of GiGPO."""


def pace(batch: StepBatch, gamma: float, options: PaceOptions) -> Advantages:
    """A = A_episode + step_advantage_w * (Q(s, a) - V(s)) / F.

    V is the mean return of the task's steps in the state, Q that of those which took the same action there, F the
    unbiased std of the state's returns + 1e-6 or, with "mean_norm", 1.

    Raises:
        ValueError: a similarity_threshold and an observation that is not text.
    """
    assert batch.action is not None, "`PACE.needs` says so"
    groups = group_steps(seen_as_similar(batch, options.similarity_threshold), history_length=0)
    how = Normalisation(options.mode)
    return_N, runs = discounted_returns(batch, gamma), Runs.from_starts(groups.starts[0])
    compared = Compared(return_N[groups.row_N], discounted_magnitudes(batch, gamma, groups.row_N))
    statistics = group_statistics(compared, runs, how.ddof)

    luck_N = action_cells(runs, batch.action[groups.row_N]).spread(statistics.deviation_N).deviation_N
    effects = replace(statistics, deviation_N=statistics.deviation_N - luck_N)
    step = step_level(0, groups, compared, how, batch.trajectory, effects).weighted(float(options.step_advantage_w))
    return Advantages.of(return_N, (episode_level(batch, groups, how), step))


PACE = Estimator(
    "pace",
    pace,
    PaceOptions,
    label="PACE",
    needs=lambda options: ("action",),
    levels=level_names,
)
