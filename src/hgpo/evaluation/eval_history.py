"""A run's evaluations: their names and updates, when one is due, and which are outdated when the run is resumed."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from hgpo.evaluation.eval_log import LOG_SUFFIX
from hgpo.evaluation.result_files import describe_set, read_evaluation
from hgpo.evaluation.statistics import Evaluation, Rate, gain
from hgpo.runs.folder import RunDirectory, lost_evaluations


def evaluation_name(update: int, updates: int) -> str:
    """`before`, `after` or `update-40`: the evaluation of the policy after `update` of `updates`."""
    if update == 0:
        return "before"
    return "after" if update >= updates else f"update-{update}"


_BY_COMMAND = re.compile(r".*-(?:start|(\d{1,9}))-t[^-]+(?:-\d+)?-s\d+(?:-\d+)*(?:-first\d+)?", re.DOTALL)


def name_by_command(
    split: str, checkpoint: str, temperature: float, seeds: Sequence[int], games: int | None = None
) -> str:
    """`valid_unseen-40-t0.4-s123`: `hgpo eval` of a checkpoint, or of `start`; with `games`, on the first tasks."""
    first = "" if games is None else f"-first{games}"  # keeps the result of the whole evaluation set
    return f"{split}-{checkpoint}-t{temperature:g}-s{'-'.join(map(str, seeds))}{first}"


def evaluated_update(name: str, updates: int) -> int | None:
    """The update after which any evaluation's policy was played, 0 for the start; None for other names."""
    by_command = _BY_COMMAND.fullmatch(name)
    return int(by_command[1] or 0) if by_command else update_of(name, updates)


def evaluation_due(update: int, updates: int, every: int) -> bool:
    """Whether the policy after `update` of `updates` is evaluated: 0, the last, and between them every `every`-th.

    0 for `every`: none between.
    """
    return update == 0 or update >= updates or (every > 0 and update % every == 0)


def evaluation_names(run: RunDirectory) -> list[str]:
    """Names of the evaluations that the run has, including those of `hgpo eval`, in alphabetical order."""
    return sorted(path.stem for path in run.evaluation("before").parent.glob("*.json"))


def newest_evaluation(run: RunDirectory) -> str | None:
    """Name of training's latest evaluation: `after`, else the one after the latest update, else `before`, else None.

    For a finished run it is always `after`, even if that file is missing.
    """
    if run.complete:
        return "after"
    return max(training_evaluations(run), key=lambda name: update_of(name, updates=sys.maxsize) or 0, default=None)


def training_evaluations(run: RunDirectory) -> list[str]:
    """Names of the evaluations that training made, for `hgpo.runs.folder.lost_evaluations`."""
    return [name for name in evaluation_names(run) if update_of(name, updates=0) is not None]


def rewind_evaluations(run: RunDirectory, update: int, updates: int) -> None:
    """Keep evaluations up to `update`; later ones are of a policy that is trained again, and are moved aside.

    They go to `evaluations.superseded/<name>.<number>.json`, as later metrics go to `metrics.superseded.jsonl`. Logs of
    later evaluations are deleted, and so are logs that a process left behind after it had stored the result.
    """
    superseded = run.path / "evaluations.superseded"
    for path in sorted(run.evaluation("before").parent.glob("*.json")):
        evaluated = update_of(path.stem, updates)
        if evaluated is None or evaluated <= update:
            continue
        superseded.mkdir(exist_ok=True)
        names = (superseded / f"{path.stem}.{number}.json" for number in itertools.count(1))
        os.replace(path, next(name for name in names if not name.exists()))
    for log in run.evaluation("before").parent.glob(f"*{LOG_SUFFIX}"):
        name = log.name.removesuffix(LOG_SUFFIX)
        evaluated = update_of(name, updates)
        if evaluated is not None and (evaluated > update or run.evaluation(name).exists()):
            log.unlink()


def update_of(name: str, updates: int) -> int | None:
    """The update of `updates` that an evaluation belongs to; None for one that training did not make."""
    if name == "before":
        return 0
    if name == "after":
        return updates
    number = name.removeprefix("update-")
    return int(number) if number != name and number.isdecimal() else None


# Success on the held-out tasks before, during and after training.


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Success on the run's evaluation set after a number of updates.

    Attributes:
        name: Name of the evaluation: `before`, `update-20`, `after`.
        update: Number of updates before it, 0 for `before`.
        success: 0-1, with its 95 % interval.
        evaluation_set: Description of the evaluation set: number of tasks, split, temperature, seeds.
    """

    name: str
    update: int
    success: Rate
    evaluation_set: str


@dataclass(frozen=True, slots=True)
class HeldOutResults:
    """All evaluations that a run's training made.

    Attributes:
        points: Their success, in the order of updates.
        gain: Last success minus success before training, paired by task; None unless both are of one evaluation set.
        problems: Texts that say what could not be read.
    """

    points: tuple[HeldOut, ...] = ()
    gain: Rate | None = None
    problems: tuple[str, ...] = ()

    @property
    def evaluation_set(self) -> str:
        """Description of the evaluation set, or of both if the first and last evaluation differ; "" without points."""
        if not self.points:
            return ""
        first, last = self.points[0], self.points[-1]
        if self.gain is not None or first.update > 0 or first is last:
            return last.evaluation_set
        sets = "; ".join(f"{point.name}: {point.evaluation_set}" for point in (first, last))
        return f"{sets}. Tasks or conditions differ, so there is no gain"


def held_out_results(run: RunDirectory, updates: int) -> HeldOutResults:
    """Read the evaluations that training made; a damaged or missing one becomes a problem, the others are read."""
    found: list[tuple[int, str, Evaluation]] = []
    problems = []
    for name in evaluation_names(run):
        update = update_of(name, updates)
        if update is None:
            continue
        try:
            found.append((update, name, read_evaluation(run.evaluation(name)).evaluation))
        except (ValueError, OSError) as error:
            problems.append(f"an evaluation is left out: {error}")
    try:
        problems += [f"an evaluation is left out: {path} is missing" for path in lost_evaluations(run)]
    except ValueError as error:
        problems.append(f"cannot determine which evaluations the run had: {error}")
    found.sort(key=lambda one: (one[0], one[1] == "after"))
    points = tuple(HeldOut(name, update, one.success, describe_set(one)) for update, name, one in found)
    has_gain = len(found) > 1 and found[0][0] == 0
    return HeldOutResults(points, gain_on_one_set(found[0][2], found[-1][2]) if has_gain else None, tuple(problems))


def gain_on_one_set(first: Evaluation, last: Evaluation) -> Rate | None:
    """The gain in success; None unless both have the same split, tasks, temperature and seeds."""
    one_set = (first.split, first.temperature, first.seeds) == (last.split, last.temperature, last.seeds)
    return gain(first, last) if one_set and first.tasks_won.keys() == last.tasks_won.keys() else None


def evaluation_figures(evaluation: Evaluation) -> dict[str, float]:
    """An evaluation's figures under the names that both engines send.

    Example: `{"val/success": 0.5, "val/success_low": 0.4, "val/success_high": 0.6, "val/score": 0.5}`, and
    `val/success/<task type>` for each type.
    """
    success = evaluation.success
    return {
        "val/success": success.mean,
        "val/success_low": success.low,
        "val/success_high": success.high,
        "val/score": evaluation.score,
        **{f"val/success/{kind}": rate.mean for kind, rate in evaluation.by_task_type.items()},
    }
