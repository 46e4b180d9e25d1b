"""The types of an estimator (`Estimator`) and of its result (`Advantages`, `Level`), and checks of options.

A level records for every step whether it was used, or the reason why not (`Unused`).

Shapes: N steps, G groups of one level. Arrays suffixed _N are in group order, public columns in the batch's row order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgpo.columns import BoolArray, ColumnError, FloatArray, IntArray
from hgpo.estimators.matches import Matches
from hgpo.grouping import GroupedValues, GroupStatistics, Runs, changes, group_statistics
from hgpo.plugins import BREAKS
from hgpo.returns import check_gamma
from hgpo.steps import StepBatch
from hgpo.utils.text import describe_error, did_you_mean


class Unused(IntEnum):
    """Why a level was not used for a step; the codes of `Level.unused`.

    Attributes:
        NO: the level was used.
        NO_CONTEXT: the step has no group at this level: fewer than k steps came before it (early="drop").
        ALONE: the step is the only member of its group.
        DROPPED: the group has other members, but the step's advantage at this level is 0 (missing="drop_zero").
        ONLY_TRAJECTORY: at the episode level, the step's trajectory is the only one of its task.
    """

    NO = 0
    NO_CONTEXT = 1
    ALONE = 2
    DROPPED = 3
    ONLY_TRAJECTORY = 4

    @property
    def text(self) -> str:
        """The reason as a phrase."""
        return _UNUSED_TEXT[self]


_UNUSED_TEXT = {
    Unused.NO: "used",
    Unused.NO_CONTEXT: "no context of that length yet",
    Unused.ALONE: "alone in its group",
    Unused.DROPPED: "left out because its advantage is 0",
    Unused.ONLY_TRAJECTORY: "the only trajectory of its task",
}


@dataclass(frozen=True, slots=True, eq=False)
class ComparedSteps:
    """The steps that each step of a level is compared with: its group, or all groups that match its group.

    Attributes:
        groups: the groups of the level.
        row_N: int64[N], the batch row of each step in group order.
        batch_trajectory: int64[N], the batch's trajectory column, in row order.
        matches: which groups match; None: a step is compared with its group alone.
    """

    groups: Runs
    row_N: IntArray
    batch_trajectory: IntArray
    matches: Matches | None = None

    @property
    def trajectory_N(self) -> IntArray:
        """The trajectory of each step, int64[N]."""
        return self.batch_trajectory[self.row_N]

    def statistics(self, values: GroupedValues, ddof: int) -> tuple[GroupStatistics, Runs]:
        """Statistics of the values, and the runs of steps that share an entry of them: groups, or single steps."""
        if self.matches is None:
            return group_statistics(values, self.groups, ddof), self.groups
        statistics, _ = self.matches.statistics(values, self.groups, self.trajectory_N, ddof)
        return statistics, Runs.single(len(self.row_N))

    def size_N(self) -> IntArray:
        """Number of steps that each step is compared with, int64[N]; the step itself counts."""
        if self.matches is None:
            return self.groups.size_G[self.groups.run_N]
        values = GroupedValues(np.zeros(len(self.row_N)))
        return self.matches.statistics(values, self.groups, self.trajectory_N, ddof=0)[1]

    def trajectories_G(self) -> IntArray:
        """Number of different trajectories that the steps of each group are compared with, int64[G]."""
        if self.matches is None:
            return distinct_per_run(self.trajectory_N, self.groups)
        return np.bincount(self.matches.visits(self.groups, self.trajectory_N, np.zeros(len(self.row_N)))[0])


def distinct_per_run(key_N: IntArray, runs: Runs) -> IntArray:
    """Number of different keys in each run, int64[G]; keys are integers from 0."""
    pair_N = runs.run_N * (int(key_N.max()) + 1) + key_N
    pair_N.sort(kind="stable")  # the fastest here: group order is nearly sorted by trajectory already
    return np.bincount(runs.run_N, weights=changes(pair_N)).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """One level of groups and its contribution: `sum over levels of weight * advantage` is the batch's advantage.

    Levels of weight 0 show groups of an advantage that is no such sum, as that of "nested_td".

    The public columns (properties) are [N] in the batch's row order. They are computed on every access: storing all of
    them for a large batch would take much memory, and most callers use none.

    Attributes:
        k: number of the level, its index in `Advantages.levels`; None for the episode level, whose groups are tasks.
        row_N: int64[N], the batch row of each entry in group order.
        starts_N: bool[N], True where a group begins.
        compared: the values that are compared inside the groups.
        ddof: 0 if `std` is the population standard deviation, 1 if it is the unbiased one.
        advantage_N: float64[N], the advantage inside the group.
        weight_N: float64[N], the factor of `advantage_N` in the sum, or one number for all steps.
        used_N: bool[N], whether the level was used for the step.
        present_N: bool[N], False where the step has no group at this level (None: every step has one).
        batch_trajectory: int64[N], the batch's trajectory column, in row order.
        matches: the groups of similar contexts that a step is compared with beside its own; `group` then names the
            steps with an equal context, and the other columns describe all steps it is compared with. None: its own
            group alone.
        name: what the members of a group have in common, such as "same state"; `Estimator.run` sets it for step levels.

    Example: two steps of one trajectory share a context with returns 1 and 3, a third step is alone with return 5
    (ddof 0): group [0, 0, 1], size [2, 2, 1], trajectories [1, 1, 1], mean [2, 2, 5], std [1, 1, 0],
    advantage [-1, 1, 0], used [True, True, False], unused [0, 0, 2] (`Unused.ALONE`).
    """

    k: int | None
    row_N: IntArray
    starts_N: BoolArray
    compared: GroupedValues
    ddof: int
    advantage_N: FloatArray
    weight_N: FloatArray | float
    used_N: BoolArray
    present_N: BoolArray | None = None
    batch_trajectory: IntArray = field(kw_only=True)
    matches: Matches | None = field(default=None, kw_only=True)
    name: str = field(default="same group", kw_only=True)

    @property
    def group(self) -> IntArray:
        """Group number of each step, int64[N]; -1 where the step has no group at this level."""
        return self._to_rows(self.runs().run_N, absent=-1)

    @property
    def size(self) -> IntArray:
        """Number of steps in the group, int64[N]; 0 where the step has no group."""
        return self._to_rows(self.comparison().size_N(), absent=0)

    @property
    def trajectories(self) -> IntArray:
        """Number of different trajectories in the group, int64[N]; 0 where the step has no group.

        It is less than `size` if a trajectory has several steps in the group.
        """
        comparison = self.comparison()
        return self._to_rows(comparison.trajectories_G()[comparison.groups.run_N], absent=0)

    @property
    def mean(self) -> FloatArray:
        """Mean of the group, the step itself included, float64[N]; NaN where there is no group."""
        statistics, runs = self.comparison().statistics(self.compared, self.ddof)
        return self._to_rows(statistics.mean_G[runs.run_N], absent=np.nan)

    @property
    def std(self) -> FloatArray:
        """Standard deviation of the group, float64[N], with the estimator's ddof; NaN where there is no group."""
        statistics, runs = self.comparison().statistics(self.compared, self.ddof)
        return self._to_rows(statistics.std_G[runs.run_N], absent=np.nan)

    @property
    def advantage(self) -> FloatArray:
        """Advantage inside the group, float64[N]; 0 without group or other members, except with baseline="critic"."""
        return self._to_rows(self.advantage_N)

    @property
    def weight(self) -> FloatArray:
        """Factor of the level's advantage in the final advantage, float64[N]."""
        if isinstance(self.weight_N, float):
            return np.full(len(self.row_N), self.weight_N)
        return self._to_rows(self.weight_N)

    @property
    def used(self) -> BoolArray:
        """Whether the level was used for the step, bool[N]; `unused` has the reasons why not."""
        return self._to_rows(self.used_N)

    @property
    def unused(self) -> NDArray[np.int8]:
        """Why the level was not used for the step, int8[N], codes of `Unused`; 0 (`Unused.NO`) where it was used."""
        comparison = self.comparison()
        if self.k is None:
            alone_N, reason = (comparison.trajectories_G() == 1)[comparison.groups.run_N], Unused.ONLY_TRAJECTORY
        else:
            alone_N, reason = comparison.size_N() == 1, Unused.ALONE
        code_N = np.where(alone_N, np.int8(reason), np.int8(Unused.DROPPED))
        if self.present_N is not None:
            code_N[~self.present_N] = Unused.NO_CONTEXT
        code_N[self.used_N] = Unused.NO
        return self._to_rows(code_N)

    def weighted(self, weight_N: FloatArray | float, used_N: BoolArray | None = None) -> Level:
        """Return the level with other weights (float64[N] in group order or one number) and, if given, `used` marks."""
        return replace(self, weight_N=weight_N, used_N=self.used_N if used_N is None else used_N)

    def runs(self) -> Runs:
        """The groups as runs of neighbours in group order; where `present_N` is False, the run is not a group."""
        return Runs.from_starts(self.starts_N)

    def comparison(self) -> ComparedSteps:
        """The steps that each step is compared with: its group, or all groups that match it."""
        return ComparedSteps(self.runs(), self.row_N, self.batch_trajectory, self.matches)

    def _to_rows(self, column_N: NDArray[Any], absent: float | None = None) -> NDArray[Any]:
        if absent is not None and self.present_N is not None:
            column_N = np.where(self.present_N, column_N, absent)
        return to_rows(column_N, self.row_N)


