"""Reads what is compared: evaluations of runs and of files, each with the label of its row.

An argument is `[LABEL=]PATH` or `[LABEL=]RUN:NAME`. PATH is a run directory, the JSON file of an evaluation, or a
pattern (`runs/hgpo-*`) that matches several. Nothing that a run or a file names is imported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from hgpo.config import Config, as_tree
from hgpo.evaluation.eval_history import evaluated_update, evaluation_names, name_by_command, newest_evaluation
from hgpo.evaluation.result_files import StoredEvaluation, read_evaluation
from hgpo.evaluation.statistics import Evaluation
from hgpo.runs.folder import RunDirectory, open_run_directory
from hgpo.utils.text import did_you_mean, visible

LONGEST_LABEL = 60


@dataclass(frozen=True, slots=True)
class Source:
    """One argument.

    Attributes:
        path: A run directory or a file.
        name: Name of one evaluation of the run; None: the newest.
        label: Label in the argument; None: the path is the label.
    """

    path: Path
    name: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One evaluation.

    Attributes:
        label: The row it belongs to; without control characters.
        path: The run directory or the file.
        stored: The evaluation.
        name: Name of the evaluation in the run; None for a file.
        config: Settings of the run; None for a file.
    """

    label: str
    path: Path
    stored: StoredEvaluation
    name: str | None = None
    config: Config | None = None

    @property
    def evaluation(self) -> Evaluation:
        """Success, score and the tasks won."""
        return self.stored.evaluation

    @property
    def environment(self) -> str | None:
        """Name of the environment, None where it is unknown."""
        return self.stored.environment or (self.config.environment.name if self.config else None)

    @property
    def seed(self) -> int | None:
        """Training seed of the run; None for a file."""
        return None if self.config is None else self.config.run.seed


def read_entries(arguments: Sequence[str], name: str | None = None, by: Sequence[str] = ()) -> tuple[Entry, ...]:
    """Read all evaluations that the arguments name, in their order.

    Args:
        arguments: See the module's first lines.
        name: The evaluation to take of runs whose argument names none; None: the newest.
        by: Settings whose values label the runs that have no label, such as `advantage.estimator`.

    Raises:
        ValueError: An argument cannot be read, `by` names no setting, or a run is given twice under one label.
    """
    entries: list[Entry] = []
    for source in (source for argument in arguments for source in parse_source(argument)):
        entries += [replace(entry, label=_label(source, entry, by)) for entry in read_source(source, name)]
    short = {entry.label: visible(entry.label, LONGEST_LABEL) for entry in entries}
    if len({*short.values()}) == len(short):  # else different rows would become one
        entries = [replace(entry, label=short[entry.label]) for entry in entries]
    often = Counter((entry.label, entry.path.resolve(), entry.name) for entry in entries)
    if twice := [label for (label, *_), count in often.items() if count > 1]:
        raise ValueError(f"{twice[0]!r} has the same evaluation twice; leave one out, or label it LABEL=PATH")
    return tuple(entries)


def parse_source(argument: str) -> list[Source]:
    """Split an argument into label, path and name; a pattern gives one source for each match.

    A path that exists is used as written, even if it contains `=`, `:` or characters of patterns.

    Raises:
        ValueError: There is no such path.
    """
    label, separator, rest = argument.partition("=")
    if not separator or Path(argument).exists():
        label, rest = "", argument
    elif not label.strip() or not rest:
        raise ValueError(f"{argument!r}: write LABEL=PATH")
    path, separator, name = rest.rpartition(":")
    if Path(rest).exists() or not separator:
        path, name = rest, ""
    found = [path] if Path(path).exists() else sorted(glob(path)) if has_magic(path) and "\0" not in path else []
    if not found or (name and not all(Path(one).is_dir() for one in found)):
        raise ValueError(f"{rest}: no such run directory or file of an evaluation")
    return [Source(Path(one), name or None, label or None) for one in found]


def read_source(source: Source, name: str | None = None) -> list[Entry]:
    """Read the evaluation that a source names, or the evaluations of the run's newest policy.

    These are the newest evaluation of training, and the evaluations of the same update that `hgpo eval` stored on
    further splits, with the same temperature and seeds.

    Raises:
        ValueError: The run or the file cannot be read, or the run has no such evaluation.
    """
    if not source.path.is_dir():
        return [Entry("", source.path, read_evaluation(source.path))]
    run, config = open_run_directory(source.path)
    present = evaluation_names(run)
    chosen = source.name or name or newest_evaluation(run)
    if chosen is None or chosen not in present:
        which = "of its training" if chosen is None else repr(chosen)
        known = f"RUN:NAME selects one of: {', '.join(present)}" if present else "leave it out, or evaluate it first"
        raise ValueError(f"{source.path} has no evaluation {which}; {known}")
    first = Entry("", source.path, read_evaluation(run.evaluation(chosen)), chosen, config)
    further = [] if source.name or name else _same_policy(run, config.training.updates, chosen, first.evaluation)
    return [first, *(replace(first, stored=read_evaluation(run.evaluation(other)), name=other) for other in further)]


def _same_policy(run: RunDirectory, updates: int, newest: str, evaluation: Evaluation) -> list[str]:
    """Names of the evaluations that `hgpo eval` stored of the same update on other splits."""
    checkpoint = str(evaluated_update(newest, updates) or "start")
    ending = name_by_command("", checkpoint, evaluation.temperature, evaluation.seeds)
    own = f"{evaluation.split}{ending}"
    return [name for name in evaluation_names(run) if name.endswith(ending) and name != own]


def _label(source: Source, entry: Entry, by: Sequence[str]) -> str:
    text = source.label or (f"{source.path}:{source.name}" if source.name else str(source.path))
    if by and source.label is None and entry.config is not None:
        text = ", ".join(_setting(as_tree(entry.config), key) for key in by)
    return visible(text, len(text))


def _setting(tree: Any, key: str) -> str:
    """The value of a dotted setting as text; "default" for an option that the run does not set."""
    for part in key.split("."):
        if not isinstance(tree, dict) or (part not in tree and ".options." not in key):
            meant = did_you_mean(part, tree) if isinstance(tree, dict) else ""
            raise ValueError(f"--by {key}: no such setting{meant}")
        tree = tree.get(part, "default")
    return str(tree)
