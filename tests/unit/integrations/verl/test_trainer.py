"""What the trainer does besides verl's loop, which is left out here. Runs where verl is installed."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.assemble import build_suite, evaluation_tasks
from hgpo.config import Config
from hgpo.config.loading import as_tree
from hgpo.evaluation.eval_log import EvalLog
from hgpo.evaluation.manifests import manifests
from hgpo.evaluation.result_files import StoredEvaluation, read_evaluation, write_evaluation
from hgpo.rollout.prompts import RolloutError
from hgpo.rollout.records import EpisodeSummary, StepCounts, StepRecord, TotalUsage, Values
from hgpo.runs.checkpoints import newest_complete, recover, whole_checkpoint
from hgpo.runs.folder import RunDirectory, append_metrics, read_metrics
from hgpo.training.value_model import ReturnScale
from hgpo.utils.progress import Reporter

pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")

from omegaconf import OmegaConf
from verl.trainer.ppo.v1 import PPOTrainer, PPOTrainerSync, get_trainer_cls

from hgpo.integrations.verl import trainer as module
from hgpo.integrations.verl.checkpoints import STATE_NAME, TRACKER_FILE
from hgpo.integrations.verl.launch import RECIPE_KEY
from hgpo.integrations.verl.mode import trainer_name
from hgpo.integrations.verl.queue import BatchSteps, Cut, cut
from hgpo.integrations.verl.trainer import HgpoTrainer, UpdateState
from hgpo.integrations.verl.trainers import SyncTrainer
from killed import killed_at_each_call
from metric_keys import (
    OF_A_CRITIC,
    OF_ASYNCHRONOUS_SAMPLING,
    OF_FULL_MEMORY,
    OF_RECOMPUTED_LOG_PROBS,
    explained,
    general,
)
from panels import panel
from step_records import step_record
from stored_rollouts import read_rollouts

UPDATES, EVERY = 20, 5


def recipe(**tree: Any) -> Config:
    return Config.model_validate({"policy": {"model": "m"}, "evaluation": {"every": EVERY}, **tree})


def make(path: Path, *, update: int = 0, mode: str = "sync", **training: Any) -> HgpoTrainer:
    trainer: HgpoTrainer = object.__new__(get_trainer_cls(trainer_name(mode)))
    trainer.recipe = recipe(training={"updates": UPDATES, **training}, verl={"mode": mode})
    trainer.run, trainer.reporter = RunDirectory(path), Reporter(quiet=True)
    trainer.config = OmegaConf.create({"trainer": {"default_local_dir": str(path / "verl"), "val_before_train": None}})
    trainer.global_steps, trainer.total_training_steps, trainer.timing_raw = update, UPDATES, {}
    return trainer


def evaluations(run: RunDirectory, *names: str) -> None:
    for name in names:
        write_evaluation(run.evaluation(name), StoredEvaluation(panel({"corridor": [1, 0]})))


def test_a_resumed_run_forgets_what_it_makes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make(tmp_path)
    for update in range(1, 14):
        append_metrics(trainer.run, {"update": update})
    evaluations(trainer.run, "before", "update-5", "update-10", "after")
    state = tmp_path / "verl" / "global_step_8" / STATE_NAME
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps({"tasks_drawn": 128, "seconds": 1.0}), encoding="utf-8")
    with whole_checkpoint(trainer.run.checkpoints, 8, {}):
        pass
    monkeypatch.setattr(PPOTrainerSync, "_load_checkpoint", lambda self: setattr(self, "global_steps", 8))
    trainer._load_checkpoint()
    assert [row["update"] for row in read_metrics(trainer.run)] == list(range(1, 9))
    assert sorted(path.name for path in (tmp_path / "evaluations").iterdir()) == ["before.json", "update-5.json"]


def test_its_process_imports_what_the_recipe_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module named for one part may register others."""
    (tmp_path / "my_prompts.py").write_text("from hgpo.agents.prompts import COMPACT as TEMPLATE\n")
    monkeypatch.syspath_prepend(tmp_path)
    named = recipe(agent={"template": "my_prompts:TEMPLATE"})
    monkeypatch.setattr(PPOTrainerSync, "__init__", lambda self, config: None)
    SyncTrainer(
        OmegaConf.create({RECIPE_KEY: {"settings": json.dumps(as_tree(named)), "run_directory": str(tmp_path)}})
    )
    assert sys.modules.pop("my_prompts", None) is not None


