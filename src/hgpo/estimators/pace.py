"""PACE: episode advantage plus the mean return of the step's action in its state over that of the state.

Shapes: N steps. Source: arXiv 2606.25556 (BiPACE), at second hand: from a description of it, not from the paper or its
code. Theirs clusters hidden states of the policy; here a state is an observation, equal or similar.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hgpo.estimators.action_cells import action_cells
from hgpo.estimators.advantages import Advantages
from hgpo.estimators.checks import check_choice, check_number
from hgpo.estimators.episode import episode_level
from hgpo.estimators.estimator import Estimator
from hgpo.estimators.normalise import MODES, Compared, Normalisation, group_statistics, normalised
from hgpo.estimators.similarity import check_threshold, seen_as_similar
from hgpo.estimators.step_level import step_level
from hgpo.grouping import Runs, group_steps
from hgpo.returns import discounted_magnitudes, discounted_returns
from hgpo.steps import StepBatch


@dataclass(frozen=True, slots=True)
class PaceOptions:
    """Options of PACE.

    Attributes:
        mode: "mean_std_norm" divides both terms by their unbiased std + 1e-6, "mean_norm" neither.
        step_advantage_w: weight of the step term, at least 0.
        similarity_threshold: above 0 and at most 1: observations of a task whose texts have at least this similarity
            ratio count as the same, see `similar_observations`. None: only equal observations do.

    Example: `compute_advantages(batch, "pace", similarity_threshold=0.9)`.
    """

    mode: str = "mean_std_norm"
    step_advantage_w: float = 1.0
    similarity_threshold: float | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for an option out of its range."""
        check_choice("mode", self.mode, MODES)
        check_number("step_advantage_w", self.step_advantage_w)
        check_threshold(self.similarity_threshold)


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
    step = replace(
        step_level(0, groups, compared, how, batch.trajectory),
        advantage_N=normalised(effects, runs, how),
        weight_N=float(options.step_advantage_w),
    )
    return Advantages.of(return_N, (episode_level(batch, groups, how), step))


PACE = Estimator(
    "pace",
    pace,
    PaceOptions,
    label="PACE",
    needs=lambda options: ("action",),
    levels=lambda options: ("same state" if options.similarity_threshold is None else "similar state",),
)
