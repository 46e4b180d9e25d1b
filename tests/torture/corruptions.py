"""Each file of a run flipped, cut, emptied, exchanged, one at a time, before each verb.

The verb has to give the same result or an error that names the file; of rollouts and metrics that can be read in part,
it may show the part and say so. It never shows a traceback, and never another result in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

from torture.damage import DAMAGES, exchange
from torture.invoking import Invocation
from torture.outcomes import Outcome
from torture.specimen import ON_RUNS, Specimen, Verb, make_specimen


def corruptions(folder: Path, rng: Random) -> Iterator[Outcome]:
    """One file of a run is damaged, and one verb carried out."""
    specimen = make_specimen(folder.parent / "specimen")
    while True:
        verb = rng.choice(ON_RUNS)
        files = specimen.files(verb)
        yield damaged(specimen, verb, rng.choice(files), folder / "case", rng)


def damaged(specimen: Specimen, verb: Verb, name: str, folder: Path, rng: Random) -> Outcome:
    """One case."""
    cwd = specimen.copy_for(verb, folder)
    path = cwd / name
    if rng.random() < 0.15:
        other = cwd / rng.choice([file for file in specimen.files(verb) if file != name])
        how, named = exchange(path, other), (path, other)
    else:
        how, named = rng.choice(DAMAGES)(path, rng), (path,)
    invocation = verb.run(cwd)
    case = f"{verb.name}: {name} {how}"
    return judged(case, verb, specimen, cwd, invocation, named)


def judged(
    case: str, verb: Verb, specimen: Specimen, cwd: Path, invocation: Invocation, named: tuple[Path, ...]
) -> Outcome:
    """Same, refused by name, or failed."""
    if invocation.fault:
        return Outcome("failed", case, invocation.fault)
    says_so = any(says(invocation.text, path) for path in named)
    if invocation.status == 0 and _same(verb, specimen, cwd, invocation):
        return Outcome("same", case)
    if says_so:
        return Outcome("error", case)
    silent = "another result in silence" if invocation.status == 0 else f"status {invocation.status}, no file is named"
    return Outcome("failed", case, f"{silent}: {invocation.text[-600:]}")


def says(text: str, path: Path) -> bool:
    """Whether a message names the file, or the folder that is damaged with it."""
    return any(name in text for name in (path.name, f"{path.parent.parent.name}/{path.parent.name}"))


def _same(verb: Verb, specimen: Specimen, cwd: Path, invocation: Invocation) -> bool:
    try:
        return verb.result(cwd, invocation) == specimen.results[verb.name]
    except (ValueError, RecursionError):
        return False
