"""Audits an evaluation: which tasks of which splits were played, repeated or missed, and success with an interval.

A task is identified by its id, an ALFWorld game's path or a WebShop goal's number, or else by first observation or
goal. If several tasks share that text, its plays are distributed evenly over them, which favours the log.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hgpo.evaluation.episode_logs import EpisodeLog, PlayedEpisode
from hgpo.evaluation.manifests import Manifest, best_fit, manifest_named, manifests, read_manifest, text_digest
from hgpo.evaluation.statistics import Rate, rate
from hgpo.storage.schema import converted, identifier
from hgpo.utils.text import counted, visible

_SPLITS = {"eval_in_distribution": "valid_seen", "eval_out_of_distribution": "valid_unseen"}
_SPLITS |= {name: name for name in ("train", "valid_train", "valid_seen", "valid_unseen", "test", "validation")}
_LABELS = {"train", "valid_seen", "valid_unseen"}
_GAME = re.compile(r"(?:.*/)?([^/]+)/([^/]+/trial_[^/]+)(?:/[^/]*)?")
_BANNER = "-= Welcome to TextWorld, ALFRED! =-\n\n"


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    """The tasks that should have been played.

    Attributes:
        name: Name of the manifest or file.
        tasks: Ids of the tasks.
        manifest: The manifest, None for a list of ids.
    """

    name: str
    tasks: frozenset[str]
    manifest: Manifest | None = None


@dataclass(frozen=True, slots=True)
class Violation:
    """One kind of mistake, named as in `hgpo audit --help`, and its tasks, each with a text: how often, or why."""

    kind: str
    tasks: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Pass:
    """The episodes of one checkpoint.

    Attributes:
        checkpoint: Its update, None if the log names none.
        episodes: Number of episodes.
        plays: How often most tasks were played.
        success: Success over tasks, with an interval clustered by task.
        by_episode: Mean success over episodes, in which repeated tasks count more than once.
        more: Task -> number of further plays after which all tasks are played equally often.
        fewer: Task -> number of plays to leave out for this.
    """

    checkpoint: int | None
    episodes: int
    plays: int
    success: Rate
    by_episode: float
    more: Mapping[str, int]
    fewer: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Audit:
    """The report about one log.

    Attributes:
        log: Name of the log.
        evaluation_set: Name of the evaluation set, None if none fits.
        expected: Number of tasks of the evaluation set.
        tasks: Number of different tasks that were played.
        splits: Number of played tasks by split.
        seeds: All seeds.
        success_rule: How success was read.
        passes: The figures of each checkpoint.
        peak, last, mean: Success of the checkpoints after update 0; None with fewer than two.
        reported_is: Which of these figures, or which checkpoints' success, the reported figure equals; "" without one.
        violations: The mistakes that were found.
        notes: Further remarks for the reader.
    """

    log: str
    evaluation_set: str | None
    expected: int
    tasks: int
    splits: Mapping[str, int]
    seeds: Sequence[str]
    success_rule: str
    passes: Sequence[Pass]
    peak: float | None = None
    last: float | None = None
    mean: float | None = None
    reported_is: str = ""
    violations: Sequence[Violation] = ()
    notes: Sequence[str] = field(default_factory=list)


def read_tasks(path: Path) -> EvaluationSet:
    """An evaluation set: a manifest of the package by its id, or a file with a JSON list of task ids or a manifest.

    Raises:
        ValueError: The file is neither.
    """
    if str(path) in manifests() or not path.is_file():
        return _set_of(manifest_named(str(path)))
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if isinstance(document, dict):
        return _set_of(read_manifest(path))
    if not isinstance(document, list) or not document:
        raise ValueError(f"{path}: expected a JSON list of task ids, or a manifest")
    return EvaluationSet(path.name, frozenset(_canonical(converted(task, identifier, str(path))) for task in document))


def audit(log: EpisodeLog, expected: EvaluationSet | None = None, reported: float | None = None) -> Audit:
    """Check one log.

    Args:
        log: The episodes.
        expected: What should have been played; None: the manifest of the package that fits best.
        reported: A published success, 0-1, to find among the peak, last and mean of checkpoints.
    """
    known = _KnownTasks([*manifests().values(), *([expected.manifest] if expected and expected.manifest else [])])
    candidates = [known.candidates(episode) for episode in log.episodes]
    if expected is None:
        games = {episode.game for episode in log.episodes if episode.game}
        fit = best_fit(set(candidates), games | log.manifests)
        expected = _set_of(fit) if fit else None
    played, shared = _assigned(log.episodes, candidates, expected)
    by_pass: defaultdict[int | None, list[PlayedEpisode]] = defaultdict(list)
    for play in played:
        by_pass[play.checkpoint].append(play)
    tasks = {play.task for play in played}
    wanted = expected.tasks if expected else frozenset(tasks)
    splits = {task: known.split_of(task) for task in sorted(tasks)}
    found: _Found = defaultdict(dict)
    passes = [_pass(at, plays, wanted, found) for at, plays in sorted(by_pass.items(), key=lambda item: item[0] or 0)]
    own = {known.split_of(task) for task in wanted} if expected else set(Counter(splits.values()).most_common(1)[0][:1])
    _find_foreign(log, splits, wanted, own, found)
    _find_mixed(played, log, expected, known, found["mixed"])
    later = [one.success.mean for one in passes if one.checkpoint != 0]
    figures = {"peak": max(later), "last": later[-1], "mean": float(np.mean(later))} if len(later) > 1 else {}
    return Audit(
        log.name,
        expected.name if expected else None,
        len(wanted),
        len(tasks),
        dict(Counter(split or "unknown" for split in splits.values())),
        sorted({play.seed for play in played if play.seed}, key=lambda seed: (len(seed), seed)),
        log.rule,
        passes,
        **figures,
        reported_is="" if reported is None else _equal_figures(reported, passes, figures),
        violations=[Violation(kind, dict(sorted(tasks.items()))) for kind, tasks in sorted(found.items()) if tasks],
        notes=_notes(played, expected, shared),
    )


_Found = defaultdict[str, dict[str, str]]


def _set_of(manifest: Manifest) -> EvaluationSet:
    return EvaluationSet(manifest.id, frozenset(task.id for task in manifest.tasks), manifest)


def _canonical(task: str) -> str:
    """The project's id for the path of an ALFWorld game; other ids are returned unchanged."""
    path = _GAME.fullmatch(task.replace("\\", "/"))
    return f"{_SPLITS.get(path[1], path[1])}/{path[2]}" if path else task


