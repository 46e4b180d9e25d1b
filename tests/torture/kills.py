"""SIGKILL at random moments of every verb that writes: carried out again, it gives what it would have given at once.

And nothing is left behind that an undisturbed one does not leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from signal import SIGKILL

from torture.invoking import Limits
from torture.outcomes import Outcome
from torture.specimen import WRITERS, Specimen, Verb, files_below, make_specimen

_MOST_KILLS = 3
_KEPT = ("superseded",)  # metrics and evaluations that were made again are moved aside, as promised


def kills(folder: Path, rng: Random) -> Iterator[Outcome]:
    """One verb is killed once or several times, and then carried out to its end."""
    specimen = make_specimen(folder.parent / "specimen")
    while True:
        yield killed(specimen, rng.choice(WRITERS), folder / "case", rng)


def killed(specimen: Specimen, verb: Verb, folder: Path, rng: Random) -> Outcome:
    """One case."""
    cwd = specimen.copy_for(verb, folder)
    moments = [rng.uniform(0, 1.1 * specimen.seconds[verb.name]) for _ in range(rng.randint(1, _MOST_KILLS))]
    case = f"{verb.name} killed after {', '.join(f'{seconds:.2f}' for seconds in moments)} s"
    for count, seconds in enumerate(moments):
        invocation = (verb.run_again if count else verb.run)(cwd, Limits(kill_after=seconds))
        if invocation.status != -SIGKILL and invocation.fault:
            return Outcome("failed", case, invocation.fault)
    return carried_out(specimen, verb, cwd, case)


def carried_out(specimen: Specimen, verb: Verb, cwd: Path, case: str) -> Outcome:
    """Carry the verb out over what is there, and hold it against an undisturbed one."""
    invocation = verb.run_again(cwd)
    there = verb.name == "export" and "exists already" in invocation.err  # the one that was killed wrote all of it
    if invocation.fault:
        return Outcome("failed", case, invocation.fault)
    if invocation.status and not there:
        return Outcome("failed", case, f"it cannot be carried out again: {invocation.text[-600:]}")
    if not there and verb.result(cwd, invocation) != specimen.results[verb.name]:
        return Outcome("failed", case, f"another result: {invocation.text[-300:]}")
    differing = files_below(cwd) ^ specimen.left[verb.name]
    litter = sorted(name for name in differing if not any(kept in name for kept in _KEPT))
    return Outcome("failed", case, f"left or missing: {litter}") if litter else Outcome("same", case)
