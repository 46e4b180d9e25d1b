"""Advantages through a real TransferQueue: what is written back is the core's. Runs where verl is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from hgpo.config import Config, TrainingSettings
from hgpo.envs.base import Task
from hgpo.estimators import compute_advantages
from hgpo.evaluation.result_files import StoredEvaluation, write_evaluation
from hgpo.rollout.records import StepRecord, to_step_batch

pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")

import ray
import torch
import transfer_queue
from omegaconf import OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.checkpoint_engine import CheckpointEngineManager
from verl.plugin.platform import get_platform, set_platform
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.v1 import PPOTrainer
from verl.utils.transferqueue_utils import kv_batch_meta2batch_meta
from verl.workers.config import CheckpointEngineConfig
from verl.workers.engine_workers import ActorRolloutRefWorker

from hgpo.assemble import build_estimator
from hgpo.integrations.verl import watchdog
from hgpo.integrations.verl.agent_loop import StepwiseAgentLoop
from hgpo.integrations.verl.agent_workers import EpisodeWorker
from hgpo.integrations.verl.config import mapped_settings
from hgpo.integrations.verl.cpu import CpuPlatform, TransformersReplica, WeightSender
from hgpo.integrations.verl.launch import compose
from hgpo.integrations.verl.queue import (
    BatchSteps,
    Cut,
    leave_out,
    lost_trajectories,
    put_advantages,
    read_steps,
    skipped,
    wait_for_a_group,
)
from hgpo.integrations.verl.rows import EpisodeRows, episode_rows, failure_row
from hgpo.integrations.verl.trainer import HgpoTrainer, UpdateState
from hgpo.integrations.verl.trainers import SyncTrainer
from hgpo.policies.base import Response
from hgpo.rollout.prompts import RolloutError
from hgpo.runs.folder import RunDirectory, read_metrics
from hgpo.training.losses import importance_weights
from hgpo.utils.progress import Reporter
from panels import panel
from step_records import step_record
from verl_workers import small_ray_and_queue

pytestmark = pytest.mark.slow

PARTITION = "train"
RESPONSE = Response("", np.zeros(0), np.zeros(0), np.zeros(0), True, {"min_global_steps": 0, "max_global_steps": 0})
READ = {"input_ids", "position_ids", "prompts", "responses", "response_mask"}


@pytest.fixture(scope="module", autouse=True)
def queue() -> Iterator[None]:
    with small_ray_and_queue():
        yield


def records(groups: int, members: int, seed: int) -> list[StepRecord]:
    rng = np.random.default_rng(seed)
    found = []
    for group in range(groups):
        for member in range(members):
            length = int(rng.integers(2, 7))
            for step in range(length):
                tokens = int(rng.integers(1, 6))
                won = bool(step == length - 1 and rng.random() < 0.5)
                valid = bool(rng.random() < 0.8)
                record = step_record(
                    group=f"1/{group}/task",
                    trajectory=f"1/{group}/task#{member}",
                    step=step,
                    observation=f"place {rng.integers(3)}",
                    valid=valid,
                    fault="" if valid else "empty",
                    reward=10.0 * won,
                    penalty=0.0 if valid else 0.1,
                    won=won,
                    score=float(won),
                    terminated=won,
                    truncated=step == length - 1 and not won,
                    prompt_ids=rng.integers(0, 50, 4).astype(np.int32),
                    token_ids=rng.integers(0, 50, tokens).astype(np.int32),
                    log_probs=-np.abs(rng.normal(size=tokens)).astype(np.float32),
                )
                found.append(record)
    return found


def put(steps: list[StepRecord], uid_prefix: str, seed: int, padding: int = 0) -> KVBatchMeta:
    """Steps as the agent workers store them, in an order that says nothing, with padding as verl adds it."""
    order = np.random.default_rng(seed).permutation(len(steps))
    shuffled = [steps[number] for number in order]
    rows = episode_rows([(record, RESPONSE) for record in shuffled])
    keys = [key_of(record, uid_prefix) for record in shuffled]
    transfer_queue.kv_batch_put(keys=keys, partition_id=PARTITION, fields=rows.columns, tags=rows.tags)
    batch = KVBatchMeta(partition_id=PARTITION, keys=keys, tags=rows.tags)
    return upsample_batch_to_divisible_size(batch, len(steps) + padding, eos_token_id=1)


def key_of(record: StepRecord, uid_prefix: str) -> str:
    group, member = record.group.split("/")[1], record.trajectory.rsplit("#", 1)[1]
    return f"{uid_prefix}{group}_{member}_{record.step}"


def settings(estimator: str, **options: Any) -> Config:
    return Config.model_validate(
        {"policy": {"model": "m"}, "advantage": {"estimator": estimator, "gamma": 0.9, "options": options}}
    )


@pytest.mark.parametrize(
    ("estimator", "options"),
    [("hgpo", {}), ("hgpo", {"preset": "verl-agent", "base_group": True}), ("gigpo", {}), ("grpo", {}), ("rloo", {})],
)
def test_what_is_written_back_is_the_cores_after_the_cast_to_float32(estimator: str, options: dict[str, Any]) -> None:
    steps = records(groups=3, members=4, seed=1)
    config = settings(estimator, **options)
    batch = put(steps, f"w{estimator}{len(options)}x", seed=2, padding=5)
    found = read_steps(batch)
    put_advantages(
        batch, found, build_estimator(config.advantage, config.estimator_options)(to_step_batch(found.records))
    )
    expected = compute_advantages(to_step_batch(steps), estimator, gamma=0.9, **config.estimator_options).values.astype(
        np.float32
    )
    prefix = f"w{estimator}{len(options)}x"
    by_key = {key_of(record, prefix): value for record, value in zip(steps, expected, strict=True)}
    stored = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=PARTITION, select_fields=["advantages"])
    assert np.count_nonzero(expected)
    for key, tag, advantage in zip(batch.keys, batch.tags, stored["advantages"].unbind(), strict=True):
        assert advantage.dtype == torch.float32
        if tag.get("is_padding"):
            assert advantage.tolist() == [0.0]
        else:
            assert advantage.tolist() == [by_key[key]] * len(advantage)
    transfer_queue.kv_clear(keys=batch.keys, partition_id=PARTITION)


def stored_advantages(batch: KVBatchMeta) -> dict[str, list[float]]:
    columns = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=PARTITION, select_fields=["advantages"])
    return {key: row.tolist() for key, row in zip(batch.keys, columns["advantages"].unbind(), strict=True)}


@pytest.mark.parametrize("setting", ["skip_cut_responses", "skip_zero_advantage"])
def test_steps_that_are_left_out_of_the_update_still_count_for_the_others_advantages(setting: str) -> None:
    steps = [
        replace(record, finished=number % 3 != 0) for number, record in enumerate(records(groups=3, members=4, seed=5))
    ]
    config = settings("hgpo")
    batch = put(steps, setting, seed=6)
    found = read_steps(batch)
    advantages = build_estimator(config.advantage, config.estimator_options)(to_step_batch(found.records))
    expected = dict(zip(found.keys, advantages.values.astype(np.float32), strict=True))
    training = config.training.model_copy(update={setting: True})
    assert skipped(found, advantages, config.training) == set()
    out = skipped(found, advantages, training)
    cut = {key_of(record, setting) for record in steps if not record.finished}
    zero = {key for key, value in expected.items() if value == 0}
    assert out == (cut if setting == "skip_cut_responses" else zero)
    assert 0 < len(out) < len(steps)
    leave_out(batch, out)
    assert set(batch.keys) == set(found.keys) - out
    assert len(batch.tags) == len(batch.keys)
    batch.reorder(list(range(len(batch)))[::-1])  # as verl does next, also where it adds no padding
    assert set(transfer_queue.kv_list(PARTITION)[PARTITION]) == set(batch.keys)
    put_advantages(batch, found, advantages)
    for key, row in stored_advantages(batch).items():
        assert row == [expected[key]] * len(row)
    transfer_queue.kv_clear(keys=batch.keys, partition_id=PARTITION)


def trainer_of(path: Path, recompute: bool, prefix: str, padding: int = 2) -> tuple[HgpoTrainer, KVBatchMeta]:
    """A trainer before it writes advantages, and its batch in the queue."""
    training = TrainingSettings(recompute_log_probs=recompute, entropy_coefficient=0.0)
    config = settings("hgpo").model_copy(update={"training": training})
    batch = put(records(groups=2, members=2, seed=1), prefix, seed=2, padding=padding)
    mask, log_probs = (nested_column(batch, name) for name in ("response_mask", "rollout_log_probs"))
    old = torch.nested.as_nested_tensor([torch.full(row.shape, -0.5) for row in mask.unbind()], layout=torch.jagged)
    scored = TensorDict(
        {"old_log_probs": old, "rollout_log_probs": log_probs, "response_mask": mask}, batch_size=len(batch.keys)
    )
    if not recompute:
        fields = TensorDict({"old_log_probs": old}, batch_size=len(batch.keys))
        transfer_queue.kv_batch_put(keys=batch.keys, partition_id=PARTITION, fields=fields)
    trainer = object.__new__(SyncTrainer)
    trainer.recipe, trainer.run, trainer.global_steps = config, RunDirectory(path), 1
    trainer.config = OmegaConf.create()
    for name, one in mapped_settings(config, "m", path).items():
        OmegaConf.update(trainer.config, name, one.value, force_add=True)
    trainer.actor_rollout_wg = trainer.ref_policy_wg = Ranks()
    steps = read_steps(batch)
    step_batch = to_step_batch(steps.records)
    advantages = build_estimator(config.advantage, config.estimator_options)(step_batch)
    whole = Cut(1, len(batch.keys), padding)
    trainer.update_state = UpdateState(
        steps, step_batch, advantages, steps.records, len(batch.keys), cut=whole, scored=scored if recompute else None
    )
    return trainer, batch


@pytest.mark.parametrize("recompute", [True, False])
def test_the_trainer_writes_the_weights_of_the_correction_beside_the_advantages(
    tmp_path: Path, recompute: bool
) -> None:
    trainer, batch = trainer_of(tmp_path, recompute, f"w{recompute}")
    metrics: dict[str, Any] = {}
    trainer._compute_advantage(batch, metrics)
    old = column(batch, "old_log_probs")
    assert len(column(batch, "advantages")) == len(batch.keys)
    assert ("sampler_gap_mean" in metrics) is recompute
    if recompute:
        rows = zip(
            batch.tags, old, column(batch, "rollout_log_probs"), column(batch, "rollout_is_weights"), strict=True
        )
        for tag, trainer_N, engine_N, weight_N in rows:
            if not tag.get("is_padding"):
                np.testing.assert_allclose(
                    weight_N, importance_weights(trainer_N.numpy(), engine_N.numpy(), 2.0), rtol=1e-6
                )
    transfer_queue.kv_clear(keys=batch.keys, partition_id=PARTITION)


class Polled:
    """verl's replay buffer while it waits; the second wait sees the first group's end."""

    poll_interval = 0.0

    def __init__(self, tasks: list[str]) -> None:
        self.pending_keys, self.running_keys = {PARTITION: {tasks[0]}}, {PARTITION: {tasks[1]}}
        self.waits = 0

    def _wait_for_next_poll(self, partition_id: str, last_message: float) -> float:
        self.waits += 1
        if self.waits == 3:
            transfer_queue.kv_batch_put(keys=["task1"], partition_id=partition_id, tags=[{"status": "finished"}])
        return last_message + 1


def test_the_trainer_looks_at_all_rows_again_once_a_group_has_ended() -> None:
    tasks = ["task0", "task1"]
    statuses = [{"status": "pending", "is_prompt": True}, {"status": "running", "is_prompt": True}]
    transfer_queue.kv_batch_put(keys=tasks, partition_id=PARTITION, tags=statuses)
    wait_for_a_group(buffer := Polled(tasks))
    assert buffer._wait_for_next_poll(PARTITION, 0.0) == buffer.waits == 3
    assert buffer._wait_for_next_poll(PARTITION, 0.0) == 1  # `sample` has not looked since
    transfer_queue.kv_clear(keys=tasks, partition_id=PARTITION)


class Seen(Exception):
    """The columns that the ranks were handed, and whether they were to compute the entropy."""


class Ranks:
    """Stands for the training processes, and reads of a batch what they do."""

    def update_actor(self, batch: KVBatchMeta) -> None:
        raise Seen(set(kv_batch_meta2batch_meta(batch).field_names), batch.extra_info["calculate_entropy"])

    compute_log_prob = compute_ref_log_prob = update_actor


@pytest.mark.parametrize("recompute", [True, False])
def test_the_ranks_are_handed_the_weights_of_the_correction_and_no_records(tmp_path: Path, recompute: bool) -> None:
    """verl's update reads what the batch names, and leaves out in silence what it does not."""
    trainer, batch = trainer_of(tmp_path, recompute, f"r{recompute}")
    answer = trainer._compute_advantage(batch, {})
    with pytest.raises(Seen) as seen:
        trainer._update_actor(answer, {})
    read, entropy = seen.value.args
    assert entropy is not recompute  # the pass before has said what it is
    assert read == {*READ, "old_log_probs", "advantages", *(["rollout_is_weights"] if recompute else [])}
    transfer_queue.kv_clear(keys=batch.keys, partition_id=PARTITION)


