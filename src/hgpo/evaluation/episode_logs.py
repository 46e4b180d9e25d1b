"""Episodes in results and logs of any trainer: which task was played, with which seed, at which checkpoint.

Reads result files and runs of this project, dumps of verl and verl-agent, and tables (JSONL, parquet, a JSON array)
with a row per episode or per step. A table's keys are found by their usual names (`KEYS`), or named by the caller.

- A number in the names of several files (verl's 40.jsonl, or step_40.json) is the checkpoint. Results of `hgpo eval`
  name their run and checkpoint themselves.
- Rows with `input` and `output` are a dump: their `step` is the checkpoint. In other tables with an action or
  observation per row `step` counts within the episode; with a row per episode it is the checkpoint.
- verl-agent's validation dumps have no ids. There an episode begins at a prompt without history, and its first
  observation and goal, taken from the prompt, identify the task.
- Without a column of successes, success is a score of at least 1, 10 or 100: the first that no score exceeds.

Nothing that a log names is imported or evaluated.
"""

from __future__ import annotations

import codecs
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from hgpo.evaluation.eval_history import evaluated_update, evaluation_names
from hgpo.evaluation.result_files import StoredEvaluation, read_evaluation
from hgpo.runs.folder import RunDirectory, lost_evaluations, open_run_directory
from hgpo.storage.discover import NoRolloutsError, StepFile, find_step_files, number_files
from hgpo.storage.schema import (
    BATCH_COLUMNS,
    Problems,
    converted,
    identifier,
    number,
    place_of,
    suffix_of,
    text_or_json,
    truth,
    whole,
)
from hgpo.storage.tables import python_rows, read_lines, read_parquet
from hgpo.storage.verl_dumps import compound_uid, is_padding

KEYS: Mapping[str, tuple[str, ...]] = {
    "task": ("gamefile", "game_file", "task_id", "game_id", "problem_id", "instance_id", "task", "group"),
    "goal_index": ("goal_idx", "goal_index"),
    "success": ("success", "won", "is_success", "solved"),
    "score": ("score", "final_reward", "reward"),
    "seed": ("seed", "eval_seed", "env_seed"),
    "trial": ("trial", "trial_id", "repeat"),
    "split": ("split", "eval_split"),
    "checkpoint": ("checkpoint", "global_step", "update", "training_step", "iteration"),
    "trajectory": ("traj_uid", "trajectory_id", "trajectory", "episode_id"),
    "step": ("step_index", "turn", "step"),
    "observation": ("initial_observation", "initial_obs", "anchor_obs", "observation"),
    "goal": ("goal", "instruction"),
    "game": ("game_sha256", "game_digest"),
    "catalogue": ("catalogue_digest", "catalogue", "catalog"),
}
"""Per column the keys that may contain it, the most specific first."""

