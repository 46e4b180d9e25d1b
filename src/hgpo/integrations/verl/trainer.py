"""Base class of this project's trainers on verl: tasks, advantages, mini-batches, evaluation and files.

`hgpo.integrations.verl.trainers` combines it with each of verl's training loops. Needs verl.

    tasks -> [verl: rollout] -> [verl: values] -> advantages (hgpo.compute_advantages) -> [verl: updates] -> files

Worker groups, weight synchronisation, loss and sharded checkpoints are verl's own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import ray
import torch
from omegaconf import open_dict

from hgpo.assemble import build_estimator, build_suite, evaluation_tasks, record_environment
from hgpo.estimators.diagnostics import starts_note
from hgpo.evaluation.eval_history import evaluation_due, evaluation_figures, evaluation_name, rewind_evaluations
from hgpo.evaluation.eval_log import EvalLog
from hgpo.evaluation.evaluator import check_each_once, finish_evaluation
from hgpo.evaluation.manifests import recognise
from hgpo.evaluation.result_files import read_evaluation, stored_evaluation
from hgpo.evaluation.statistics import Evaluation
from hgpo.evaluation.summary import write_summary
from hgpo.integrations.verl import verl_api
from hgpo.integrations.verl.agent_loop import TaskRow, as_columns, evaluation_rows, training_rows
from hgpo.integrations.verl.checkpoints import (
    STATE_NAME,
    delete_old_folders,
    publish_weights,
    repair_tracker,
    verl_folder,
)
from hgpo.integrations.verl.config import is_asynchronous, validation_batch
from hgpo.integrations.verl.critic import CriticWorker, VerlCritic
from hgpo.integrations.verl.engine import UPDATE, aggregation_facts, corrected
from hgpo.integrations.verl.launch import recipe_of
from hgpo.integrations.verl.metrics import reported_peak_gib, set_tracker_folders, update_metrics
from hgpo.integrations.verl.queue import (
    SCORED,
    TRAINED,
    UpdateState,
    cut,
    leave_out,
    lost_trajectories,
    old_log_probs,
    put_advantages,
    read_steps,
    reference_log_probs,
    skipped,
    staleness,
    wait_for_a_group,
)
from hgpo.integrations.verl.verl_api import transfer_queue
from hgpo.rollout.eval_tasks import eval_task_id
from hgpo.rollout.prompts import RolloutError
from hgpo.rollout.records import StepRecord, summarise_trajectories, to_step_batch
from hgpo.runs.checkpoints import is_complete
from hgpo.runs.folder import RunDirectory, append_metrics, read_json, rewind_updates, write_json
from hgpo.runs.metrics import store_rollouts, update_row
from hgpo.training.value_model import ReturnScale
from hgpo.utils.progress import Reporter, update_line

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.2  # between two checks for finished groups; verl's 2 s delay every update by up to 2 s
_EVALUATION_ATTEMPTS = 3  # at an evaluation task whose environment is lost
_ALL_LOST = "all trajectories of an update were lost; the log of the agent workers has the reason"


class HgpoTrainer(verl_api.PPOTrainer):  # type: ignore[misc]
    """verl's trainer with this project's tasks, advantages, evaluations and files; a subclass adds a mode's loop.

    `global_steps` is verl's name for the update's number.
    """

    update_state: UpdateState  # of the update under way

    # verl compares the mode with its own trainers' names; this project's are registered under other names.
    trainer_mode = property(lambda self: self.recipe.verl.mode, lambda self, value: None)

    def __init__(self, config: Any) -> None:
        self.recipe, path = recipe_of(config)
        self.run = RunDirectory(path)
        self.reporter = Reporter()
        self.suite = build_suite(self.recipe.environment, self.recipe.evaluation)
        record_environment(self.run, self.recipe.environment.name, self.suite)
        self.tasks = self.suite.tasks(self.recipe.environment.train_split)
        self.tasks_drawn = 0
        self.seconds_before = 0.0
        self.started = time.monotonic()
        super().__init__(config)

    # ---- tasks and rollout -------------------------------------------------------------------------------------

    def _build_replay_buffer(self) -> Any:
        buffer = super()._build_replay_buffer()
        buffer.poll_interval = _POLL_SECONDS
        wait_for_a_group(buffer)
        return buffer

    def _next_train_batch(self, num_prompts: int | None = None) -> Any:
        """The next tasks in the recipe's order; verl's own data loader is not used."""
        count = num_prompts or self.recipe.rollout.tasks_per_update
        rows = training_rows(
            self.tasks,
            self.recipe.environment.train_split,
            seed=self.recipe.run.seed,
            update=self.global_steps,
            start=self.tasks_drawn,
            count=count,
        )
        self.tasks_drawn += count
        return self._as_batch(rows)

    def _as_batch(self, rows: Sequence[TaskRow]) -> Any:
        batch = verl_api.get_tensordict({**as_columns(rows), "uid": [uuid4().hex for _ in rows]})
        verl_api.assign_non_tensor_data(batch, "global_steps", self.global_steps)
        return batch

    # ---- the update --------------------------------------------------------------------------------------------

    def _balance_batch(self, batch: Any, metrics: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        """Compute advantages first: they decide which steps are trained, and so how the batch is cut and padded."""
        steps = read_steps(batch)
        if not steps.records:
            raise RolloutError(_ALL_LOST)
        ages = staleness(batch, self.global_steps) if is_asynchronous(self.recipe.verl) else {}
        values = None
        if self.critic:
            with verl_api.marked_timer("values", self.timing_raw):
                values = self.critic.estimate(steps.records)
        # verl measures `_compute_advantage` as "adv": the correction, and writing to the queue.
        with verl_api.marked_timer("advantages", self.timing_raw):
            step_batch = to_step_batch(steps.records, values, self.recipe.rollout.state)
            advantages = build_estimator(self.recipe.advantage, self.recipe.estimator_options)(step_batch)
        left_out = set(steps.keys) if self._critic_alone else skipped(steps, advantages, self.recipe.training)
        trained = [record for key, record in zip(steps.keys, steps.records, strict=True) if key not in left_out]
        if trained:  # verl cannot process an empty batch; `_update_actor` skips the update
            leave_out(batch, left_out)
        lost = lost_trajectories(steps, self.recipe.rollout.tasks_per_update * self.recipe.rollout.group_size)
        if lost:
            logger.error("%d trajectories of update %d were lost and are left out", lost, self.global_steps)
        self.update_state = UpdateState(steps, step_batch, advantages, trained, len(batch), lost, ages)
        return super()._balance_batch(batch, metrics, *arguments, **options)

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        """The number of rows in all mini-batches; verl pads the batch to it."""
        training = self.recipe.training
        # Cut responses that are skipped do not count; steps with advantage 0 do.
        counted = sum(record.finished or not training.skip_cut_responses for record in self.update_state.steps.records)
        update_cut = cut(self.update_state.rows, training.mini_batch_size, dp_size, counted)
        self.update_state = replace(self.update_state, cut=update_cut)
        return update_cut.mini_batches * update_cut.size

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        if self._critic_alone:
            return batch
        batch.fields = [*SCORED]
        if not self.recipe.recomputes_log_probs:
            return super()._compute_old_log_prob(batch, metrics)
        batch.extra_info.update(self._scoring(entropy=True))
        self.actor_rollout_wg.compute_log_prob(batch)
        scored, metrics["actor/entropy"] = old_log_probs(batch)
        self.update_state = replace(self.update_state, scored=scored)
        return batch

    def _scoring(self, *, entropy: bool) -> dict[str, Any]:
        temperature = self.config.actor_rollout_ref.rollout.temperature
        return {"calculate_entropy": entropy, "compute_loss": False, "temperature": temperature}

    def _compute_ref_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        if self._critic_alone:
            return batch
        batch.fields = [*SCORED]
        batch.extra_info.update(self._scoring(entropy=False))
        if self.ref_in_actor:
            batch.extra_info["no_lora_adapter"] = True
            self.actor_rollout_wg.compute_log_prob(batch)
        else:
            self.ref_policy_wg.compute_ref_log_prob(batch)
        self.update_state = replace(self.update_state, reference=reference_log_probs(batch))
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        state = self.update_state
        columns = {} if state.reference is None else {"ref_log_prob": state.reference}
        if state.scored is not None:
            columns["old_log_probs"] = state.scored["old_log_probs"]
        if state.scored is not None and state.trained:
            settings, cap = self.config.algorithm.rollout_correction, self.recipe.training.importance_cap
            changed, figures = corrected(state.scored, settings, cap)
            if torch.equal(changed["response_mask"].values(), state.scored["response_mask"].values()):
                del changed["response_mask"]  # no token was rejected
            columns |= changed
            metrics.update(figures)
        return put_advantages(batch, state.steps, state.advantages, columns)

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        if not self.update_state.trained:
            logger.warning("nothing is trained in update %d: all its steps are skipped", self.global_steps)
            return batch
        batch.fields = [*TRAINED]
        actor = self.config.actor_rollout_ref.actor
        batch.extra_info.update(
            {
                "calculate_entropy": actor.calculate_entropy,
                "distillation_use_topk": False,
                "distillation_only": False,
                "global_batch_size": self.update_state.cut.size,
                "mini_batch_size": self.update_state.cut.size,
                "epochs": actor.ppo_epochs,
                "seed": actor.data_loader_seed + self.global_steps,
                UPDATE: self.global_steps,
                "dataloader_kwargs": {"shuffle": actor.shuffle},
                "temperature": self.config.actor_rollout_ref.rollout.temperature,
                **aggregation_facts(self.recipe.training, self.recipe.policy.max_response_tokens),
            }
        )
        output = verl_api.rename_dict(self.actor_rollout_wg.update_actor(batch)["metrics"], "actor/")
        output["perf/mfu/actor"] = output.pop("actor/mfu")
        metrics.update(verl_api.reduce_metrics(output))
        return batch

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> Any:
        """One update; its steps and its row of `metrics.jsonl` are written before any checkpoint of it."""
        try:
            batch = super().step(metrics, timing_raw)
        except RuntimeError as error:
            if "no materializable trajectories" in str(error):  # verl's remedy has no effect here
                raise RolloutError(_ALL_LOST) from error
            raise
        state, every = self.update_state, self.recipe.rollout.store_every
        store_rollouts(self.run, self.global_steps, state.steps.records, state.batch, state.advantages, every)
        row = self._row(metrics, timing_raw)
        append_metrics(self.run, row)
        if row["update"] == 1 and (note := starts_note(row["unequal_starts"])):
            self.reporter.warn(f"Warning: {note}")
        metrics.update(row)  # verl sends them to the trackers
        self.reporter.say(update_line(row, self.recipe.training.updates))
        return batch

    def _row(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> dict[str, Any]:
        """The row of the finished update; `metrics` and `timing_raw` are verl's."""
        settings, state = self.recipe.training, self.update_state
        figures = {
            **update_metrics(metrics, settings),
            "samples": len(state.trained),
            "tokens": sum(len(record.token_ids) for record in state.trained),
            "empty_responses": 0,
            "mini_batches": state.cut.mini_batches * settings.epochs if state.trained else 0,
            "lost_trajectories": state.lost,
            "padding_rows": state.cut.padding,
            **state.staleness,
        }
        phases = ("old_log_prob", "ref", "values", "adv", "update_critic", "update_actor")
        return update_row(
            update=self.global_steps,
            played=state.steps.records,
            batch=state.batch,
            advantages=state.advantages,
            figures=figures,
            resampled_groups=0,
            tasks_drawn=self.tasks_drawn,
            seconds_collect=timing_raw["gen"],
            seconds_advantages=timing_raw["advantages"],
            seconds_update=sum(timing_raw.get(phase, 0.0) for phase in phases),
            peak_memory_gib=reported_peak_gib(metrics),
        )

    def _compute_metrics(self, batch: Any, metrics: dict[str, Any], *_: Any, **__: Any) -> None:
        """Add verl's durations to the metrics for trackers; `step` and the ranks have added all others."""
        metrics["training/global_step"] = self.global_steps
        metrics.update({f"timing_s/{phase}": seconds for phase, seconds in self.timing_raw.items()})

    # ---- the critic --------------------------------------------------------------------------------------------

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        if verl_api.Role.Critic in self.role_worker_mapping:
            self.role_worker_mapping[verl_api.Role.Critic] = ray.remote(CriticWorker)

    @cached_property
    def critic(self) -> VerlCritic | None:
        """The critic that the estimator needs, once verl has started its workers."""
        if not self.recipe.needs_critic:
            return None
        gamma, target_lambda, seed = self.recipe.advantage.gamma, self.recipe.target_lambda, self.recipe.run.seed
        return VerlCritic(self.critic_wg, self.recipe.training, gamma=gamma, target_lambda=target_lambda, seed=seed)

    @property
    def _critic_alone(self) -> bool:
        """Whether this update trains only the critic."""
        return self.recipe.needs_critic and self.global_steps <= self.recipe.critic.pretrain_updates

    def _compute_values(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Does nothing: `_balance_batch` has already computed the values, which the advantages need."""
        return batch

    def _update_critic(self, batch: Any, metrics: dict[str, Any]) -> Any:
        assert self.critic is not None
        metrics.update(self.critic.train(self.update_state.batch, self.global_steps))
        return batch

    # ---- evaluation --------------------------------------------------------------------------------------------

    def _validate(self) -> dict[str, float]:
        """Evaluate on each task once per seed, unless the evaluation is on disk."""
        name = evaluation_name(self.global_steps, self.total_training_steps)
        evaluation = stored_evaluation(self.run, name) or self._evaluate(name)
        return evaluation_figures(evaluation)

    def _evaluate(self, name: str) -> Evaluation:
        """Play the episodes that the evaluation's log lacks, and write the result."""
        settings, tasks = self.recipe.evaluation, evaluation_tasks(self.suite, self.recipe.evaluation)
        check_each_once(settings.split, tasks)
        output, model = self.run.evaluation(name), f"{self.run.path.name} ({name})"
        log = EvalLog(output, {"model": model, "tasks": len(tasks), **settings.model_dump(mode="json")})
        manifest = recognise(self.recipe.environment.name, tasks)
        if manifest.differs:
            self.reporter.warn(manifest.warning)
        resumed, began = bool(log.episodes), time.monotonic()
        for seed in settings.seeds:
            self._play_tasks(evaluation_rows(tasks, settings.split, seed=seed), seed, log)
        episodes = [eval_task_id(seed, task.id) for seed in settings.seeds for task in tasks]
        facts = {
            "model": model,
            "agent": self.recipe.agent.name,
            "environment": self.recipe.environment.name,
            "seconds": None if resumed else time.monotonic() - began,
        }
        played = settings.model_dump(include={"split", "seeds", "temperature"})
        return finish_evaluation(output, log, episodes, played, manifest, self.reporter, **facts).evaluation

    def _play_tasks(self, rows: Sequence[TaskRow], seed: int, log: EvalLog) -> None:
        """Play each task exactly once; one whose environment was lost is played again."""
        batch = validation_batch(self.recipe.evaluation.games)
        for attempt in range(_EVALUATION_ATTEMPTS + 1):
            pending = [row for row in rows if not log.finished(eval_task_id(seed, row.task_id))]
            if not pending:
                return
            if attempt:
                logger.warning("%d evaluation episodes were lost in attempt %d", len(pending), attempt)
            if attempt == _EVALUATION_ATTEMPTS:
                break
            for first in range(0, len(pending), batch):
                records = self._play_validation(pending[first : first + batch])
                for episode in summarise_trajectories(records, seed):
                    log.add(episode, [])
        raise RolloutError(
            f"{len(pending)} evaluation episodes were lost in each of {_EVALUATION_ATTEMPTS} attempts, task "
            f"{pending[0].task_id!r} among them; the log of the agent workers has the reason"
        )

    def _play_validation(self, rows: Sequence[TaskRow]) -> list[StepRecord]:
        batch = self._as_batch(rows)
        verl_api.assign_non_tensor_data(batch, "validate", True)
        tag = {"is_prompt": True, "status": "pending", "global_steps": self.global_steps}
        transfer_queue.kv_batch_put(keys=list(batch["uid"]), partition_id="val", tags=[dict(tag) for _ in rows])
        self.agent_loop_manager.generate_sequences(batch)
        played, _ = self.replay_buffer.sample(global_steps=self.global_steps, partition_id="val", batch_size=len(rows))
        if not played.keys:
            return []
        records = read_steps(played).records
        transfer_queue.kv_clear(keys=played.keys, partition_id="val")
        return records

    # ---- files -------------------------------------------------------------------------------------------------

    def fit(self, agent_loop_manager: Any) -> None:
        """Run verl's loop, then write the summary."""
        done, updates = self.global_steps, self.total_training_steps
        stored = stored_evaluation(self.run, evaluation_name(done, updates)) is not None
        # A process may have ended between a checkpoint and its evaluation.
        missing = evaluation_due(done, updates, self.recipe.evaluation.every) and not stored
        first = self.recipe.evaluation.before or self.recipe.verl.evaluate_only
        with open_dict(self.config):
            self.config.trainer.val_before_train = missing if done else first
        set_tracker_folders(self.run.path)
        super().fit(agent_loop_manager)
        if self.recipe.verl.evaluate_only:
            return
        before = stored_evaluation(self.run, "before") if self.recipe.evaluation.before else None
        after = read_evaluation(self.run.evaluation("after")).evaluation
        write_summary(self.run, self.recipe.summary_facts, before, after, seconds=self._seconds())

    def _save_checkpoint(self) -> None:
        """Save verl's checkpoint, publish its weights as one of this project's, then delete old ones."""
        state: dict[str, Any] = {"tasks_drawn": self.tasks_drawn, "seconds": self._seconds()}
        if self.critic:
            state["return_scale"] = asdict(self.critic.scale)
        write_json(self._verl_folder() / STATE_NAME, state)
        super()._save_checkpoint()  # records it as the newest checkpoint once it is complete
        self._publish()
        delete_old_folders(self._verl_checkpoints(), self.global_steps, self.recipe.training.keep_checkpoints)

    def _load_checkpoint(self) -> None:
        repair_tracker(self._verl_checkpoints())
        super()._load_checkpoint()
        if self.global_steps:
            state = read_json(self._verl_folder() / STATE_NAME)
            self.tasks_drawn, self.seconds_before = state["tasks_drawn"], state["seconds"]
            if self.critic:
                self.critic.scale = ReturnScale(**state["return_scale"])
            published = self.run.checkpoints / str(self.global_steps)
            if not published.exists() or not is_complete(published):
                self._publish()
            self.reporter.say(f"Continuing from {self._verl_folder()}")
        rewind_updates(self.run, self.global_steps)
        rewind_evaluations(self.run, self.global_steps, self.total_training_steps)

    def _publish(self) -> None:
        weights = self._verl_folder() / "actor" / "huggingface"
        state = {"engine": "verl", "tasks_drawn": self.tasks_drawn, "seconds": self._seconds()}
        keep = self.recipe.training.keep_checkpoints
        publish_weights(weights, self.run.checkpoints, self.global_steps, state, keep)

    def _verl_checkpoints(self) -> Path:
        return Path(self.config.trainer.default_local_dir)

    def _verl_folder(self) -> Path:
        return verl_folder(self._verl_checkpoints(), self.global_steps)

    def _seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started