@pytest.mark.parametrize("score", [HgpoTrainer._compute_old_log_prob, HgpoTrainer._compute_ref_log_prob])
def test_the_ranks_score_without_the_records(tmp_path: Path, score: Any) -> None:
    trainer, batch = trainer_of(tmp_path, True, f"s{score.__name__}")
    trainer.ref_in_actor = False
    with pytest.raises(Seen) as seen:
        score(trainer, batch, {})
    assert seen.value.args[0] == READ
    transfer_queue.kv_clear(keys=batch.keys, partition_id=PARTITION)


def column(batch: KVBatchMeta, name: str) -> list[torch.Tensor]:
    return list(nested_column(batch, name).unbind())


def nested_column(batch: KVBatchMeta, name: str) -> Any:
    found = transfer_queue.kv_batch_get(keys=batch.keys, partition_id=PARTITION, select_fields=["prompts", name])
    return found[name]


class ScoringRanks:
    """Stands for the training processes; number t of a row is that of the token after t, as verl's are."""

    def __init__(self, offset: float, dtype: torch.dtype = torch.float32) -> None:
        self._offset, self._dtype = offset, dtype

    def compute_log_prob(self, batch: KVBatchMeta) -> KVBatchMeta:
        rows = [self._offset - torch.arange(tag["seq_len"], dtype=self._dtype) for tag in batch.tags]
        nested = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
        fields = TensorDict({"log_probs": nested, "entropy": nested}, batch_size=len(rows))
        transfer_queue.kv_batch_put(keys=batch.keys, partition_id=PARTITION, fields=fields)
        return batch

    compute_ref_log_prob = compute_log_prob


