"""A run's own evaluations in few numbers: success on the held-out tasks, before, between and after."""

from __future__ import annotations

from dataclasses import dataclass

from hgpo.evaluation import Evaluation, Rate, gain
from hgpo.runs.evaluations import evaluation_names, update_of
from hgpo.runs.folder import RunDirectory, lost_evaluations
from hgpo.runs.panel import panel_text, run_evaluation


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Success on the run's panel after so many updates.

    Attributes:
        name: Of the evaluation: `before`, `update-20`, `after`.
        update: After how many updates, 0 for `before`.
        success: 0-1, with its 95 % interval.
        panel: What was played, in words: games, split, temperature, seeds.
    """

    name: str
    update: int
    success: Rate
    panel: str


@dataclass(frozen=True, slots=True)
class HeldOutResults:
    """All of a run.

    Attributes:
        points: By update, the first before training.
        gain: Success of the last less that of the first, paired by task; None where there are not two on one panel.
        problems: What could not be read, in words.
    """

    points: tuple[HeldOut, ...] = ()
    gain: Rate | None = None
    problems: tuple[str, ...] = ()


def held_out_results(run: RunDirectory, updates: int) -> HeldOutResults:
    """Read the evaluations that training made; one that is damaged or gone becomes a problem, the others are read."""
    found: list[tuple[int, str, Evaluation]] = []
    problems = []
    for name in evaluation_names(run):
        update = update_of(name, updates)
        if update is None:
            continue
        try:
            found.append((update, name, run_evaluation(run, name).evaluation))
        except (ValueError, OSError) as error:
            problems.append(f"an evaluation is left out: {error}")
    problems += _lost(run)
    found.sort(key=lambda one: (one[0], one[1] == "after"))
    points = tuple(HeldOut(name, update, one.success, panel_text(one)) for update, name, one in found)
    return HeldOutResults(points, _gain([one for *_, one in found]), tuple(problems))


def _lost(run: RunDirectory) -> list[str]:
    try:
        return [f"an evaluation is left out: {path} is gone" for path in lost_evaluations(run)]
    except ValueError as error:
        return [f"which evaluations there were is not known: {error}"]


def _gain(evaluations: list[Evaluation]) -> Rate | None:
    if len(evaluations) < 2:
        return None
    first, last = evaluations[0], evaluations[-1]
    one_panel = (first.split, first.temperature, first.seeds) == (last.split, last.temperature, last.seeds)
    return gain(first, last) if one_panel and first.tasks_won.keys() == last.tasks_won.keys() else None
