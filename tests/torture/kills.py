"""SIGKILL at random moments of every command that writes: carried out again, it gives what it would have given at once.

And nothing is left behind that an undisturbed one does not leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from signal import SIGKILL

from torture.invoking import Limits
from torture.outcomes import Outcome
from torture.specimen import WRITERS, Command, Specimen, files_below, make_specimen

_MOST_KILLS = 3
_KEPT = ("superseded",)  # metrics and evaluations that were made again are moved aside, as promised


def kills(folder: Path, rng: Random) -> Iterator[Outcome]:
    """One command is killed once or several times, and then carried out to its end."""
    specimen = make_specimen(folder.parent / "specimen")
    while True:
        yield killed(specimen, rng.choice(WRITERS), folder / "case", rng)


def killed(specimen: Specimen, command: Command, folder: Path, rng: Random) -> Outcome:
    """One case."""
    cwd = specimen.copy_for(command, folder)
    moments = [rng.uniform(0, 1.1 * specimen.seconds[command.name]) for _ in range(rng.randint(1, _MOST_KILLS))]
    case = f"{command.name} killed after {', '.join(f'{seconds:.2f}' for seconds in moments)} s"
    for count, seconds in enumerate(moments):
        invocation = (command.run_again if count else command.run)(cwd, Limits(kill_after=seconds))
        if invocation.status != -SIGKILL and invocation.fault:
            return Outcome("failed", case, invocation.fault)
    return carried_out(specimen, command, cwd, case)


def carried_out(specimen: Specimen, command: Command, cwd: Path, case: str) -> Outcome:
    """Carry the command out over what is there, and hold it against an undisturbed one."""
    invocation = command.run_again(cwd)
    there = command.name == "export" and "exists already" in invocation.err  # the one that was killed wrote all of it
    if invocation.fault:
        return Outcome("failed", case, invocation.fault)
    if invocation.status and not there:
        return Outcome("failed", case, f"it cannot be carried out again: {invocation.text[-600:]}")
    if not there and command.result(cwd, invocation) != specimen.results[command.name]:
        return Outcome("failed", case, f"another result: {invocation.text[-300:]}")
    differing = files_below(cwd) ^ specimen.left[command.name]
    litter = sorted(name for name in differing if not any(kept in name for kept in _KEPT))
    return Outcome("failed", case, f"left or missing: {litter}") if litter else Outcome("same", case)