def test_log_probs_are_those_that_verls_trainer_writes(tmp_path: Path) -> None:
    trainer, batch = trainer_of(tmp_path, True, "scored")
    trainer.actor_rollout_wg, trainer.ref_policy_wg, trainer.ref_in_actor = (
        ScoringRanks(-1.0),
        ScoringRanks(-2.0),
        False,
    )
    metrics: dict[str, Any] = {}
    for score in ("_compute_old_log_prob", "_compute_ref_log_prob"):
        getattr(trainer, score)(batch, metrics)
    trainer._compute_advantage(batch, metrics)
    written = {name: column(batch, name) for name in ("old_log_probs", "ref_log_prob")}
    OmegaConf.update(trainer.config, "actor_rollout_ref.actor.loss_scale_factor", None, force_add=True)
    of_verl: dict[str, Any] = {}
    for score in ("_compute_old_log_prob", "_compute_ref_log_prob"):
        getattr(PPOTrainer, score)(trainer, batch, of_verl)
    for name, rows in written.items():
        for row, expected in zip(rows, column(batch, name), strict=True):
            torch.testing.assert_close(row, expected, rtol=0, atol=0)
    tags = [tag for tag in batch.tags if not tag.get("is_padding")]
    entropies = [-1.0 - t for tag in tags for t in range(tag["prompt_len"] - 1, tag["seq_len"] - 1)]
    assert metrics["actor/entropy"] == pytest.approx(np.mean(entropies))
    transfer_queue.kv_clear(keys=batch.keys, partition_id=PARTITION)