def save_as_verl(trainer: HgpoTrainer) -> None:
    """As much of verl's own saving as resuming needs: the weights, then the number, in place."""
    weights = trainer._verl_folder() / "actor" / "huggingface"
    weights.mkdir(parents=True, exist_ok=True)
    (weights / "model.safetensors").write_text(f"weights {trainer.global_steps}")
    (trainer._verl_checkpoints() / TRACKER_FILE).write_text(str(trainer.global_steps))


def load_as_verl(trainer: HgpoTrainer) -> None:
    trainer.global_steps = int((trainer._verl_checkpoints() / TRACKER_FILE).read_text())


def test_a_process_killed_at_any_point_of_saving_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PPOTrainerSync, "_save_checkpoint", save_as_verl)
    monkeypatch.setattr(PPOTrainerSync, "_load_checkpoint", load_as_verl)

    def at(update: int) -> HgpoTrainer:
        trainer = make(tmp_path, update=update, keep_checkpoints=1)
        trainer.tasks_drawn, trainer.seconds_before, trainer.started = 16 * update, 0.0, 0.0
        return trainer

    at(1)._save_checkpoint()
    points = 0
    for where in killed_at_each_call(at(2)._save_checkpoint):
        resumed = at(0)
        resumed.run.metrics.write_text('{"update": 1}\n{"update": 2}\n')  # rows are written before any checkpoint
        recover(resumed.run.checkpoints)
        resumed._load_checkpoint()
        assert resumed.tasks_drawn == 16 * resumed.global_steps > 0, where
        assert (resumed._verl_folder() / "actor" / "huggingface" / "model.safetensors").exists(), where
        newest = newest_complete(resumed.run.checkpoints)
        assert newest is not None, where
        assert newest.name == str(resumed.global_steps), where
        assert (newest / "model.safetensors").read_text() == f"weights {resumed.global_steps}", where
        for folder in (resumed.run.checkpoints, resumed._verl_checkpoints()):
            shutil.rmtree(folder)
        at(1)._save_checkpoint()
        points += 1
    assert points > 12
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["2"]
    assert sorted(path.name for path in (tmp_path / "verl").iterdir()) == ["global_step_2", TRACKER_FILE]


def test_a_resumed_critic_has_the_scale_of_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PPOTrainerSync, "_save_checkpoint", save_as_verl)
    monkeypatch.setattr(PPOTrainerSync, "_load_checkpoint", load_as_verl)
    scale = ReturnScale(1 / 3, 2.5, empty=False)
    for update in (1, 0):  # the process that saves, and the one that continues
        trainer = make(tmp_path, update=update)
        trainer.recipe = recipe(advantage={"estimator": "gae"})
        trainer.tasks_drawn, trainer.seconds_before, trainer.started = 16 * update, 0.0, 0.0
        trainer.critic_wg = None
        assert trainer.critic is not None
        if update:
            trainer.critic.scale = scale
            append_metrics(trainer.run, {"update": 1})
            trainer._save_checkpoint()
    trainer._load_checkpoint()
    assert trainer.critic.scale == scale


@pytest.mark.parametrize(
    ("update", "stored", "before", "only", "played"),
    [
        (0, [], True, True, True),
        (0, ["before"], True, True, True),  # verl's `val_only` ends there; a stored evaluation is not played again
        (10, ["before"], True, True, True),
        (10, ["before", "update-10"], True, True, False),
        (8, ["before"], True, True, False),
        (UPDATES, ["before"], True, True, True),
        (UPDATES, ["before", "after"], True, True, False),
        (UPDATES, ["after"], True, False, False),  # `evaluation.before` was set after the first update
        (0, ["before", "after"], True, False, True),
        (0, ["after"], False, False, False),
        (0, ["before", "after"], False, True, True),
    ],
)
def test_a_missing_evaluation_is_played_first_if_it_is_wanted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    update: int,
    stored: list[str],
    before: bool,
    only: bool,
    played: bool,
) -> None:
    trainer = make(tmp_path, update=update)
    trainer.started = trainer.seconds_before = 0.0
    evaluation = {"before": before, "every": EVERY}
    trainer.recipe = recipe(run={"engine": "verl"}, verl={"evaluate_only": only}, evaluation=evaluation)
    evaluations(trainer.run, *stored)
    monkeypatch.setattr(PPOTrainerSync, "fit", lambda self, manager: None)
    trainer.fit(None)
    assert trainer.config.trainer.val_before_train is played
    summary = {} if only else json.loads(trainer.run.summary.read_text())
    assert summary.get("success_before") == (0.5 if before and "before" in stored and not only else None)


