"""How much more an entry wins than the baseline, paired by task, or why that cannot be said."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hgpo.comparison.entries import Entry
from hgpo.evaluation import Evaluation, Rate, gain, rate
from hgpo.visible import visible

LEAST_TASKS = 10
LEAST_SHARE = 0.5
"""Panels that differ are compared on their common tasks if these are so many, and such a share of the smaller one."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What an entry wins more than the baseline, as fractions.

    Example: `Difference(Rate(0.203, 0.141, 0.263, tasks=256))`.

    Attributes:
        gain: Its `tasks` are those that both played; None: no difference can be given.
        remark: Why not, or that it is on common tasks alone.
    """

    gain: Rate | None
    remark: str = ""


def difference(baseline: Entry, other: Entry) -> Difference:
    """What `other` wins more than `baseline`."""
    if _elsewhere(baseline, other):
        return Difference(None, "played in another environment")
    first, second = baseline.panel, other.panel
    if first.tasks_won.keys() == second.tasks_won.keys():
        return Difference(gain(first, second))
    shared = [task for task in first.tasks_won if task in second.tasks_won]
    sizes = f"{len(first.tasks_won)} of the baseline's and {len(second.tasks_won)} of its own"
    smaller = min(len(first.tasks_won), len(second.tasks_won))
    if len(shared) < max(LEAST_TASKS, LEAST_SHARE * smaller):
        return Difference(None, f"other tasks: {len(shared) or 'none'} in common, of {sizes}")
    return Difference(
        gain(on_tasks(first, shared), on_tasks(second, shared)), f"on the {len(shared)} tasks in common, of {sizes}"
    )


def on_tasks(panel: Evaluation, tasks: Iterable[str]) -> Evaluation:
    """The panel with success on these tasks alone; its other figures stay those of all."""
    won = {task: panel.tasks_won[task] for task in tasks}
    return replace(panel, tasks_won=won, success=rate(list(won.values()), len(panel.seeds)))


def unlike(baseline: Entry, other: Entry) -> list[str]:
    """What about the two panels was not the same, one phrase each, fit for a terminal."""
    first, second = baseline.panel, other.panel
    pairs: list[tuple[str, object, object]] = [("environment", baseline.environment, other.environment)]
    if not _elsewhere(baseline, other):
        pairs += [
            ("step limit", _step_limit(baseline), _step_limit(other)),
            ("split", first.split, second.split),
            ("temperature", f"{first.temperature:g}", f"{second.temperature:g}"),
        ]
    found = [
        f"{what} {visible(str(theirs), 60)}, the baseline's {visible(str(ours), 60)}"
        for what, ours, theirs in pairs
        if None not in (ours, theirs) and ours != theirs
    ]
    if baseline.run and other.run and baseline.environment == other.environment:
        options = [run.config.environment.options for run in (baseline.run, other.run)]
        if options[0] != options[1]:
            found.append("options of the environment unlike the baseline's")
    return found


def _elsewhere(baseline: Entry, other: Entry) -> bool:
    """Whether the two are known to have played in different environments."""
    return None not in (baseline.environment, other.environment) and baseline.environment != other.environment


def _step_limit(entry: Entry) -> int | None:
    return None if entry.run is None else entry.run.config.environment.max_steps