def test_log_probs_in_bfloat16_are_written_as_float32(tmp_path: Path) -> None:
    trainer, batch = trainer_of(tmp_path, True, "narrow")
    ranks = ScoringRanks(-1.0, torch.bfloat16)
    trainer.actor_rollout_wg, trainer.ref_policy_wg, trainer.ref_in_actor = ranks, ranks, False
    for work in (trainer._compute_old_log_prob, trainer._compute_ref_log_prob, trainer._compute_advantage):
        work(batch, {})
    for name in ("old_log_probs", "ref_log_prob"):
        for row, tag in zip(column(batch, name), batch.tags, strict=True):
            expected = -1.0 - torch.arange(tag["prompt_len"] - 1, tag["seq_len"] - 1)
            torch.testing.assert_close(row, expected, rtol=0, atol=0)
    transfer_queue.kv_clear(keys=batch.keys, partition_id=PARTITION)


UPDATES = 2


class Players:
    """Stands for the agent workers: plays every group at once."""

    def generate_sequences(self, batch: TensorDict) -> None:
        for uid, group in zip(batch["uid"], batch["group"], strict=True):
            for played in records(groups=1, members=2, seed=4):
                member = played.trajectory.rsplit("#", 1)[1]
                rows = episode_rows([(replace(played, group=group, trajectory=f"{group}#{member}"), RESPONSE)])
                keys, tags = [f"{uid}_{member}_{played.step}"], [{"status": "success", **rows.tags[0]}]
                transfer_queue.kv_batch_put(keys=keys, partition_id=PARTITION, fields=rows.columns, tags=tags)
            transfer_queue.kv_batch_put(keys=[uid], partition_id=PARTITION, tags=[{"status": "finished"}])