def test_an_evaluation_names_its_manifest_and_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = manifests()["webshop-tiny-valid_unseen-1"].settings
    trainer = make(tmp_path)
    trainer.recipe = recipe(environment={"name": "webshop", "options": options}, evaluation={"games": 4, "seeds": [1]})
    trainer.suite = build_suite(trainer.recipe.environment, trainer.recipe.evaluation)
    tasks = list(evaluation_tasks(trainer.suite, trainer.recipe.evaluation))
    tasks[1] = replace(tasks[1], make=tasks[2].make)
    monkeypatch.setattr(module, "evaluation_tasks", lambda suite, settings: tasks)

    def play(self: HgpoTrainer, rows: Any, seed: int, log: EvalLog) -> None:
        for task in tasks:
            log.add(EpisodeSummary(task.id, task.kind, seed, (True,), 1.0, StepCounts(1), TotalUsage(0, 0, 0)), [])

    monkeypatch.setattr(HgpoTrainer, "_play_tasks", play)
    trainer._evaluate("before")
    stored = read_evaluation(trainer.run.evaluation("before"))
    assert (stored.manifest, stored.manifest_differs) == ("webshop-tiny-valid_unseen-1", (tasks[1].id,))
    assert stored.seconds is not None
    tasks[1] = tasks[0]
    with pytest.raises(ValueError, match="names a task twice"):
        trainer._evaluate("after")


def record(step: int, finished: bool) -> StepRecord:
    tokens = np.zeros(2, dtype=np.int32)
    return step_record(
        group="g",
        trajectory="t",
        step=step,
        observation="here",
        reward=1.0,
        won=True,
        score=1.0,
        terminated=step == 2,
        finished=finished,
        next_observation="next",
        prompt_ids=tokens,
        token_ids=tokens,
        log_probs=tokens.astype(np.float32),
    )


@pytest.mark.parametrize(
    ("skip", "finished", "kept"),
    [(True, [True, False, True], 2), (False, [True, False, True], 3), (True, [False, False, False], 3)],
)
def test_the_batch_is_cut_by_what_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skip: bool, finished: list[bool], kept: int
) -> None:
    trainer = make(tmp_path, skip_cut_responses=skip)
    steps = BatchSteps([record(step, done) for step, done in enumerate(finished)], ["u_0_0", "u_0_1", "u_0_2"])
    monkeypatch.setattr(module, "read_steps", lambda batch: steps)
    cleared: list[str] = []
    monkeypatch.setattr("transfer_queue.kv_clear", lambda keys, partition_id: cleared.extend(keys))
    monkeypatch.setattr(PPOTrainerSync, "_balance_batch", lambda self, batch, metrics: batch)
    batch = Batch(list(steps.keys), [{}, {}, {}])
    trainer._balance_batch(batch, {})
    assert len(batch) == trainer.update_state.rows == kept
    assert cleared == (["u_0_1"] if kept == 2 else [])
    assert trainer.timing_raw["advantages"] > 0
    assert len(trainer.update_state.trained) == (0 if skip and not any(finished) else kept)


@pytest.mark.parametrize(("state", "size"), [("observation", 1), ("json", 2)])
def test_json_states_are_compared_by_their_contents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, size: int
) -> None:
    trainer = make(tmp_path)
    trainer.recipe = recipe(rollout={"state": state})
    answers = ['{"x": 1, "y": 2}', '{"y": 2, "x": 1}']
    records = [replace(record(0, True), trajectory=text, observation=text) for text in answers]
    monkeypatch.setattr(module, "read_steps", lambda batch: BatchSteps(records, ["u_0_0", "u_1_0"]))
    monkeypatch.setattr(PPOTrainerSync, "_balance_batch", lambda self, batch, metrics: batch)
    trainer._balance_batch(Batch(["u_0_0", "u_1_0"], [{}, {}]), {})
    assert trainer.update_state.advantages.levels[0].size.tolist() == [size, size]
    assert [step.observation for step in trainer.update_state.steps.records] == answers  # are stored as they were


