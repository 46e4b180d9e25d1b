"""The file of an evaluation: what a panel showed and, where that is known, who played it and what it cost.

It is one JSON object: the keys of `Evaluation`, and beside them those of `StoredEvaluation`. A run's evaluations of its
own policy have the former alone. Keys that are not known are passed over, so that a later version may add some.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from hgpo.evaluation.statistics import Evaluation, Rate
from hgpo.runs.folder import check_schema, read_json, write_json

_PANEL_KEYS = tuple(field.name for field in fields(Evaluation))


@dataclass(frozen=True, slots=True)
class Failure:
    """An episode that was not played to its end.

    Attributes:
        task: Id of its task.
        seed: Seed of the evaluation.
        reason: The error, as text.
    """

    task: str
    seed: int
    reason: str


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Number of tokens of a model's requests.

    Attributes:
        prompt: Tokens that it read.
        response: Tokens that it generated.
    """

    prompt: int
    response: int

    @property
    def total(self) -> int:
        """Both together."""
        return self.prompt + self.response


@dataclass(frozen=True, slots=True)
class Latency:
    """How long a request took, in seconds.

    Attributes:
        mean: Over all requests.
        p95: The 95th percentile.
    """

    mean: float
    p95: float


@dataclass(frozen=True, slots=True)
class StoredEvaluation:
    """An evaluation as a file holds it. What is None was not recorded.

    Attributes:
        evaluation: What the panel showed.
        model: Name of the model that played.
        agent: What made prompts of observations, e.g. "react".
        environment: Name of the environment.
        episodes: Played to the end; the figures are theirs.
        failed: Episodes that were not.
        failures: Which these were, and why.
        tokens: Of all requests.
        requests: How many answers were asked for.
        cost: In the currency that prices were given in.
        seconds: Wall time of the whole panel.
        latency: Of a request.
        success_by_trial: Success after the first trial, the second and so on, 0-1.
    """

    evaluation: Evaluation
    model: str | None = None
    agent: str | None = None
    environment: str | None = None
    episodes: int | None = None
    failed: int | None = None
    failures: tuple[Failure, ...] = ()
    tokens: TokenCount | None = None
    requests: int | None = None
    cost: float | None = None
    seconds: float | None = None
    latency: Latency | None = None
    success_by_trial: tuple[float, ...] | None = None

    @property
    def episodes_played(self) -> int:
        """`episodes`; where it was not recorded, each task was played once per seed."""
        if self.episodes is not None:
            return self.episodes
        return self.evaluation.success.tasks * len(self.evaluation.seeds)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON: the panel's keys and, if any further one is known, all of these."""
        further = asdict(self)
        del further["evaluation"]
        known = any(value is not None and value != () for value in further.values())
        return {**self.evaluation.as_dict(), **(further if known else {})}


def write_evaluation(path: Path, stored: StoredEvaluation) -> None:
    """Write the file whole or not at all."""
    write_json(path, stored.as_dict())


def read_evaluation(path: Path) -> StoredEvaluation:
    """What the file holds. Nothing that it names is imported; its texts are as untrusted as the file.

    Half a surrogate pair, which is no character, becomes a question mark.

    Raises:
        ValueError: It is not JSON, not an evaluation, or an evaluation that is damaged; the message names the place.
    """
    value = read_json(path, parse_constant=_finite, parse_float=_finite, parse_int=_bounded)
    missing = [key for key in _PANEL_KEYS if key not in value]
    if missing:
        raise ValueError(f"{path} is not an evaluation: it has no {', '.join(map(repr, missing))}")
    further = {key: content for key, content in value.items() if content is not None}
    evaluation = check_schema(path, value, Evaluation)
    stored = check_schema(path, {**further, "evaluation": asdict(evaluation)}, StoredEvaluation)
    try:
        _check_figures(stored)
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    return stored


def _finite(text: str) -> float:
    """JSON has no NaN and no infinity, and neither has a figure."""
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return number


def _bounded(text: str) -> int:
    """A whole number that counts something; a larger one may be no float."""
    if not -(2**63) <= (number := int(text)) < 2**63:
        raise ValueError(f"{text[:20]}… is too large")
    return number


def _check_figures(stored: StoredEvaluation) -> None:
    """What types do not tell: a panel has tasks and seeds, and fractions are 0-1."""
    panel = stored.evaluation
    if not panel.seeds:
        raise ValueError("'seeds' is empty")
    if not panel.tasks_won:
        raise ValueError("'tasks_won' is empty")
    rates = {"success": panel.success} | {f"by_task_type.{kind}": rate for kind, rate in panel.by_task_type.items()}
    for place, rate in rates.items():
        _check_rate(place, rate)
    for task, won in panel.tasks_won.items():
        _check_fraction(f"tasks_won.{task}", won)
    for name in ("episodes", "failed", "requests", "cost", "seconds"):
        if (getattr(stored, name) or 0) < 0:
            raise ValueError(f"{name!r} is {getattr(stored, name)}, below 0")
    if stored.latency is not None:
        for name, seconds in asdict(stored.latency).items():
            if seconds < 0:
                raise ValueError(f"{'latency.' + name!r} is {seconds}, below 0")
    for trial, success in enumerate(stored.success_by_trial or ()):
        _check_fraction(f"success_by_trial.{trial}", success)


def _check_rate(place: str, rate: Rate) -> None:
    if rate.tasks < 1:
        raise ValueError(f"{place + '.tasks'!r} is {rate.tasks}, below 1")
    for name in ("mean", "low", "high"):
        _check_fraction(f"{place}.{name}", getattr(rate, name))


def _check_fraction(place: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{place!r} is {value}, not between 0 and 1")
