"""The training loop: collect groups, compute advantages, update the policy, store the steps, evaluate.

    evaluate -> [ collect -> advantages -> update -> store -> checkpoint -> evaluate ] x updates -> evaluate

`hgpo.assemble` builds the trainer's parts and prepares the start policy. Every stage continues from what is on disk, so
a run that was killed and resumed ends with the figures of an uninterrupted run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from hgpo.config import TrainingSettings
from hgpo.estimators import Advantages
from hgpo.estimators.diagnostics import starts_note
from hgpo.evaluation.eval_history import (
    evaluation_due,
    evaluation_figures,
    evaluation_name,
    rewind_evaluations,
    training_evaluations,
    update_of,
)
from hgpo.evaluation.evaluator import Evaluator
from hgpo.evaluation.result_files import stored_evaluation
from hgpo.evaluation.statistics import Evaluation
from hgpo.policies.base import AnyPolicy, release_memory
from hgpo.policies.language_model import LanguageModel
from hgpo.rollout.records import to_step_batch
from hgpo.runs.checkpoints import newest_complete
from hgpo.runs.folder import RunDirectory, RunDirectoryError, append_metrics, lost_evaluations, rewind_updates
from hgpo.runs.metrics import GIB, peak_resident_gib, store_rollouts, update_row
from hgpo.runs.trackers import Trackers
from hgpo.steps import StepBatch
from hgpo.training.batching import Sample
from hgpo.training.checkpoint import TrainingState, load_checkpoint, save_checkpoint
from hgpo.training.collector import Collected, Collector
from hgpo.training.critic import Critic
from hgpo.training.update import Sampling, Trained, set_learning_rate, update_policy
from hgpo.utils.progress import Reporter, update_line, worth_a_line
from hgpo.utils.text import counted

_RECENT = 5  # the mean time of this many last updates predicts the time of the next updates


def restore_state(
    run: RunDirectory, start: LanguageModel, settings: TrainingSettings, reporter: Reporter, *, device: str
) -> TrainingState | None:
    """The state of the newest complete checkpoint, or None; metrics and evaluations after it are moved aside.

    Raises:
        RunDirectoryError: an evaluation is damaged, or an edited `config.toml` has fewer updates than the checkpoint.
    """
    folder = newest_complete(run.checkpoints)
    restored = None
    if folder is not None:
        restored = load_checkpoint(folder, settings, start.limits, device=device, base=start)
        if restored.update > settings.updates:
            raise RunDirectoryError(
                f"training.updates = {settings.updates}, and {folder} is of update {restored.update}: set it to at "
                f"least {restored.update} in {run.config}, or delete the checkpoints after update {settings.updates}"
            )
        for file in lost_evaluations(run, sorted(restored.evaluations)):
            if file != run.evaluation("before"):  # the evaluation "before" is played again
                reporter.warn(f"{file} is missing, and its checkpoint may be deleted: training continues without it")
        for name in training_evaluations(run):
            stored_evaluation(run, name)  # raises an error if the evaluation is damaged, before anything is trained
        reporter.say(f"Continuing from {folder}")
    update = restored.update if restored else 0
    rewind_updates(run, update)
    rewind_evaluations(run, update, settings.updates)
    if restored:
        restored.evaluations = set(training_evaluations(run))
    return restored


@dataclass(kw_only=True)
class Trainer:
    """Trains one run from its parts, from `state.update` to the last update.

    Attributes:
        run: the run's folder.
        state: see `TrainingState`.
        policy: samples from the trained model.
        start_policy: loads the policy before the first update.
        reference: see `hgpo.training.update.Trained`.
        collector: plays the training tasks.
        estimator: computes the advantages of a batch.
        critic: estimates the values that the estimator needs; None if it needs no values.
        sampling: how the policy samples; each update has its own temperature.
        settings: settings of the updates.
        store_every: the steps of every `store_every`-th update are stored; 0: of none.
        evaluator: plays the evaluation set.
        evaluate_before: whether the start policy is evaluated, too.
        evaluate_every: updates between evaluations; 0: none between the first and the last.
        reporter: prints progress.
    """

    run: RunDirectory
    state: TrainingState
    policy: AnyPolicy
    start_policy: Callable[[], AnyPolicy]
    reference: Any | None
    collector: Collector
    estimator: Callable[[StepBatch], Advantages]
    critic: Critic | None
    sampling: Sampling
    settings: TrainingSettings
    store_every: int
    evaluator: Evaluator
    evaluate_before: bool
    evaluate_every: int
    reporter: Reporter

    def __post_init__(self) -> None:
        self.model = self.state.language_model.model
        shared_critic = self.critic.shared() if self.critic else None
        self.trained = Trained(self.model, self.state.optimizer, self.reference, shared_critic)
        self.update_seconds: list[float] = []  # of this process

    def train(self, started: float, trackers: Trackers) -> tuple[Evaluation | None, Evaluation]:
        """Run the missing updates; return the evaluations before the first (or None) and after the last update.

        Args:
            started: `time.monotonic()` when this process began.
            trackers: receive metrics rows and evaluations.
        """
        updates = self.settings.updates
        before = self._evaluate("before", 0, trackers) if self.evaluate_before else None
        made = {name: update for name in self.state.evaluations if (update := update_of(name, updates))}
        for name in sorted(made, key=lambda name: made[name]):
            self._evaluate(name, made[name], trackers)  # only sends it: a tracker that failed lacks it
        self._evaluate_if_due(trackers)  # a process that saved the checkpoint may have died before this evaluation
        left = updates - self.state.update
        self.reporter.say(f"Training: {counted(left, 'update')}")
        with self.reporter.counting("updates") as count:
            self.collector.note = lambda text: count(self.state.update, updates, text)
            while self.state.update < updates:
                count(self.state.update, updates)
                row = self._timed_update()
                trackers.row(row)
                count(self.state.update, updates, f"success {row['success']:.2f}")
                if worth_a_line(self.state.update, updates):
                    self.reporter.say(update_line(row, updates, self._seconds_left()))
                self._checkpoint(started)
                self._evaluate_if_due(trackers)
        return before, self._evaluate("after", updates, trackers)

    def seconds(self, started: float) -> float:
        """Seconds of the whole run, those of earlier processes included."""
        return self.state.seconds + time.monotonic() - started

    def _timed_update(self) -> dict[str, Any]:
        began = time.monotonic()
        row = self.one_update()
        append_metrics(self.run, row)
        if row["update"] == 1 and (note := starts_note(row["unequal_starts"])):
            self.reporter.warn(f"Warning: {note}")
        self.update_seconds.append(time.monotonic() - began)
        return row

    def one_update(self) -> dict[str, Any]:
        """Collect, compute advantages, update, store; returns the update's metrics."""
        update = self.state.update + 1
        began = time.perf_counter()
        collected = self.collector.collect(update, self.state.tasks_drawn)
        after_collect = time.perf_counter()
        release_memory(self.policy)
        values = self.critic.estimate(collected.steps) if self.critic else None
        after_values = time.perf_counter()
        batch = to_step_batch(collected.steps, values, self.collector.settings.state)
        advantages = self.estimator(batch)
        after_advantages = time.perf_counter()
        figures = self._train(update, collected, batch, advantages)
        self.policy.take_weights(self.model)
        after_update = time.perf_counter()
        store_rollouts(self.run, update, collected.steps, batch, advantages, self.store_every)
        self.state.update, self.state.tasks_drawn = update, collected.tasks_drawn
        return update_row(
            update=update,
            played=[*collected.steps, *collected.replaced],
            batch=batch,
            advantages=advantages,
            figures=figures,
            resampled_groups=collected.resampled_groups,
            tasks_drawn=collected.tasks_drawn,
            seconds_collect=after_collect - began,
            seconds_advantages=after_advantages - after_values,
            seconds_update=after_update - after_advantages + after_values - after_collect,
            peak_memory_gib=peak_memory_gib(self.model.device),
        )

    def _train(self, update: int, collected: Collected, batch: StepBatch, advantages: Advantages) -> dict[str, float]:
        """The policy update and the critic's; returns their figures."""
        samples = [
            Sample(record.prompt_ids, record.token_ids, record.log_probs, float(value), cut=not record.finished)
            for record, value in zip(collected.steps, advantages.values, strict=True)
        ]
        if self.critic is None:
            return self._update_policy(update, collected.temperature, samples)
        targets, figures = self.critic.targets(batch)
        alone = self.critic.trains_alone(update)
        if alone:
            figures |= {"samples": 0, "tokens": 0, "empty_responses": 0, "mini_batches": 0}
        else:
            paired = [replace(sample, value=target) for sample, target in zip(samples, targets, strict=True)]
            figures |= self._update_policy(update, collected.temperature, paired)
        if alone or not self.critic.model.shared:
            prompts = [record.prompt_ids for record in collected.steps]
            figures |= self.critic.train(prompts, targets, self.state.update_rng, self._note_progress("critic"))
        return figures

    def _note_progress(self, trained: str) -> Callable[[int, int], object]:
        return lambda done, total: self.collector.note(f"training the {trained}: {done:,} of {total:,} steps")

    def _update_policy(self, update: int, temperature: float, samples: Sequence[Sample]) -> dict[str, float]:
        """The policy update itself; returns its figures."""
        set_learning_rate(self.state.optimizer, self.settings, update)
        return update_policy(
            self.trained,
            samples,
            self.settings,
            self.state.update_rng,
            replace(self.sampling, temperature=temperature),
            on_progress=self._note_progress("policy"),
        )

    def _seconds_left(self) -> float:
        """Estimate from the last updates only: won episodes are shorter, so updates become faster."""
        recent = self.update_seconds[-_RECENT:]
        return sum(recent) / len(recent) * (self.settings.updates - self.state.update)

    def _checkpoint(self, started: float) -> None:
        """Save the state if a checkpoint is due."""
        settings, update = self.settings, self.state.update
        if update % settings.checkpoint_every == 0 or update == settings.updates:
            state = replace(self.state, seconds=self.seconds(started))
            save_checkpoint(self.run.checkpoints, state, critic=self.critic, keep=settings.keep_checkpoints)

    def _evaluate_if_due(self, trackers: Trackers) -> None:
        """Evaluate between first and last update. No random numbers of the training are drawn for it."""
        update, updates = self.state.update, self.settings.updates
        if 0 < update < updates and evaluation_due(update, updates, self.evaluate_every):
            self._evaluate(evaluation_name(update, updates), update, trackers)

    def _evaluate(self, name: str, update: int, trackers: Trackers) -> Evaluation:
        """The evaluation `name` of the policy after `update`: loaded if the run has it, else played."""
        evaluation = stored_evaluation(self.run, name)
        if evaluation is None:
            is_start = name == "before" and self.state.update > 0
            policy = self.start_policy() if is_start else self.policy
            model = f"{self.run.path.resolve().name} ({name})"
            stored = self.evaluator.evaluate(policy, self.run.evaluation(name), model=model)
            assert stored is not None, "training sets no limit of costs"
            evaluation = stored.evaluation
        trackers.evaluation(update, evaluation_figures(evaluation))
        self.state.evaluations.add(name)
        return evaluation


def peak_memory_gib(device: torch.device) -> float:
    """Peak memory so far in GiB: of tensors on `device` with CUDA, else of this process (resident memory)."""
    return torch.cuda.max_memory_allocated(device) / GIB if device.type == "cuda" else peak_resident_gib()