class _KnownTasks:
    """The tasks of the manifests: by id, by the id without its split, and by digest of observation and goal."""

    def __init__(self, known: Iterable[Manifest]) -> None:
        self.games: defaultdict[str, set[str]] = defaultdict(set)  # recipes have other games under one id
        self._splits: dict[str, str] = {}
        self._by_name: defaultdict[str, dict[str, None]] = defaultdict(dict)  # a set in order
        for manifest in known:
            for task in manifest.tasks:
                self._splits.setdefault(task.id, manifest.split)
                if task.game:
                    self.games[task.id].add(task.game)
                goal = re.search(r"-(goal\d+)-", task.id) if manifest.catalogue else None  # in the official order
                tail = task.id.partition("/")[2]
                names = [task.id, tail if "/" in tail else None, goal and goal[1], task.observation, task.goal]
                for name in filter(None, names):
                    self._by_name[name][task.id] = None

    def candidates(self, episode: PlayedEpisode) -> tuple[str, ...]:
        """Ids of the tasks that it may have played; if no manifest has one, its own id or an id made from its texts."""
        named = _canonical(episode.task)
        names = [named]
        if not named or " " in named or named.isdecimal():  # a sentence or a position, which name no task
            names += [text_digest(form) for written in (*episode.texts, named) if written for form in _forms(written)]
        found = next((tuple(self._by_name[name]) for name in names if name in self._by_name), None)
        written = named or f"{visible(episode.texts[-1], 60)} #{text_digest(repr(episode.texts))[:8]}"
        return found or (written,)

    def split_of(self, task: str) -> str:
        """The split of the manifest that has the task, or the split that its id begins with; "" if unknown."""
        return self._splits.get(task) or _SPLITS.get(task.partition("/")[0], "")


def _forms(written: str) -> list[str]:
    """A text as logs may have cut it: without ALFWorld's first line, or without the full stop."""
    plain = written.strip().removeprefix(_BANNER)
    return [start + plain + end for end in ("", ".") for start in ("", _BANNER)]


def _assigned(
    episodes: Sequence[PlayedEpisode], candidates: Sequence[tuple[str, ...]], expected: EvaluationSet | None
) -> tuple[list[PlayedEpisode], int]:
    """Each episode with its task, and how many episodes were distributed evenly over several candidates."""
    before: defaultdict[tuple[Any, ...], dict[Any, int]] = defaultdict(dict)
    played, shared = [], 0
    for number, (episode, found) in enumerate(zip(episodes, candidates, strict=True)):
        pool = tuple(task for task in found if expected and task in expected.tasks) or found
        earlier = before[episode.checkpoint, episode.seed, episode.trial, pool]
        place = earlier.setdefault(episode.task or number, len(earlier))  # one name is one task
        played.append(replace(episode, task=pool[place % len(pool)]))
        shared += len(pool) > 1
    return played, shared


