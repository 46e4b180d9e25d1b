"""The log of an evaluation: each episode is written when it has ended, so that an evaluation can be resumed.

    NAME.games.jsonl       first line: the conditions of the evaluation; then one `EpisodeSummary` a line
    NAME.rollouts.jsonl    every step of every episode, for `hgpo inspect`; only if the log keeps steps

An episode's steps are written before its summary: steps without one belong to an interrupted episode and are dropped
when the evaluation is resumed. A failed episode is then played again; its line stays, because its requests cost money.
What was written survives the end of the process, not a power failure: waiting for the disk after every episode would
take longer than playing it with a small policy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from hgpo.rollout.eval_tasks import eval_task_id
from hgpo.rollout.records import EpisodeSummary, StepRecord, TotalUsage, append_rollouts
from hgpo.utils.files import naming, whole_file, write_text

LOG_SUFFIX = ".games.jsonl"
_SUMMARY = TypeAdapter(EpisodeSummary)


class EvalLogError(ValueError):
    """The files are damaged, or belong to another evaluation; the message contains the remedy."""


class EvalLog:
    """The episodes of one evaluation.

    Attributes:
        episodes: Summaries by id (`eval_task_id`); the later one if an episode was played twice.
        repeated: Usage of the failed attempts at episodes that were played again.
        cost: Cost of all requests, including those of failed episodes.
    """

    def __init__(self, output: Path, conditions: Mapping[str, Any], *, keep_steps: bool = False) -> None:
        """Open the log in the folder of `output`, or create it if it does not exist.

        Args:
            output: the result file of the evaluation.
            conditions: everything that determines the episodes, as JSON values.
            keep_steps: write the steps, too.

        Raises:
            EvalLogError: the files belong to another evaluation, or are damaged.
        """
        self.path, self.rollouts = log_path(output), rollouts_path(output) if keep_steps else None
        self.episodes: dict[str, EpisodeSummary] = {}
        self.repeated: list[TotalUsage] = []
        self.cost = 0.0
        if self.path.exists():
            self._read(json.loads(json.dumps(dict(conditions))))
            self._drop_unfinished_steps()
        else:
            write_text(self.path, json.dumps({"evaluation": dict(conditions)}) + "\n")
            if self.rollouts is not None:
                self.rollouts.unlink(missing_ok=True)

    def finished(self, episode: str) -> bool:
        """Whether the episode with this id was played to its end."""
        return episode in self.episodes and not self.episodes[episode].failure

    def add(self, summary: EpisodeSummary, steps: list[StepRecord]) -> None:
        """Write an episode that has ended."""
        if self.rollouts is not None and steps and not summary.failure:
            append_rollouts(self.rollouts, steps)
        with naming(self.path), self.path.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(summary)) + "\n")
        self._note(summary)

    def delete(self) -> None:
        """Delete the log after the result was written."""
        self.path.unlink(missing_ok=True)

    def _note(self, summary: EpisodeSummary) -> None:
        episode = eval_task_id(summary.seed, summary.task)
        if episode in self.episodes:
            self.repeated.append(self.episodes[episode].usage)
        self.episodes[episode] = summary
        self.cost += summary.usage.cost

    def _read(self, conditions: Mapping[str, Any]) -> None:
        """Load the episodes of the file and remove an incomplete last line from it."""
        lines = list(_whole_lines(self.path))
        try:
            begun = dict(json.loads(lines[0])["evaluation"])
            for line in lines[1:]:
                # pydantic's own reader rejects half a surrogate pair, which a server's error may contain
                self._note(_SUMMARY.validate_python(json.loads(line)))
        except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise EvalLogError(
                f"{self.path} is damaged ({' '.join(str(error).split())[:200]}); delete it to restart the evaluation"
            ) from error
        if begun != conditions:
            names = sorted(key for key in {*begun, *conditions} if begun.get(key) != conditions.get(key))
            raise EvalLogError(
                f"{self.path} belongs to an evaluation with other settings ({', '.join(names)}): choose another "
                "output, or delete it to restart the evaluation"
            )
        write_text(self.path, "".join(f"{line}\n" for line in lines), durable=True)

    def _drop_unfinished_steps(self) -> None:
        if self.rollouts is None or not self.rollouts.exists():
            return
        with whole_file(self.rollouts, durable=True) as kept, kept.open("w", encoding="utf-8", newline="") as file:
            file.writelines(f"{line}\n" for line in _whole_lines(self.rollouts) if self._is_finished(line))

    def _is_finished(self, line: str) -> bool:
        try:
            return self.finished(json.loads(line)["group"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise EvalLogError(f"{self.rollouts} is damaged ({error}); delete it and {self.path}") from error


def log_path(output: Path) -> Path:
    """The log of the evaluation with the result file `output`."""
    return output.with_name(output.stem + LOG_SUFFIX)


def rollouts_path(output: Path) -> Path:
    """The file of steps of the evaluation with the result file `output`."""
    return output.with_name(f"{output.stem}.rollouts.jsonl")


def _whole_lines(path: Path) -> Iterator[str]:
    """Lines with a line end: a process killed while writing leaves an incomplete last line."""
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for line in file:
            if line.endswith("\n") and line != "\n":
                yield line[:-1]