@dataclass(frozen=True, slots=True, eq=False)
class Advantages:
    """Advantage of every step of a batch.

    Attributes:
        values: float64[N] in the batch's row order. Units of the return for "mean_norm", else standard deviations.
        returns: float64[N], discounted step returns minus penalties.
        levels: the levels of step groups, `levels[k].k == k`; empty for an estimator without step groups.
            `levels[k].name` says what the members of a group share: contexts of length k for HGPO, the task in level 1
            of G2PO.
        episode: the episode level; None for an estimator without one.

    Example: `compute_advantages(batch, history_length=1).levels[1].size` is the size of each step's level-1 group.
    """

    values: FloatArray
    returns: FloatArray
    levels: tuple[Level, ...] = ()
    episode: Level | None = None

    @classmethod
    def of(cls, returns: FloatArray, terms: Iterable[Level]) -> Advantages:
        """Build advantages whose values are the sum of weight * advantage over `terms`, all in one group order.

        Args:
            returns: float64[N] in the batch's row order.
            terms: the episode level first, if there is one, then levels 0, 1, ….
        """
        episode, levels = None, tuple(terms)
        row_N = levels[0].row_N
        total_N = np.zeros(len(row_N))  # starts at +0.0, so that the sum of terms -0.0 is +0.0
        for term in levels:
            total_N += term.weight_N * term.advantage_N
        if levels[0].k is None:
            episode, levels = levels[0], levels[1:]
        return cls(to_rows(total_N, row_N), returns, levels, episode)

    @property
    def terms(self) -> tuple[Level, ...]:
        """The terms given to `of`: the episode level, if there is one, then the levels."""
        return self.levels if self.episode is None else (self.episode, *self.levels)


