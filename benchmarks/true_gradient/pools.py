"""Pools: many rollouts of each of many tasks with one policy, and a sketch of the gradient of every step.

A pool is a folder: `pool.json`, and for every few tasks `steps-NNN.parquet` and `sketches-NNN.npy`, whose rows are the
same steps. An interrupted pool continues with the missing tasks.

Shapes: N steps, W buckets.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from hgpo.assemble import build_suite, rollout_rules
from hgpo.envs.base import Env, Task
from hgpo.policies.base import AnyPolicy
from hgpo.policies.language_model import LanguageModel
from hgpo.rollout.prompts import RolloutRules
from hgpo.rollout.records import StepRecord, by_trajectory, write_rollouts
from hgpo.rollout.runner import collect
from hgpo.rollout.state_keys import Visit, make_key
from hgpo.runs.folder import open_run_directory, write_json
from hgpo.storage.tables import read_parquet
from hgpo.training.batching import Sample
from hgpo.training.load import RunPolicies, make_backend_policy, use_threads
from hgpo.utils.files import whole_file
from true_gradient.sketches import Sketcher

KEYS = ("observation", "observation_and_commands", "published_g2po", "simulator")
KeyedSteps = dict[str, list[StepRecord]]
"""State key -> the same steps, with this key's values as observations."""
_NOT_STORED = {"next_prompt_ids"}


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """The policy, tasks and rollouts of a pool.

    Attributes:
        run, checkpoint: the policy.
        split, first, tasks: the split, the index of the first task, and the number of tasks.
        rollouts: number of rollouts of each task.
        at_once: number of tasks that are played together.
        parameters: the parameters whose gradients are sketched: their names contain one of these; empty: all.
        seed: seed of the rollouts.
    """

    run: str
    checkpoint: str
    split: str = "train"
    first: int = 0
    tasks: int = 128
    rollouts: int = 64
    at_once: int = 8
    parameters: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Player:
    """A policy with its model, the rules of its episodes, the tasks by id, and the tokens of a micro-batch."""

    language_model: LanguageModel
    policy: AnyPolicy
    rules: RolloutRules
    tasks: Mapping[str, Task]
    micro_batch_tokens: int


def open_player(settings: PoolSettings) -> Player:
    """Load the policy and the tasks of a pool."""
    run, config = open_run_directory(Path(settings.run))
    use_threads(config.run.threads)
    policies = RunPolicies(run, config.policy, config.warm_start.enabled, config.run.seed)
    language_model, _ = policies.language_model(settings.checkpoint)
    environment = config.environment
    suite = build_suite(environment, config.evaluation)
    chosen = suite.tasks(settings.split)[settings.first : settings.first + settings.tasks]
    if len(chosen) < settings.tasks:
        raise SystemExit(f"split {settings.split!r} has only {len(chosen)} tasks from task {settings.first} on")
    rules = rollout_rules(config.rollout, config.agent, environment.name)
    policy = make_backend_policy(config.policy, language_model)
    by_id = {task.id: task for task in chosen}
    return Player(language_model, policy, rules, by_id, config.training.micro_batch_tokens)


def make_pool(folder: Path, settings: PoolSettings) -> None:
    """Play the pool's missing parts."""
    folder.mkdir(parents=True, exist_ok=True)
    stated = folder / "pool.json"
    if stated.exists() and read_settings(folder) != settings:
        raise SystemExit(f"{folder} has a pool of other settings; choose another folder or delete it")
    write_json(stated, asdict(settings))
    player = open_player(settings)
    words = settings.parameters
    sketcher = Sketcher(
        player.language_model.model,
        trained=lambda name: not words or any(one in name for one in words),
        micro_batch_tokens=player.micro_batch_tokens,
    )
    tasks = list(player.tasks.values())
    for number, first in enumerate(track(range(0, len(tasks), settings.at_once), f"{folder.name}: playing")):
        if not _sketch_file(folder, number).exists():
            _play_part(folder, number, tasks[first : first + settings.at_once], settings, player, sketcher)