class Critic:
    """Values of steps in order, as the workers give them."""

    def __init__(self, value_N: list[float], bootstrap_N: list[float]) -> None:
        self._values = Values(np.array(value_N), np.array(bootstrap_N))

    def estimate(self, steps: list[StepRecord]) -> Values:
        return self._values


@pytest.mark.parametrize(("update", "alone"), [(2, True), (3, False)])
def test_advantages_are_those_of_the_critics_values_and_the_policy_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: int, alone: bool
) -> None:
    trainer = make(tmp_path, update=update)
    critic = {"pretrain_updates": 2}
    trainer.recipe = recipe(advantage={"estimator": "gae", "gamma": 0.5, "options": {"gae_lambda": 0}}, critic=critic)
    trainer.critic = Critic([1.0, 2.0, 4.0], [0.0, 0.0, 8.0])  # type: ignore[assignment]
    steps = BatchSteps([record(step, True) for step in range(3)], ["u_0_0", "u_0_1", "u_0_2"])
    monkeypatch.setattr(module, "read_steps", lambda batch: steps)
    monkeypatch.setattr(PPOTrainerSync, "_balance_batch", lambda self, batch, metrics: batch)
    batch = Batch(list(steps.keys), [{}, {}, {}])
    trainer._balance_batch(batch, {})
    # Every step has the reward 1; with lambda 0 the advantage is r + 0.5 V' - V.
    np.testing.assert_array_equal(trainer.update_state.advantages.values, [1.0, 1.0, 1.0])
    assert len(trainer.update_state.trained) == (0 if alone else 3)
    assert len(batch) == 3
    assert trainer.timing_raw["values"] > 0
    if alone:  # the worker group of the policy, which is not there, is not asked
        assert trainer._compute_old_log_prob(batch, {}) is trainer._compute_ref_log_prob(batch, {}) is batch


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_a_row_has_every_metric_that_is_explained_and_none_that_verl_did_not_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    trainer = make(tmp_path, update=3, mode=mode, mini_batch_size=9)
    trainer.tasks_drawn = 48
    steps = BatchSteps(
        [
            replace(record(step, True), group="g", trajectory=t, reward=float(t == "1"))
            for t in "12"
            for step in (0, 1, 2)
        ],
        [f"u_{t}_{step}" for t in "12" for step in (0, 1, 2)],
    )
    monkeypatch.setattr(module, "read_steps", lambda batch: steps)
    monkeypatch.setattr(PPOTrainer, "_balance_batch", lambda self, batch, metrics: batch)
    names = ("pg_loss", "kl_loss", "entropy_loss", "pg_clipfrac", "pg_clipfrac_lower", "ppo_kl", "grad_norm")

    def step_of_verl(self: HgpoTrainer, metrics: dict[str, Any], timing_raw: dict[str, float]) -> None:
        tags = [{"min_global_steps": 1, "max_global_steps": 2} for _ in steps.keys]
        self._balance_batch(Batch(list(steps.keys), tags), metrics)
        assert self._get_required_batch_multiple(9) == 9
        metrics |= {f"actor/{name}": 0.5 for name in names} | {"actor/perf/max_memory_allocated_gb": 0.0}
        timing_raw |= {"gen": 2.0, "advantages": 0.5, "old_log_prob": 1.0, "adv": 0.25, "update_actor": 1.25}

    monkeypatch.setattr(PPOTrainer, "step", step_of_verl)
    trainer.step({}, {})
    [row] = read_metrics(trainer.run)
    assert read_rollouts(trainer.run.rollout_file(3)).column("step").to_pylist() == [0, 1, 2, 0, 1, 2]
    ages = {name: row.pop(name) for name in OF_ASYNCHRONOUS_SAMPLING & row.keys()}
    assert ages == ({} if mode == "sync" else dict.fromkeys(OF_ASYNCHRONOUS_SAMPLING, 1) | {"staleness_min": 0})
    absent = {"peak_memory_gib"} | OF_A_CRITIC | OF_FULL_MEMORY | OF_RECOMPUTED_LOG_PROBS | OF_ASYNCHRONOUS_SAMPLING
    assert general(row) == explained() - absent
    assert (row["update"], row["episodes"], row["samples"], row["tokens"]) == (3, 2, 6, 12)
    assert (row["lost_trajectories"], row["padding_rows"]) == (16 * 8 - 2, 3)
    assert row["tokens_per_second"] == (12 + 12) / 5.0
    assert (row["seconds_collect"], row["seconds_advantages"], row["seconds_update"]) == (2.0, 0.5, 2.5)