def to_rows(column_N: NDArray[Any], row_N: IntArray) -> NDArray[Any]:
    """Lay out a column in the batch's row order: result[row_N[i]] = column_N[i]."""
    result_N = np.empty_like(column_N)
    result_N[row_N] = column_N
    return result_N


LONGEST_HISTORY = 1_000
"""Largest `history_length`, more than any agent remembers. Each step of history adds one column to the sort."""


def check_choice(option: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise a ValueError that names the option and the allowed values."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{option} must be one of {', '.join(choices)}; got {value!r}")


def check_number(option: str, value: object, *, finite: bool = True) -> float:
    """Return the option as a float.

    Raises:
        ValueError: it is not a number of at least 0, or it is infinite and `finite` is True.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ValueError(f"{option} must be a number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if not number >= 0.0 or (finite and number == float("inf")):
        raise ValueError(f"{option} must be {'finite and ' if finite else ''}at least 0, got {value!r}")
    return number


def check_integer(option: str, value: object, lowest: int, highest: int | None = None) -> int:
    """Return the option as an int.

    Raises:
        ValueError: it is not an integer in the range.
    """
    wanted = f"an integer of at least {lowest}" if highest is None else f"an integer from {lowest} to {highest}"
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{option} must be {wanted}, got {value!r}")
    if value < lowest or (highest is not None and value > highest):
        raise ValueError(f"{option} must be {wanted}, got {value!r}")
    return int(value)


def check_history(value: object) -> int:
    """Return an option `history_length` as an int; see `check_integer`."""
    return check_integer("history_length", value, lowest=0, highest=LONGEST_HISTORY)


@dataclass(frozen=True, slots=True)
class Estimator:
    """A named estimator: its function, its options, and what it requires.

    Attributes:
        name: its name in settings and on the command line.
        compute: (batch, gamma, options) -> `Advantages`.
        options: dataclass whose fields are the options, with their defaults.
        label: its name in tables and figures; default: `name`.
        needs: options -> the columns of `StepBatch` it requires, beyond the five that every batch has.
        levels: options -> what the steps of a group have in common, one text for each of `Advantages.levels`; () for an
            estimator without step groups.
        make_options: builds the options from keywords instead of `options`, for example from a preset.
        extra_keywords: keywords of `make_options` in addition to the fields of `options`.
        largest_gamma: the largest gamma with which it can be computed.
        follows_memory: whether a recipe without `history_length` takes `agent.history_length`.
        avoids: column of `needs` -> the setting of an option that makes it unnecessary, for messages.
        keywords: all option names; computed.
    """

    name: str
    compute: Callable[[StepBatch, float, Any], Advantages]
    options: type[Any]
    label: str = ""
    needs: Callable[[Any], tuple[str, ...]] = lambda options: ()
    levels: Callable[[Any], tuple[str, ...]] = lambda options: ()
    make_options: Callable[..., Any] | None = None
    extra_keywords: tuple[str, ...] = ()
    largest_gamma: float = 1.0
    follows_memory: bool = True
    avoids: Mapping[str, str] = field(default_factory=dict, hash=False)
    keywords: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Check the options' class (`ValueError`), and fill in the label and the keywords."""
        if not (isinstance(self.options, type) and is_dataclass(self.options)):
            raise ValueError(
                f"estimator {self.name!r}: options must be a dataclass (the class, not an instance), got "
                f"{self.options!r}"
            )
        object.__setattr__(self, "label", self.label or self.name)
        names = tuple(option.name for option in fields(self.options))
        object.__setattr__(self, "keywords", self.extra_keywords + names)

    def parse(self, /, **options: Any) -> Any:
        """Build the options from keywords.

        Raises:
            ValueError: an unknown option (the message lists the valid ones) or a value out of range.
        """
        unknown = [option for option in options if option not in self.keywords]
        if unknown:
            meant = did_you_mean(unknown[0], self.keywords)
            raise ValueError(
                f"unknown option {', '.join(map(repr, unknown))} for estimator {self.name!r}"
                f"{f'{meant} Valid' if meant else '; valid'}: {', '.join(self.keywords) or 'none'}"
            )
        try:
            return (self.make_options or self.options)(**options)
        except TypeError as error:  # an option without a default is missing
            raise ValueError(f"options of estimator {self.name!r}: {error}") from error

    def run(self, batch: StepBatch, gamma: float, options: Any) -> Advantages:
        """Check gamma and the required columns, compute, check the result, and name the levels.

        Raises:
            ValueError: gamma is out of range, a required column is missing, `compute` failed or returned no valid
                `Advantages`, or `levels` does not name as many levels as `compute` returned.
        """
        gamma, what = check_gamma(gamma), f"estimator {self.name!r}"
        if gamma > self.largest_gamma:
            raise ValueError(f"{self.described(options)} needs gamma of at most {self.largest_gamma:g}, got {gamma:g}")
        missing = [column for column in self.needs(options) if getattr(batch, column, None) is None]
        if missing:
            more = [f"; {self.avoids[column]} needs no {column}" for column in missing if column in self.avoids]
            raise ValueError(
                f"{self.described(options)} needs the column{'s' * (len(missing) > 1)} {', '.join(missing)}, which the "
                f"batch does not have{''.join(more)}"
            )
        try:
            advantages = self.compute(batch, gamma, options)
        except (ColumnError, MemoryError):  # names the column and the row
            raise
        except BREAKS as error:
            raise ValueError(f"{what}: {describe_error('compute()', error, below=__file__)}") from error
        if problem := _problem(advantages, len(batch)):
            raise ValueError(
                f"{what} returned {problem}; it has to return `hgpo.Advantages` with values and returns, each an "
                f"array of {len(batch)} finite numbers"
            )
        names = self.levels(options)
        if not names:
            return advantages
        if len(names) != len(advantages.levels):
            raise ValueError(
                f"{what} returned {len(advantages.levels)} levels, but its `levels` names {len(names)}: "
                f"{', '.join(names)}"
            )
        named = zip(advantages.levels, names, strict=True)
        return replace(advantages, levels=tuple(replace(level, name=name) for level, name in named))

    def described(self, options: Any) -> str:
        """The estimator's name with the options that differ from their defaults, for messages."""
        given = [(option, getattr(options, option.name)) for option in fields(options)]
        changed = [f"{option.name}={value!r}" for option, value in given if value != option.default]
        return f"estimator {self.name!r}" + (f" with {', '.join(changed)}" if changed else "")


def _problem(returned: Any, count: int) -> str:
    """What is wrong with the result of an estimator for `count` steps; "" if nothing is."""
    if not isinstance(returned, Advantages):
        return f"a value of type {type(returned).__name__}"
    for name in ("values", "returns"):
        column_N = getattr(returned, name)
        if not isinstance(column_N, np.ndarray):
            return f"{name} of type {type(column_N).__name__}"
        if column_N.dtype.kind not in "fiu" or column_N.shape != (count,):
            return f"{name} of type {column_N.dtype} and shape {column_N.shape}"
        if not np.isfinite(column_N).all():
            return f"{name} that are not finite, first in row {np.argmin(np.isfinite(column_N))}"
    return ""
