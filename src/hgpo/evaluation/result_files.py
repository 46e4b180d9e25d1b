"""The file of an evaluation: its figures, the model and agent, tokens, costs and failures.

It is one JSON object with the keys of `Evaluation` and `StoredEvaluation`, the same for a run's evaluations and for
those of `hgpo eval -o`. Unknown keys are ignored, so that a later version may add some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from hgpo.evaluation.statistics import Amount, Count, Evaluation, Fraction, summarise
from hgpo.rollout.records import EpisodeSummary, TotalUsage
from hgpo.runs.folder import RunDirectory, RunDirectoryError, check_schema, read_json, write_json
from hgpo.utils.text import counted

_REQUIRED_KEYS = tuple(field.name for field in fields(Evaluation))


@dataclass(frozen=True, slots=True)
class Failure:
    """An episode that was not played to its end: id of its task, seed of the evaluation, and the error as text."""

    task: str
    seed: Count
    reason: str


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Numbers of tokens that a model read and generated."""

    prompt: Count
    response: Count

    @property
    def total(self) -> int:
        """Both together."""
        return self.prompt + self.response


@dataclass(frozen=True, slots=True)
class Latency:
    """How long a request took, in seconds: mean and 95th percentile over all requests."""

    mean: Amount
    p95: Amount


@dataclass(frozen=True, slots=True)
class StoredEvaluation:
    """An evaluation with statistics of its episodes. None: not recorded.

    Attributes:
        evaluation: The figures.
        model: Name of the model.
        agent: Name of the agent, e.g. "react".
        environment: Name of the environment.
        episodes: Number of episodes played to the end, from which the figures are computed.
        failed: Number of episodes that were not played to the end.
        failures: These episodes, each with its error.
        tokens: Tokens of all requests.
        requests: Number of requests.
        cost: Cost of all requests, in the currency of the prices.
        seconds: Wall time; None if an earlier process played a part.
        latency: Duration of a request.
        context_full: Number of episodes that were lost because a prompt did not fit into the context.
        tokens_estimated: Number of requests with estimated tokens, since the server reported none.
        parameters: Sampling parameters as they were sent to a server; None: left out, since the model rejects it.
        success_by_trial: Success after the first trial, the second and so on, 0-1; None with one trial.
        manifest: Id of the package's manifest (`hgpo.evaluation.manifests`) that the tasks belong to; None: to none.
        manifest_differs: Ids of the tasks that differ from it, such as another game file under the same id.
    """

    evaluation: Evaluation
    model: str | None = None
    agent: str | None = None
    environment: str | None = None
    episodes: Count | None = None
    failed: Count | None = None
    failures: tuple[Failure, ...] = ()
    tokens: TokenCount | None = None
    requests: Count | None = None
    cost: Amount | None = None
    seconds: Amount | None = None
    latency: Latency | None = None
    context_full: Count | None = None
    tokens_estimated: Count | None = None
    parameters: dict[str, Any] | None = None
    success_by_trial: tuple[Fraction, ...] | None = None
    manifest: str | None = None
    manifest_differs: tuple[str, ...] = ()

    @property
    def episodes_played(self) -> int:
        """`episodes`; if not recorded, tasks times seeds."""
        if self.episodes is not None:
            return self.episodes
        return self.evaluation.success.tasks * len(self.evaluation.seeds)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        further = asdict(self)
        del further["evaluation"]
        return {**self.evaluation.as_dict(), **further}


