"""Episodes in verl's agent workers: the rows of tasks that they receive, and the agent loop that plays one episode.

Each step is one training sample with its own prompt. All episodes of an agent worker share its environment workers.
Needs verl.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
from torch.utils.data import Dataset

from hgpo.assemble import rollout_rules
from hgpo.envs.base import Task
from hgpo.envs.env_checker import EnvContractError
from hgpo.integrations.verl.env_pool import EnvironmentPool, EpisodeLost, VerlPolicy, play_remotely
from hgpo.integrations.verl.env_worker import WorkerSettings
from hgpo.integrations.verl.launch import recipe_of
from hgpo.integrations.verl.rows import EpisodeRows, episode_rows, failure_row
from hgpo.integrations.verl.verl_api import LLMServerClient
from hgpo.policies.chat import PromptEncoder
from hgpo.rollout.episode import EpisodeIds
from hgpo.rollout.eval_tasks import evaluation_randomness
from hgpo.rollout.prompts import RolloutError
from hgpo.rollout.sampling import task_indices
from hgpo.training.load import chat_of

logger = logging.getLogger(__name__)
_SEED_STREAM = 2  # keeps environment seeds apart from the other generators of a run


class TaskRows(Dataset[dict[str, int]]):
    """A data set that verl requires but never reads. It has a row per task of an update, so an epoch is one update."""

    def __init__(self, data_files: Any, tokenizer: Any, config: Any, **_: Any) -> None:
        self._rows = int(config.train_batch_size)

    def __len__(self) -> int:
        return self._rows


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task. verl plays a group of its episodes, all from the same start."""

    group: str
    task_id: str
    task_type: str
    split: str
    task_index: int
    seed: int


def training_rows(
    tasks: Sequence[Task], split: str, *, seed: int, update: int, start: int, count: int
) -> list[TaskRow]:
    """The draws `start` to `start + count` of the order of tasks that `seed` determines.

    A group's name has the draw's number, so it is unique. The rows depend only on the arguments, so a checkpoint
    stores only the number of draws.
    """
    rows = []
    for draw, index in enumerate(task_indices(seed, len(tasks), start, count), start=start):
        task = tasks[index]
        of_environment = int(np.random.SeedSequence([seed, _SEED_STREAM, draw]).generate_state(1)[0] >> 1)
        rows.append(TaskRow(f"{update}/{draw}/{task.id}", task.id, task.kind, split, index, of_environment))
    return rows


def evaluation_rows(tasks: Sequence[Task], split: str, *, seed: int) -> list[TaskRow]:
    """Each task of the evaluation set once, for one evaluation seed."""
    return [
        TaskRow(f"s{seed}/{index}/{task.id}", task.id, task.kind, split, index, evaluation_randomness(seed, index)[0])
        for index, task in enumerate(tasks)
    ]


def as_columns(rows: Sequence[TaskRow]) -> dict[str, list[Any]]:
    """The rows as columns, verl's format of a batch; verl identifies a sample by its `index`."""
    columns = {name: [asdict(row)[name] for row in rows] for name in asdict(rows[0])}
    return {**columns, "index": columns["task_index"]}


class _Shared:
    """Parts that all episodes of an agent worker's process share."""

    def __init__(self, verl_config: Any, tokenizer: Any) -> None:
        config, _ = recipe_of(verl_config)
        environment, verl = config.environment, config.verl
        self.max_response_tokens = config.policy.max_response_tokens
        self.encoder = PromptEncoder(tokenizer, config.policy.max_prompt_tokens, chat_of(config.policy))
        bootstraps = config.needs_critic and config.training.bootstrap_truncated
        self.rules = replace(
            rollout_rules(config.rollout, config.agent, environment.name),
            cut_encoder=self.encoder if bootstraps else None,
        )
        settings = WorkerSettings(
            environment.name,
            environment.options,
            environment.max_steps,
            verl.step_timeout,
            sends_state=self.rules.state == "simulator",
            splits=(environment.train_split, config.evaluation.split),
        )
        self.pool = EnvironmentPool(settings, verl.environment_workers)


class StepwiseAgentLoop:
    """Plays an episode to its end and returns its rows; None if the episode was lost, which is logged.

    Any other error ends the run, as in the built-in trainer; for example a prompt that is too long even without memory.
    verl would drop the group and continue, so a row transfers the error to the trainer (`queue.read_steps`).
    """

    shared: ClassVar[_Shared | None] = None

    def __init__(self, verl_config: Any, client: Any, tokenizer: Any) -> None:
        self._verl_config, self._client, self._tokenizer = verl_config, client, tokenizer

    async def run(self, sampling_params: dict[str, Any], row: dict[str, Any]) -> EpisodeRows | None:
        """`row` is a `TaskRow` with verl's `uid` and `session_id`."""
        trajectory = f"{row['group']}#{row['session_id']}"
        try:
            ids = EpisodeIds(row["group"], trajectory, row["task_id"], row["task_type"])
            return await self._play(ids, sampling_params, row)
        except EpisodeLost as error:
            logger.error("trajectory %s is left out of the update: %s", trajectory, error)
            return None
        except Exception as error:
            logger.exception("trajectory %s ends the run", trajectory)
            expected = isinstance(error, EnvContractError | RolloutError)
            return failure_row(str(error) if expected else f"{type(error).__name__}: {error}")

    async def _play(self, ids: EpisodeIds, sampling_params: dict[str, Any], row: dict[str, Any]) -> EpisodeRows:
        if StepwiseAgentLoop.shared is None:
            StepwiseAgentLoop.shared = _Shared(self._verl_config, self._tokenizer)
        shared = StepwiseAgentLoop.shared
        rules = replace(shared.rules, temperature=float(sampling_params["temperature"]))  # differs in validation
        environment = await shared.pool.start(row["split"], int(row["task_index"]), seed=int(row["seed"]))
        with one_server(self._client) as client:
            policy = VerlPolicy(client, shared.encoder, sampling_params, shared.max_response_tokens)
            return episode_rows(await play_remotely(ids, environment, policy, rules))


class _EpisodeClient(LLMServerClient):  # type: ignore[misc]
    """verl's client for one episode. It asks the router once; the router counts one request until `release`."""

    def __init__(self, client: LLMServerClient) -> None:
        self.__dict__.update(vars(client))
        rollout = client.config.actor_rollout_ref.rollout
        # verl reads both in every request; with OmegaConf, that takes longer than the rest of the method.
        read = SimpleNamespace(name=rollout.name, full_determinism=rollout.get("full_determinism", False))
        self.config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=read))
        self._client = client
        self._held: tuple[str, Any] | None = None  # the server's name and the server
        self._request_id = ""

    async def _acquire_server(self, request_id: str, **extra: Any) -> tuple[str, Any]:
        if self._held is None:
            self._held, self._request_id = await self._client._acquire_server(request_id, **extra), request_id
        return self._held

    def _release_server(self, server_id: str, request_id: str | None = None) -> None:
        """Keeps the server, until `release`."""

    def release(self) -> None:
        """Tell the router that the episode is over."""
        if self._held is not None:
            self._client._release_server(self._held[0], request_id=self._request_id)


@contextmanager
def one_server(client: Any) -> Iterator[Any]:
    """A client for one episode, which asks the router once.

    verl asks its router, one process for the whole run, before and after each request, and sends all requests of an
    episode to the same server. Clients of other classes are yielded unchanged, such as verl's asynchronous ones, whose
    servers change.
    """
    if type(client) is not LLMServerClient:
        yield client
        return
    own = _EpisodeClient(client)
    try:
        yield own
    finally:
        own.release()
