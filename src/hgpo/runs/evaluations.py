"""Which evaluation belongs to which update, when one is due, and which are of another policy once a run is resumed."""

from __future__ import annotations

import itertools
import os

from hgpo.runs.folder import RunDirectory


def evaluation_name(update: int, updates: int) -> str:
    """`before`, `after` or `update-40`: the evaluation of the policy after `update` of `updates`."""
    if update == 0:
        return "before"
    return "after" if update >= updates else f"update-{update}"


def evaluation_due(update: int, updates: int, every: int) -> bool:
    """Whether the policy after `update` of `updates` is evaluated: the first, the last, and between them each `every`.

    0 for `every` means none between.
    """
    return update == 0 or update >= updates or (every > 0 and update % every == 0)


def rewind_evaluations(run: RunDirectory, update: int, updates: int) -> None:
    """Keep evaluations up to `update`; later ones are of a policy that is trained again, and are moved aside.

    They go to `evaluations.superseded/<name>.<number>.json`, as later metrics go to `metrics.superseded.jsonl`.
    """
    superseded = run.path / "evaluations.superseded"
    for path in sorted(run.evaluation("before").parent.glob("*.json")):
        evaluated = _update_of(path.stem, updates)
        if evaluated is None or evaluated <= update:
            continue
        superseded.mkdir(exist_ok=True)
        names = (superseded / f"{path.stem}.{number}.json" for number in itertools.count(1))
        os.replace(path, next(name for name in names if not name.exists()))


def _update_of(name: str, updates: int) -> int | None:
    """The update an evaluation belongs to; None for one that training did not make."""
    if name == "after":
        return updates
    number = name.removeprefix("update-")
    return int(number) if number != name and number.isdecimal() else None