def summarise_evaluation(
    episodes: Sequence[EpisodeSummary],
    repeated: Sequence[TotalUsage] = (),
    *,
    split: str,
    seeds: Sequence[int],
    temperature: float,
) -> StoredEvaluation:
    """Compute the statistics, usage and failures of an evaluation's episodes; the caller adds names, cost and time.

    Args:
        episodes: one for each task and seed.
        repeated: usage of earlier attempts at them.
        split: split of the tasks.
        seeds: seeds of the evaluation.
        temperature: temperature of the sampling; a temperature that was sent to a server replaces it.

    Raises:
        ValueError: no episode was played to its end.
    """
    ended = [episode for episode in episodes if not episode.failure]
    failed = [episode for episode in episodes if episode.failure]
    if not ended:
        raise ValueError(f"none of {len(episodes)} episodes was played to its end: {failed[0].failure}")
    full = [episode.context_full for episode in ended if episode.context_full]
    if not any(episode.counts.steps for episode in ended):
        raise ValueError(f"none of {len(episodes)} episodes has a step: {full[0] if full else 'they end at once'}")
    parameters = {name: value for one in ended for name, value in one.usage.parameters.items()}
    if parameters:  # the protocol's default replaces a temperature that the model does not accept
        temperature = 1.0 if parameters.get("temperature") is None else float(parameters["temperature"])
    usage = [*(episode.usage for episode in episodes), *repeated]  # failed episodes cost tokens, too
    latencies = [seconds for one in usage for seconds in one.latencies]
    trials = max(len(episode.trials) for episode in ended)
    by_trial = [float(np.mean([any(one.trials[: trial + 1]) for one in ended])) for trial in range(trials)]
    return StoredEvaluation(
        summarise(ended, split=split, seeds=seeds, temperature=temperature),
        episodes=len(ended),
        failed=len(failed),
        failures=tuple(Failure(one.task, one.seed, one.failure) for one in failed),
        tokens=TokenCount(sum(one.prompt_tokens for one in usage), sum(one.response_tokens for one in usage)),
        requests=sum(one.requests for one in usage),
        latency=Latency(float(np.mean(latencies)), float(np.quantile(latencies, 0.95))) if latencies else None,
        context_full=len(full),
        tokens_estimated=sum(one.estimated for one in usage),
        parameters=parameters or None,
        success_by_trial=tuple(by_trial) if trials > 1 else None,
    )


def write_evaluation(path: Path, stored: StoredEvaluation) -> None:
    """Write the file whole or not at all."""
    write_json(path, stored.as_dict())


def read_evaluation(path: Path) -> StoredEvaluation:
    """Read an evaluation. Nothing that it names is imported; its texts are as untrusted as the file.

    Half a surrogate pair, which is no character, becomes a question mark.

    Raises:
        ValueError: The file is not JSON, not an evaluation, or a damaged evaluation; the message names the place.
    """
    if path.suffix in (".jsonl", ".parquet"):
        raise ValueError(
            f"{path} has a row per step or episode, and an evaluation is one JSON object; `hgpo advantages`, "
            "`hgpo inspect` and `hgpo audit` read rows"
        )
    value = read_json(path)
    missing = [key for key in _REQUIRED_KEYS if key not in value]
    if missing:
        raise ValueError(f"{path} is not an evaluation: it has no {', '.join(map(repr, missing))}")
    further = {key: content for key, content in value.items() if content is not None}
    evaluation = check_schema(path, value, Evaluation)
    return check_schema(path, {**further, "evaluation": asdict(evaluation)}, StoredEvaluation)


def stored_evaluation(run: RunDirectory, name: str) -> Evaluation | None:
    """The figures of a run's evaluation `name`; None if the run has none of that name."""
    if not run.evaluation(name).exists():
        return None
    try:
        return read_evaluation(run.evaluation(name)).evaluation
    except ValueError as error:
        remedy = "to repeat the evaluation" if name in ("before", "after") else "to continue without it"
        files = f"it and {run.summary}" if run.complete else "it"
        raise RunDirectoryError(f"{error}; delete {files} and resume {remedy}") from error


def describe(evaluation: Evaluation) -> str:
    """Success with its interval, and what was evaluated, in one line."""
    success = evaluation.success
    interval = f"{percent(success.low)} to {percent(success.high)}"
    return f"success {percent(success.mean)} [95 % {interval}] on {describe_set(evaluation)}"


def describe_set(evaluation: Evaluation) -> str:
    """The evaluation set in words: `256 tasks of valid_unseen, temperature 0.4, seed 123`."""
    return (
        f"{counted(evaluation.success.tasks, 'task')} of {evaluation.split}, temperature {evaluation.temperature:g}, "
        f"seed{'s' if len(evaluation.seeds) > 1 else ''} {', '.join(map(str, evaluation.seeds))}"
    )


def percent(fraction: float) -> str:
    """`0.4375` as `43.8 %`."""
    return f"{100 * fraction:.1f} %"