class Batch(SimpleNamespace):
    """As much of verl's batch as is read here."""

    def __init__(self, keys: list[str], tags: list[dict[str, Any]]) -> None:
        super().__init__(keys=keys, tags=tags, partition_id="train", extra_info={})

    def __len__(self) -> int:
        return len(self.keys)


def test_nothing_is_trained_where_every_step_is_skipped(tmp_path: Path) -> None:
    trainer = make(tmp_path)
    trainer.update_state = UpdateState(BatchSteps([], []), None, None, trained=[], rows=0)  # type: ignore[arg-type]
    batch, metrics = Batch([], []), {}
    assert trainer._update_actor(batch, metrics) is batch  # a worker group, which it does not have, is not asked
    assert metrics == {}


def test_an_update_without_any_trajectory_says_where_the_reason_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verl's synchronous trainer raises an error of its own; the asynchronous ones take an empty batch."""

    def no_trajectories(*_: Any) -> None:
        raise RuntimeError("Sync replay buffer selected terminal groups with no materializable trajectories.")

    trainer = make(tmp_path)
    monkeypatch.setattr(PPOTrainer, "step", no_trajectories)
    with pytest.raises(RolloutError, match="the log of the agent workers has the reason"):
        trainer.step({}, {})
    with pytest.raises(RolloutError, match="the log of the agent workers has the reason"):
        trainer._balance_batch(SimpleNamespace(keys=[], tags=[]), {})


# ---- mini-batches --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "size", "ranks", "expected"),
    [
        (1000, 256, 4, Cut(4, 252, 8)),
        (256, 256, 2, Cut(1, 256, 0)),
        (257, 256, 2, Cut(2, 130, 3)),
        (1, 64, 8, Cut(1, 8, 7)),
        (17, 8, 8, Cut(3, 8, 7)),
    ],
)
def test_a_batch_is_cut_as_by_hand(steps: int, size: int, ranks: int, expected: Cut) -> None:
    assert cut(steps, size, ranks) == expected


@pytest.mark.parametrize(
    ("steps", "counted", "ranks", "expected"),
    [
        (500, 1000, 4, Cut(4, 128, 12)),
        (1000, 1000, 4, Cut(4, 252, 8)),
        (3, 1000, 1, Cut(3, 1, 0)),
        (9, 1000, 2, Cut(3, 4, 3)),  # four of four rows would leave one without a step
    ],
)
def test_steps_that_are_left_out_count_for_the_number_of_mini_batches(
    steps: int, counted: int, ranks: int, expected: Cut
) -> None:
    assert cut(steps, 256, ranks, counted) == expected


@given(st.integers(1, 5000), st.integers(1, 40), st.integers(1, 16), st.integers(0, 5000))
def test_equal_parts_no_larger_than_asked_and_none_of_padding_alone(
    steps: int, parts: int, ranks: int, left_out: int
) -> None:
    found = cut(steps, parts * ranks, ranks, steps + left_out)
    assert found.mini_batches * found.size == steps + found.padding
    assert found.size <= parts * ranks
    assert found.size % ranks == 0
    assert 0 <= found.padding < found.size
    assert (found.mini_batches - 1) * parts * ranks < steps + left_out  # no more mini-batches than needed


def test_no_steps_cannot_be_cut() -> None:
    with pytest.raises(ValueError, match="no steps"):
        cut(0, 4, 4)