class Sender(WeightSender):
    """This project's sender, which also wakes the server in parts, as verl's sender to vLLM does."""

    async def resume(self, tags: list[str]) -> None:
        await ray.get_actor("hgpo_transformers_0").wake_up.remote(tags)


class SyncedRanks(ScoringRanks):
    """Stands for the training processes, with verl's own synchronisation of one weight."""

    _dispatch_info: ClassVar[dict[str, list[int]]] = {"actor": [0]}

    def __init__(self, rollout: Any) -> None:
        super().__init__(-1.0)
        sender = object.__new__(Sender)
        sender._rank, sender._server = 0, None
        engine = SimpleNamespace(
            get_per_tensor_param=lambda **_: (iter([("weight", torch.zeros(1))]), None), is_param_offload_enabled=False
        )
        self.worker = SimpleNamespace(
            config=SimpleNamespace(rollout=rollout),
            rollout=sender,
            actor=SimpleNamespace(engine=engine),
            layered_summon=False,
            peft_merge=False,
        )

    def update_actor(self, batch: KVBatchMeta) -> dict[str, Any]:
        return {"metrics": {"pg_loss": [0.5], "grad_norm": [1.0], "mfu": [0.1]}}

    def update_weights(self, global_steps: int, mode: str) -> list[Any]:
        work = ActorRolloutRefWorker.update_weights(self.worker, global_steps=global_steps, mode=mode)
        with ThreadPoolExecutor(1) as other:  # verl's manager calls this in a running event loop
            return [ray.put(other.submit(asyncio.run, work).result())]


