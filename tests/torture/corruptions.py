"""Each file of a run flipped, cut, emptied, exchanged, one at a time, before each command.

The command has to give the same result or an error that names the file; of rollouts and metrics readable in part,
it may show the part and say so. It never shows a traceback. Another result in silence is allowed only where the damage
can leave a file without checksums valid by its schema: a flipped bit, two exchanged files, or lines missing at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

from torture.damage import DAMAGES, Damage, cut, exchange, flip_bit
from torture.invoking import Invocation
from torture.outcomes import Outcome
from torture.specimen import ON_RUNS, Command, Specimen, make_specimen


def corruptions(folder: Path, rng: Random) -> Iterator[Outcome]:
    """One file of a run is damaged, and one command carried out."""
    specimen = make_specimen(folder.parent / "specimen")
    while True:
        command = rng.choice(ON_RUNS)
        files = specimen.files(command)
        yield damaged(specimen, command, rng.choice(files), folder / "case", rng)


def damaged(specimen: Specimen, command: Command, name: str, folder: Path, rng: Random) -> Outcome:
    """One case."""
    cwd = specimen.copy_for(command, folder)
    path = cwd / name
    if rng.random() < 0.15:
        other = cwd / rng.choice([file for file in specimen.files(command) if file != name])
        how, named = exchange(path, other), (path, other)
        detectable = has_checksum(path) or has_checksum(other) or path.suffix != other.suffix
    else:
        damage = rng.choice(DAMAGES)
        how, named = damage(path, rng), (path,)
        detectable = has_checksum(path) or not may_stay_valid(damage, path)
    invocation = command.run(cwd)
    case = f"{command.name}: {name} {how}"
    return judged(case, command, specimen, cwd, invocation, named, detectable=detectable)


def has_checksum(path: Path) -> bool:
    """Whether the file is of a checkpoint or of `start/`, or parquet, whose pages have checksums of their own."""
    return path.suffix == ".parquet" or bool({"checkpoints", "start"} & set(path.parts))


def may_stay_valid(damage: Damage, path: Path) -> bool:
    """Whether a file without checksums may still fit its schema after the damage."""
    return damage is flip_bit or (damage is cut and path.suffix in (".toml", ".jsonl"))


def judged(
    case: str,
    command: Command,
    specimen: Specimen,
    cwd: Path,
    invocation: Invocation,
    named: tuple[Path, ...],
    *,
    detectable: bool,
) -> Outcome:
    """Same, refused by name, or failed; a change that is not `detectable` may also give another result."""
    if invocation.fault:
        return Outcome("failed", case, invocation.fault)
    says_so = any(says(invocation.text, path) for path in named)
    if invocation.status == 0 and (not detectable or _same(command, specimen, cwd, invocation)):
        return Outcome("same", case)
    if says_so:
        return Outcome("error", case)
    silent = "another result in silence" if invocation.status == 0 else f"status {invocation.status}, no file is named"
    return Outcome("failed", case, f"{silent}: {invocation.text[-600:]}")


def says(text: str, path: Path) -> bool:
    """Whether a message names the file, or the folder that is damaged with it."""
    return any(name in text for name in (path.name, f"{path.parent.parent.name}/{path.parent.name}"))


def _same(command: Command, specimen: Specimen, cwd: Path, invocation: Invocation) -> bool:
    try:
        return command.result(cwd, invocation) == specimen.results[command.name]
    except (ValueError, RecursionError):
        return False
