"""What is compared: evaluations, each from a run or from a file, under a label.

An argument is `[label=]PATH`, where `PATH` is a file of an evaluation or a run directory, or `[label=]RUN:NAME`.
Nothing that a run or a file names is imported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hgpo.config import Config
from hgpo.evaluation import Evaluation
from hgpo.runs.evaluation_files import StoredEvaluation, read_evaluation
from hgpo.runs.evaluations import evaluation_names, newest_evaluation
from hgpo.runs.folder import RunDirectory, open_run_directory
from hgpo.runs.panel import run_evaluation
from hgpo.visible import visible

_LONGEST_LABEL = 60


@dataclass(frozen=True, slots=True)
class Source:
    """An argument, taken apart.

    Example: `Source(Path("runs/a"), name="before", label="start")` of "start=runs/a:before".

    Attributes:
        path: A run directory or a file.
        name: Which evaluation of the run; None: the newest.
        label: None: made of the path.
    """

    path: Path
    name: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """The run that an evaluation is of. Example: `TrainedRun(RunDirectory(Path("runs/a")), config)`."""

    directory: RunDirectory
    config: Config


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the comparison.

    Example: `Entry("start", stored, name="before", run=TrainedRun(directory, config))`.

    Attributes:
        label: What it is called; fit for a terminal.
        stored: What was measured.
        name: The evaluation's name in the run; None for a file.
        run: None for a file.
    """

    label: str
    stored: StoredEvaluation
    name: str | None = None
    run: TrainedRun | None = None

    @property
    def panel(self) -> Evaluation:
        """What the panel showed."""
        return self.stored.evaluation

    @property
    def environment(self) -> str | None:
        """Name of the environment, where it is known."""
        if self.stored.environment is not None or self.run is None:
            return self.stored.environment
        return self.run.config.environment.name


def read_entries(arguments: Sequence[str], name: str | None = None) -> tuple[Entry, ...]:
    """What the arguments name, in their order.

    Args:
        arguments: See the module's first lines.
        name: The evaluation to take of runs whose argument names none; None: the newest.

    Raises:
        ValueError: One cannot be read, or two have the same label.
    """
    sources = [parse_source(argument) for argument in arguments]
    entries = [read_entry(source, name) for source in sources]
    often = Counter(entry.label for entry in entries)
    for place, (argument, source) in enumerate(zip(arguments, sources, strict=True)):
        if source.label is None and often[entries[place].label] > 1:
            entries[place] = replace(entries[place], label=_label(argument))
    twice = [label for label, count in Counter(entry.label for entry in entries).items() if count > 1]
    if twice:
        raise ValueError(f"two arguments are called {twice[0]!r}; tell them apart with label=PATH")
    return tuple(entries)


def parse_source(argument: str) -> Source:
    """Take an argument apart. What is there under the name as a whole is meant, whatever characters it has.

    Raises:
        ValueError: There is nothing of that name.
    """
    label, separator, rest = argument.partition("=")
    if not separator or Path(argument).exists():
        label, rest = "", argument
    elif not label.strip() or not rest:
        raise ValueError(f"{argument!r}: a label and a path are wanted, label=PATH")
    if Path(rest).exists():
        return Source(Path(rest), None, label or None)
    folder, separator, name = rest.rpartition(":")
    if separator and name and Path(folder).is_dir():
        return Source(Path(folder), name, label or None)
    raise ValueError(f"{rest}: no such run directory or file of an evaluation")


def read_entry(source: Source, name: str | None = None) -> Entry:
    """Read the evaluation of one argument; `name` is the one to take of a run that is given without.

    Raises:
        ValueError: The run or the file cannot be read, or the run has no such evaluation.
    """
    if not source.path.is_dir():
        return Entry(_label(source.label or source.path.stem), read_evaluation(source.path))
    directory, config = open_run_directory(source.path)
    there = evaluation_names(directory)
    chosen = source.name or name or newest_evaluation(directory)
    if chosen is None or chosen not in there:
        wanted = "that training made" if chosen is None else repr(chosen)
        gone = "" if chosen is None else f" ({directory.evaluation(chosen)} is not there)"
        raise ValueError(
            f"{source.path} has no evaluation {wanted}; RUN:NAME takes one of: {', '.join(there) or 'none'}{gone}"
        )
    folder = source.path.name or source.path.resolve().name
    label = source.label or (folder if source.name is None else f"{folder}:{source.name}")
    return Entry(_label(label), run_evaluation(directory, chosen), chosen, TrainedRun(directory, config))


def _label(text: str) -> str:
    return visible(text, _LONGEST_LABEL)