def _play_part(
    folder: Path, number: int, tasks: Sequence[Task], settings: PoolSettings, player: Player, sketcher: Sketcher
) -> None:
    rng = np.random.default_rng((settings.seed, number))
    steps = collect(tasks, player.policy, player.rules, rng, group_size=settings.rollouts, label=f"{number}.")
    write_rollouts(folder / f"steps-{number:03d}.parquet", steps)
    samples = [Sample(step.prompt_ids, step.token_ids, step.log_probs, 0.0) for step in steps]
    sketch_NW = sketcher.of_samples(samples, player.rules.temperature)
    with whole_file(_sketch_file(folder, number)) as unfinished, unfinished.open("wb") as file:
        np.save(file, sketch_NW.astype(np.float16))  # written last: a part with sketches is complete


def _sketch_file(folder: Path, number: int) -> Path:
    return folder / f"sketches-{number:03d}.npy"


def read_settings(folder: Path) -> PoolSettings:
    """The settings of a pool."""
    stored = json.loads((folder / "pool.json").read_text(encoding="utf-8"))
    return PoolSettings(**(stored | {"parameters": tuple(stored["parameters"])}))


@dataclass(frozen=True, slots=True, eq=False)
class PoolPart:
    """The rollouts of some tasks of a pool: their steps with state keys, and float32[N, W] sketches."""

    steps: KeyedSteps
    sketch_NW: NDArray[np.float32]


def read_pool(folder: Path, player: Player, keys: Sequence[str]) -> Iterator[PoolPart]:
    """The finished parts of a pool, with these state keys."""
    for path in sorted(folder.glob("sketches-*.npy")):
        records = _records(folder / f"steps-{path.stem.partition('-')[2]}.parquet")
        sketch_NW = np.load(path).astype(np.float32)
        place = {(step.trajectory, step.step): row for row, step in enumerate(records)}
        steps = replayed(records, player.tasks, keys, player.rules.state)
        yield PoolPart(steps, sketch_NW[[place[step.trajectory, step.step] for step in steps[keys[0]]]])


def _records(path: Path) -> list[StepRecord]:
    """The stored step records."""
    columns: dict[str, list[Any]] = {}
    table = read_parquet(path)
    for field in fields(StepRecord):
        if field.name not in _NOT_STORED:
            columns[field.name] = table.column(field.name).to_pylist()
    for name, kind in (("prompt_ids", np.int32), ("token_ids", np.int32), ("log_probs", np.float32)):
        columns[name] = [np.array(values, dtype=kind) for values in columns[name]]
    return [StepRecord(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


def replayed(steps: Sequence[StepRecord], tasks: Mapping[str, Task], keys: Sequence[str], recorded: str) -> KeyedSteps:
    """The records as if they had been collected with each state key, trajectory by trajectory in order of time.

    The environment is played again with the recorded actions.

    Args:
        steps: whole trajectories, in any order.
        tasks: by id; their environments start alike for every seed.
        keys: values of `rollout.state`.
        recorded: the key with which the steps were collected.

    Raises:
        ValueError: the environment's answers differ from the records.
    """
    found: KeyedSteps = {key: [] for key in keys}
    for trajectory in by_trajectory(steps):
        seen = _states(trajectory, tasks[trajectory[0].task_id].make(), {*keys, recorded})
        if [step.observation for step in trajectory] + [trajectory[-1].next_observation] != seen[recorded]:
            raise ValueError(f"{trajectory[0].trajectory} was recorded in another environment than it is replayed in")
        for key, records in found.items():
            for step, before, after in zip(trajectory, seen[key][:-1], seen[key][1:], strict=True):
                records.append(replace(step, observation=before, next_observation=after))
    return found


def _states(trajectory: Sequence[StepRecord], environment: Env, keys: Collection[str]) -> dict[str, list[str]]:
    """The keys of all states of one trajectory, one more than it has steps."""
    makers = {key: make_key(key) for key in keys}
    observation, info = environment.reset(seed=0)
    found = {key: [make(Visit(observation, None, info))] for key, make in makers.items()}
    for step in trajectory:
        observation, _, _, _, info = environment.step(step.action)
        for key, make in makers.items():
            found[key].append(make(Visit(observation, step.action, info)))
    return found