_OF_STEPS = ("action", "observation", "step_index", "turn")
_HISTORY = "Prior to this step"  # in every prompt of verl-agent but the first of an episode
_SEED_IN_NAME = re.compile(r"seed[-_ ]?(\d{1,9})")
_ANY_SEED = "seed*"  # in the name of a series of files, one for each seed
_CHECKPOINT_OF_RUN = re.compile(r"(.*) \((?:before|start|(?:update-)?(\d{1,9}))\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """One episode.

    Attributes:
        task: The task as the log names it; "" where only `texts` identify it.
        success: 0-1; None if the log has no result. In result files the success of the task over all seeds.
        seed: Seed of the evaluation, "" if not recorded.
        trial: Number of the repetition with that seed, "" if not recorded.
        checkpoint: Update after which it was played, None if not recorded.
        split: As the log names it, "" if not recorded.
        game: Digest of the game's file, "" if not recorded.
        catalogue: Name, size or digest of the shop's catalogue, "" if not recorded.
        texts: First observation and goal, where the log has them.
    """

    task: str
    success: float | None
    seed: str = ""
    trial: str = ""
    checkpoint: int | None = None
    split: str = ""
    game: str = ""
    catalogue: str = ""
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EpisodeLog:
    """The episodes of one evaluation, of one or more checkpoints.

    Attributes:
        name: The path; with its split if the path has several.
        episodes: In the order of the log.
        rule: A text that says how success was read.
        training: Ids of the tasks that the run trained on; empty if they are not known.
        differing: Ids of tasks whose game differed from the manifest's when they were played.
        manifests: Ids of manifests that were recorded with the results.
    """

    name: str
    episodes: tuple[PlayedEpisode, ...]
    rule: str
    training: frozenset[str] = frozenset()
    differing: frozenset[str] = frozenset()
    manifests: frozenset[str] = frozenset()


def read_logs(path: Path, columns: Mapping[str, str] | None = None) -> list[EpisodeLog]:
    """The evaluations of a run directory, a result file, or a file or folder of rows.

    A run has one log per evaluation set, a table one per split that it names. Result files in a folder are checkpoints
    if they are of one run, or if their names differ only in a number. If that number is a seed, they are one
    evaluation. Otherwise each file is a separate log.

    Args:
        path: The file or folder.
        columns: Columns of `KEYS` that are read from other keys than usual.

    Raises:
        ValueError: The path cannot be read, has no evaluation or no column of tasks or results, or `columns` has an
            unknown column.
    """
    columns = columns or {}
    if unknown := sorted(columns.keys() - KEYS.keys()):
        raise ValueError(f"no column {unknown[0]} is read from logs; columns: {', '.join(KEYS)}")
    run = path.parent if path.name == "evaluations" else path
    if path.is_dir() and RunDirectory(run).config.is_file():
        return _logs_of_run(run)
    files = sorted(path.glob("*.json")) if path.is_dir() else [path] if path.suffix.lower() == ".json" else []
    objects = [file for file in files if _begins(file, b"{")]
    results = [file for file in objects if file == path or b'"tasks_won"' in file.read_bytes()]
    if results:
        return _logs_of_results(path, results)
    return _logs_of_rows(path, columns, [file for file in files if _begins(file, b"[")])


def _begins(file: Path, character: bytes) -> bool:
    with file.open("rb") as content:
        return content.read(1000).removeprefix(codecs.BOM_UTF8).lstrip().startswith(character)


# Result files and runs of this project.

_RECORDED = "as recorded"


def _logs_of_run(path: Path) -> list[EpisodeLog]:
    run, config = open_run_directory(path)
    if lost := lost_evaluations(run):
        raise ValueError(
            f"{lost[0]} is missing, but the run's summary.json lists it: restore it, or audit the files that remain: "
            f"hgpo audit {shlex.quote(str(lost[0].parent))}/*.json"
        )
    found: dict[tuple[Any, ...], StoredEvaluation] = {}
    for name in evaluation_names(run):
        stored = read_evaluation(run.evaluation(name))
        figures, update = stored.evaluation, evaluated_update(name, config.training.updates)
        key = (figures.split, figures.temperature, figures.seeds, update)  # `hgpo eval` may repeat, or play fewer tasks
        if key not in found or len(figures.tasks_won) > len(found[key].evaluation.tasks_won):
            found[key] = stored
    if not found:
        raise ValueError(f"{path} has no evaluation; `hgpo eval {shlex.quote(str(path))}` makes one")
    try:
        rows = (row for file in find_step_files(path) for row in _rows(file.path, ("task_id", "group")))
        training = frozenset(str(row.get("task_id") or row.get("group")) for row in rows)
    except NoRolloutsError:
        training = frozenset()
    return _by_set(path, [("", update, stored) for (*_, update), stored in found.items()], training)


def _logs_of_results(path: Path, files: Sequence[Path]) -> list[EpisodeLog]:
    """Result files of one path. Files of one run, or whose names differ only in a number, are checkpoints."""
    numbers = {file.path: file.update for file in number_files(files, "hgpo") if file.unit == "update"}
    found: list[tuple[str, int | None, StoredEvaluation]] = []
    for file in files:
        stored = read_evaluation(file)
        model, named = _CHECKPOINT_OF_RUN.fullmatch(stored.model or ""), _SEED_IN_NAME.search(file.stem)
        if model:
            found.append((model[1], int(model[2] or 0), stored))
        elif named:
            found.append((file.stem.replace(named[0], _ANY_SEED), None, stored))
        else:
            found.append(("" if file in numbers else file.stem, numbers.get(file), stored))
    return _by_set(path, found, frozenset())


def _by_set(
    path: Path, found: Sequence[tuple[str, int | None, StoredEvaluation]], training: frozenset[str]
) -> list[EpisodeLog]:
    """A log per series, agent, environment, split, temperature and seeds, from (series, checkpoint, evaluation)."""
    logs: defaultdict[str, list[tuple[int | None, StoredEvaluation]]] = defaultdict(list)
    for series, checkpoint, stored in found:
        figures = stored.evaluation
        seeds = "" if _ANY_SEED in series else f"seeds {' '.join(map(str, figures.seeds))}"
        what = (series, stored.agent, stored.environment, figures.split)
        words = (*what, f"temperature {figures.temperature:g}", seeds)
        logs[", ".join(filter(None, words))].append((checkpoint, stored))
    return [
        EpisodeLog(
            f"{path}: {words}" if len(logs) > 1 else str(path),
            tuple(episode for checkpoint, stored in members for episode in _evaluated(stored, checkpoint)),
            _RECORDED,
            training,
            frozenset(task for _, stored in members for task in stored.manifest_differs),
            frozenset(stored.manifest for _, stored in members if stored.manifest),
        )
        for words, members in logs.items()
    ]


def _evaluated(stored: StoredEvaluation, checkpoint: int | None) -> Iterable[PlayedEpisode]:
    """The episodes that were played to the end: each task once per seed."""
    failed = {(failure.task, failure.seed) for failure in stored.failures}
    for task, won in stored.evaluation.tasks_won.items():
        for seed in stored.evaluation.seeds:
            if (task, seed) not in failed:
                yield PlayedEpisode(task, won, str(seed), checkpoint=checkpoint, split=stored.evaluation.split)


# Rows of any trainer.


def _logs_of_rows(path: Path, columns: Mapping[str, str], arrays: Sequence[Path]) -> list[EpisodeLog]:
    """The rows of the path; `arrays` are its JSON arrays, which are read if the path has no other rows."""
    try:
        files = find_step_files(path, "hgpo")
    except NoRolloutsError:
        if not arrays:
            raise
        files = number_files(arrays, "hgpo")
    found = [played for file in files for played in _episodes(file, columns, len(files) > 1)]
    scores = [score for episode, score in found if episode.success is None and score is not None]
    if any(episode.success is not None for episode, _ in found):
        episodes, rule = [episode for episode, _ in found], _RECORDED
    elif scores:
        full = next((full for full in (1.0, 10.0) if max(scores) <= full), 100.0)
        rule = f"a score of at least {full:g}; the log has no column of successes"
        episodes = [
            episode if score is None else replace(episode, success=float(score >= full)) for episode, score in found
        ]
    else:
        raise ValueError(f"{path}: no success, won, score or reward; --column success=KEY reads it from another key")
    by_split: defaultdict[str, list[PlayedEpisode]] = defaultdict(list)
    for episode in episodes:
        by_split[episode.split].append(episode)
    return [
        EpisodeLog(f"{path}: {split}" if len(by_split) > 1 else str(path), tuple(played), rule)
        for split, played in by_split.items()
    ]


@dataclass(frozen=True, slots=True)
class _Table:
    """The rows of one file.

    Attributes:
        path: The file.
        rows: Its rows.
        chosen: Keys that the caller named, by column.
        is_dump: Whether the rows are responses that verl wrote.
        per_step: Whether a row is a step rather than an episode.
    """

    path: Path
    rows: Sequence[dict[str, Any]]
    chosen: Mapping[str, str]
    is_dump: bool
    per_step: bool

    def value(self, row: Mapping[str, Any], name: str, convert: Any = identifier) -> Any:
        """The converted value of a column, None if the row has none."""
        keys = (self.chosen[name],) if name in self.chosen else KEYS[name]
        key = next((key for key in keys if row.get(key) is not None and self._fits(key, name, row[key])), None)
        return None if key is None else converted(row[key], convert, f"{self.path}, key {key!r}")

    def _fits(self, key: str, name: str, value: Any) -> bool:
        """False for values that usually mean something else: lists of steps, verl's ids of prompts, trials as text."""
        if name in self.chosen:
            return True
        if name == "trial":
            return isinstance(value, int)
        if self.is_dump and key in ("group", "step"):
            return False
        return name not in ("task", "trajectory", "split", "catalogue") or isinstance(value, (str, int))


def _episodes(file: StepFile, columns: Mapping[str, str], several: bool) -> list[tuple[PlayedEpisode, float | None]]:
    """The episodes of one file, each with its score."""
    rows = _rows(file.path, [*columns.values(), *chain.from_iterable(KEYS.values())])
    if not rows:
        raise ValueError(f"{file.path}: no rows; write it again or remove it")
    is_dump = any("input" in row and "output" in row for row in rows)
    per_step = is_dump or any(not isinstance(rows[0].get(key), (list, dict, type(None))) for key in _OF_STEPS)
    table = _Table(file.path, [row for row in rows if not is_padding(row)], columns, is_dump, per_step)
    for name, key in columns.items():
        if not any(key in row for row in rows):
            raise ValueError(f"{file.path}: no row has the key {key} for {name}; name one of {', '.join(rows[0])}")
    named = map(_SEED_IN_NAME.search, (file.path.stem, file.path.parent.name))
    seed = next((match[1] for match in named if match), "")
    numbered = file.unit == "update" and (several or is_dump) and not _SEED_IN_NAME.search(file.path.stem)
    return [_episode(table, steps, seed, file.update if numbered else None) for steps in _grouped(table)]


def _rows(path: Path, wanted: Iterable[str]) -> list[dict[str, Any]]:
    """All rows of a file; of this project's parquet files only the `wanted` columns."""
    if suffix_of(path) == ".parquet":
        table = read_parquet(path)
        if {*BATCH_COLUMNS} <= {*table.column_names}:
            table = table.select([name for name in table.column_names if name in {*wanted}])
        return python_rows(table, path)
    return read_lines(path, Problems(path, strict=True))[0]


def _grouped(table: _Table) -> Iterable[list[dict[str, Any]]]:
    """The rows of each episode, in order of its steps."""
    if not table.per_step:
        return ([row] for row in table.rows)
    grouped: defaultdict[Any, list[dict[str, Any]]] = defaultdict(list)
    begun, before = 0, (None, -1)
    for row in table.rows:
        task, step = table.value(row, "task"), table.value(row, "step", whole)
        uid = compound_uid(row)
        trajectory = "/".join(uid[:2]) if uid else table.value(row, "trajectory")
        if trajectory is None:  # episodes stand one after the other
            is_first = _HISTORY not in str(row.get("input")) if step is None else step <= before[1]
            begun += int(is_first or task != before[0])
        before = (task, -1 if step is None else step)
        names = ("seed", "trial", "checkpoint", "split")
        whose = begun if trajectory is None else trajectory
        grouped[task, whose, *(table.value(row, name) for name in names)].append(row)
    return grouped.values()


def _episode(
    table: _Table, rows: Sequence[dict[str, Any]], seed: str, checkpoint: int | None
) -> tuple[PlayedEpisode, float | None]:
    """The episode of these rows, with its score; `seed` and `checkpoint` come from the file's name."""
    first = min(rows, key=lambda row: _place(table, row))
    flags, scores = _results(table, rows)
    if not flags and not scores:  # files with a trajectory per line have a list of steps
        nested: list[Any] = next(
            (first[key] for key in ("steps", "trajectory") if isinstance(first.get(key), list)), []
        )
        rows = [step for step in nested if isinstance(step, dict)]
        flags, scores = _results(table, rows)
    of_whole_episode = table.is_dump or any({"score", "final_reward"} & row.keys() for row in rows)
    stated = table.value(first, "checkpoint", whole)
    if stated is None and (table.is_dump or not table.per_step):
        stated = converted(first["step"], whole, place_of(table.path)) if first.get("step") is not None else checkpoint
    goal_index = table.value(first, "goal_index", whole)
    episode = PlayedEpisode(
        task=f"goal{goal_index}" if goal_index is not None else table.value(first, "task") or "",
        success=float(any(flags)) if flags else None,
        seed=table.value(first, "seed") or seed,
        trial=table.value(first, "trial") or "",
        checkpoint=checkpoint if stated is None else stated,
        split=table.value(first, "split") or "",
        game=table.value(first, "game") or "",
        catalogue=table.value(first, "catalogue") or "",
        texts=_texts(table, first),
    )
    if not episode.task and not episode.texts:
        keys = f"no id of the task; there are {', '.join(first)}"
        raise ValueError(f"{table.path}: {keys}; --column task=KEY reads it from another key")
    return episode, None if not scores else max(scores) if of_whole_episode else sum(scores)


def _results(table: _Table, rows: Sequence[dict[str, Any]]) -> tuple[list[bool], list[float]]:
    """The successes and the scores that these rows have."""
    flags, scores = (
        [value for row in rows if (value := table.value(row, name, convert)) is not None]
        for name, convert in (("success", truth), ("score", number))
    )
    return flags, scores


def _place(table: _Table, row: Mapping[str, Any]) -> int:
    """The index of a row in its episode, 0 if it has none."""
    uid = compound_uid(row)
    return uid[2] if uid else table.value(row, "step", whole) or 0


def _texts(table: _Table, row: Mapping[str, Any]) -> tuple[str, ...]:
    """First observation and goal of an episode, as far as its first row has them; a dump without them: the prompt."""
    if not table.is_dump:
        found = (table.value(row, "observation", text_or_json), table.value(row, "goal", text_or_json))
        return tuple(one for one in found if one)
    prompt = str(row.get("input"))
    observation = prompt.partition("current observation is: ")[2].partition("Your admissible actions")[0]
    goal = prompt.partition("Your task is to: ")[2].partition("\n")[0]
    return tuple(one.strip() for one in (observation, goal) if one) or (prompt,)