def counting_server() -> Any:
    """A rollout server that does nothing but keep its calls, in their order."""

    class Server:
        def __init__(self) -> None:
            self.calls: list[str] = []

        def seen(self) -> list[str]:
            return self.calls

        def sleep(self) -> None:
            self.calls.append("sleep")

        def load_weights(self, weights: dict[str, torch.Tensor], update: int) -> None:
            self.calls.append(f"weights {update}")

        def wake_up(self, tags: list[str]) -> None:
            self.calls.append(f"wake {' '.join(tags)}")

    return ray.remote(num_cpus=0)(Server).options(name="hgpo_transformers_0").remote()


@pytest.fixture
def one_rank() -> Iterator[None]:
    before = get_platform()
    set_platform(CpuPlatform())
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()
    set_platform(before)


def looping_trainer(path: Path, server: Any) -> Any:
    """A trainer as verl has set it up, before `fit`; its evaluations are on disk."""
    tree = {
        "run": {"engine": "verl", "directory": str(path)},
        "policy": {"model": "m"},
        "environment": {"options": {"size": "small"}},
        "rollout": {"tasks_per_update": 2, "group_size": 2},
        "training": {"updates": UPDATES, "kl_coefficient": 0.0, "recompute_log_probs": True},
        "evaluation": {"every": 1},
    }
    trainer: Any = object.__new__(SyncTrainer)
    trainer.recipe, trainer.run, trainer.reporter = (
        Config.model_validate(tree),
        RunDirectory(path),
        Reporter(quiet=True),
    )
    trainer.config = compose(trainer.recipe)
    for name in ("before", "update-1", "after"):
        write_evaluation(trainer.run.evaluation(name), StoredEvaluation(panel({"kind": [1, 0]})))
    trainer.tasks = [Task(f"task{number}", "kind", SimpleNamespace) for number in range(4)]  # type: ignore[arg-type]
    trainer.tasks_drawn, trainer.seconds_before, trainer.started = 0, 0.0, 0.0
    trainer.global_steps, trainer.total_training_steps, trainer.steps_per_epoch = 0, UPDATES, 1
    trainer.use_critic = trainer.use_reference_policy = False
    trainer.parameter_sync_step = 1
    trainer.replay_buffer = trainer._build_replay_buffer()
    trainer.reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=[])
    trainer.tokenizer = SimpleNamespace(eos_token_id=1)
    trainer.actor_rollout_wg = SyncedRanks(trainer.config.actor_rollout_ref.rollout)
    replica = object.__new__(TransformersReplica)
    replica.servers = [server]
    settings = CheckpointEngineConfig(backend="naive")
    trainer.checkpoint_manager = CheckpointEngineManager(settings, trainer.actor_rollout_wg, [replica])
    trainer._init_dump_executor()
    return trainer