def _pass(checkpoint: int | None, plays: Sequence[PlayedEpisode], wanted: Collection[str], found: _Found) -> Pass:
    """The figures of one checkpoint; records what is wrong with the number of plays and their seeds in `found`."""
    at = "" if checkpoint is None else f" at checkpoint {checkpoint}"
    count = Counter(play.task for play in plays)
    frequency = Counter(count.values())
    usual = min(frequency, key=lambda number: (-frequency[number], number))
    keys = Counter((play.task, play.seed, play.trial) for play in plays)
    twice = {task for (task, seed, trial), number in keys.items() if number > 1 and (seed or trial)}
    seeds: defaultdict[str, set[str]] = defaultdict(set)
    wins: defaultdict[str, list[float]] = defaultdict(list)
    for play in plays:
        seeds[play.task].add(play.seed)
        wins[play.task].append(play.success or 0.0)
    [(usual_seeds, _)] = Counter(map(frozenset, seeds.values())).most_common(1)
    for task, number in count.items():
        if number > usual or task in twice:
            found["repeated"].setdefault(task, f"{counted(number, 'play')}{at}")
        elif number < usual:
            found["unequal"].setdefault(task, f"{counted(number, 'play')}, others {usual}{at}")
        elif seeds[task] != usual_seeds:
            found["seeds"].setdefault(task, f"{', '.join(sorted(seeds[task])) or 'none'}{at}")
    for task in set(wanted) - count.keys():
        found["missing"].setdefault(task, at.strip())
    return Pass(
        checkpoint,
        len(plays),
        usual,
        rate([float(np.mean(won)) for won in wins.values()], max(count.values())),
        float(np.mean([end for won in wins.values() for end in won])),
        {task: usual - count[task] for task in sorted(wanted) if count[task] < usual},
        {task: n - allowed for task, n in sorted(count.items()) if n > (allowed := usual * (task in wanted))},
    )


def _equal_figures(reported: float, passes: Sequence[Pass], figures: Mapping[str, float]) -> str:
    """Names of the figures, or checkpoints' successes, that the reported one equals up to rounding."""
    if len(passes) == 1:
        named, absent = {"the success above": passes[0].success.mean}, "not the success above"
    else:
        named = {**figures, **{f"of checkpoint {one.checkpoint}": one.success.mean for one in passes}}
        absent = "none of them"
    return ", ".join(name for name, figure in named.items() if abs(figure - reported) < 0.00051) or absent


def _find_foreign(
    log: EpisodeLog, splits: Mapping[str, str], wanted: Collection[str], own: Collection[str], found: _Found
) -> None:
    """Record tasks that are not `wanted`, tasks of other splits than `own`, and tasks that were trained on."""
    for task, split in sorted(splits.items()):
        if task in log.training or split == "train":
            found["training"][task] = "in the run's rollouts" if task in log.training else "of the split train"
        elif task not in wanted or split not in own:
            found["other split" if split and split not in own else "unknown"][task] = split
    labelled = _LABELS & {_SPLITS.get(episode.split, "") for episode in log.episodes}
    if labelled and _LABELS.issuperset(own) and not labelled.issubset(own):
        for task in sorted(splits):
            found["other split"].setdefault(task, f"{splits[task]}, labelled {' and '.join(sorted(labelled))}")


def _find_mixed(
    played: Sequence[PlayedEpisode],
    log: EpisodeLog,
    expected: EvaluationSet | None,
    known: _KnownTasks,
    found: dict[str, str],
) -> None:
    """Record tasks whose game file or catalogue differs within the log, or from the manifest's."""
    stated = expected.manifest if expected else None
    known_games = known.games | ({task.id: {task.game} for task in stated.tasks if task.game} if stated else {})
    games: defaultdict[str, set[str]] = defaultdict(set)
    for play in played:
        if play.game:
            games[play.task] |= {play.game}
    for task, digests in games.items():
        if len(digests) > 1:
            found[task] = f"{len(digests)} game files"
        elif digests.isdisjoint(known_games.get(task, digests)):
            found[task] = "the game file differs from the manifest's"
    found |= dict.fromkeys(log.differing, "the game file differs from the manifest's")
    catalogues = Counter(play.catalogue for play in played if play.catalogue)
    right = {catalogues.most_common(1)[0][0]} if catalogues else set()
    if stated and stated.catalogue:
        right = {stated.catalogue.name, stated.catalogue.digest, str(stated.catalogue.products)}
    for play in played:
        if play.catalogue and play.catalogue not in right:
            found[play.task] = f"catalogue {visible(play.catalogue, 20)}, not {' '.join(sorted(right))[:60]}"


def _notes(played: Sequence[PlayedEpisode], expected: EvaluationSet | None, shared: int) -> list[str]:
    notes = []
    if expected is None:
        notes.append("no manifest of the package has these tasks: --tasks FILE states what should have been played")
    if shared:
        notes.append(
            f"{counted(shared, 'episode')} may be of other tasks with the same text, since the log has no ids; "
            "more tasks may be repeated"
        )
    if lacking := sum(play.success is None for play in played):
        notes.append(f"{counted(lacking, 'episode')} without a result counted as not successful")
    checkpoints = {play.checkpoint for play in played}
    series: defaultdict[str, list[float]] = defaultdict(list)
    for play in sorted(played, key=lambda play: play.checkpoint or 0):
        series[play.task].append(play.success or 0.0)
    gained = sum(won != won[:1] * len(won) for won in series.values())
    if len(checkpoints) > 2 and gained > 4 and all(won == sorted(won) for won in series.values()):
        notes.append("no task that was won is lost later: this may be success of all attempts so far, not of one")
    if 0 in checkpoints and len(checkpoints) > 2:  # fewer have neither peak nor mean
        notes.append("checkpoint 0, before training, is in neither peak nor mean")
    return notes