@pytest.mark.usefixtures("one_rank")
def test_in_every_update_the_rollout_engine_sleeps_gets_weights_and_wakes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verl's loop and synchronisation with this project's trainer, without a model."""
    monkeypatch.setattr(SyncTrainer, "_save_checkpoint", lambda self: None)
    server = counting_server()
    trainer = looping_trainer(tmp_path, server)
    trainer.fit(Players())
    assert [row["update"] for row in read_metrics(trainer.run)] == [1, 2]
    in_sync = ("wake weights", "weights {}", "wake kv_cache")
    expected = [call.format(update) for update in (1, 2) for call in ("sleep", *in_sync)]
    assert ray.get(server.seen.remote()) == expected


def test_steps_come_back_as_they_were_played() -> None:
    steps = records(groups=2, members=2, seed=3)
    batch = put(steps, "back", seed=4, padding=2)
    found = read_steps(batch)
    assert len(found.records) == len(steps)
    known = {(record.trajectory, record.step): record for record in steps}
    for record in found.records:
        expected = known[record.trajectory, record.step]
        for item in fields(StepRecord):
            np.testing.assert_array_equal(getattr(record, item.name), getattr(expected, item.name), strict=True)
    transfer_queue.kv_clear(keys=batch.keys, partition_id=PARTITION)


@pytest.mark.parametrize("partition", ["train", "val"])
def test_an_agent_worker_stores_an_episode_with_its_keys_and_tags(
    partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = records(groups=1, members=1, seed=3)
    played = {"episode": episode_rows([(record, RESPONSE) for record in steps]), "lost": None}

    async def run(loop: StepwiseAgentLoop, sampling_params: Any, row: dict[str, Any]) -> EpisodeRows | None:
        return played[row["uid"]]

    monkeypatch.setattr(StepwiseAgentLoop, "run", run)
    assert EpisodeWorker.__name__ == watchdog.AGENT_WORKER
    worker = object.__new__(EpisodeWorker)
    worker.config = worker.llm_client = worker.tokenizer = None
    for uid in played:
        trajectory, row = {"validate": partition == "val"}, {"uid": uid, "session_id": 2, "global_steps": 5}
        work = worker._run_agent_loop({}, trajectory, agent_name="hgpo", **row)
        transfer_queue.get_client()._run_coroutine(work)
    stored = transfer_queue.kv_list(partition)[partition]
    assert list(stored) == [f"episode_2_{record.step}" for record in steps]
    for tag, record in zip(stored.values(), steps, strict=True):
        lengths = {"prompt_len": len(record.prompt_ids), "response_len": len(record.token_ids)}
        versions = {"global_steps": 5, "min_global_steps": 0, "max_global_steps": 0}
        assert tag == {"status": "success", "seq_len": sum(lengths.values()), **lengths, **versions}
    batch = KVBatchMeta(partition_id=partition, keys=list(stored), tags=list(stored.values()))
    assert [record.step for record in read_steps(batch).records] == [record.step for record in steps]
    transfer_queue.kv_clear(keys=batch.keys, partition_id=partition)


def test_a_row_whose_key_and_record_disagree_is_refused() -> None:
    steps = records(groups=1, members=1, seed=3)
    batch = put(steps, "odd", seed=0)
    add(batch, "odd0_0_9", episode_rows([(steps[0], RESPONSE)]))
    with pytest.raises(ValueError, match="row odd0_0_9 has step 0"):
        read_steps(batch)
    transfer_queue.kv_clear(keys=batch.keys, partition_id=PARTITION)


def add(batch: KVBatchMeta, key: str, rows: EpisodeRows) -> None:
    transfer_queue.kv_batch_put(keys=[key], partition_id=PARTITION, fields=rows.columns, tags=rows.tags)
    batch.keys.append(key)
    batch.tags += rows.tags


def test_an_error_that_an_episode_met_ends_the_run_in_its_own_words() -> None:
    batch = put(records(groups=1, members=1, seed=3), "fail", seed=0)
    add(batch, "fail0_1_0", failure_row("a prompt takes 9 tokens"))
    with pytest.raises(RolloutError, match="a prompt takes 9 tokens"):
        read_steps(batch)
    transfer_queue.kv_clear(keys=batch.keys, partition_id=PARTITION)


def test_lost_trajectories_are_counted() -> None:
    steps = BatchSteps([], ["a_0_0", "a_0_1", "a_1_0", "b_1_0"])
    assert lost_trajectories(steps, started=4) == 1
