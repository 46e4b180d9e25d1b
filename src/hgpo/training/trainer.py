"""The training loop: collect groups, compute advantages, update the policy, write everything down.

    start policy -> evaluate -> [ collect -> advantages -> update -> store ] x updates -> evaluate -> summary

Every stage finds its own result on disk and goes on from there, so a run that was killed at any point continues with
`resume` and ends with the figures it would have had.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hgpo.assemble import build_evaluator, estimate, record_environment, training_suite
from hgpo.config import Config, check_names
from hgpo.envs.wrappers import LimitedSuite
from hgpo.estimators import Advantages
from hgpo.evaluation.eval_history import evaluation_due, evaluation_name, rewind_evaluations, training_evaluations
from hgpo.evaluation.result_files import stored_evaluation
from hgpo.evaluation.rollout_monitor import PlayWatch
from hgpo.evaluation.statistics import Evaluation
from hgpo.evaluation.summary import write_summary
from hgpo.policies.base import AnyPolicy
from hgpo.policies.language_model import LanguageModel
from hgpo.policies.loading import resolve_device
from hgpo.rollout.records import StepRecord
from hgpo.runs.checkpoints import newest_complete, restore_generator
from hgpo.runs.folder import (
    RunDirectory,
    append_metrics,
    create_run_directory,
    discard_unbegun,
    exclusive,
    lost_evaluations,
    open_run_directory,
    remove_leftovers,
    rewind_metrics,
)
from hgpo.runs.metrics import Seconds, UpdateFacts, store_steps, update_row
from hgpo.runs.trackers import Trackers, check_trackers, open_trackers
from hgpo.training.batching import Sample
from hgpo.training.checkpoint import load_checkpoint, save_checkpoint
from hgpo.training.collector import Collector, sampling_temperature
from hgpo.training.load import (
    check_policy,
    limits_of,
    load_checkpoint_policy,
    load_language_model,
    run_policy,
    start_model,
    use_threads,
    with_adapter,
)
from hgpo.training.memory import check_memory, peak_memory_gib, summarise_model
from hgpo.training.run_plan import announcement, on_device
from hgpo.training.start_policy import prepare_start, reference_model
from hgpo.training.update import Sampling, make_optimizer, set_learning_rate, update_policy
from hgpo.utils.progress import Reporter, update_line, worth_a_line

_RECENT = 5
"""Updates that tell how long the next ones take."""


def train(config: Config, reporter: Reporter, *, started: float | None = None) -> RunDirectory:
    """Carry out a new run. `started` is the clock (`time.monotonic`) from which its seconds count."""
    resolve_device(config.policy.device)  # what is not there is refused before anything is written
    check_policy(config)
    check_trackers(config)
    suite = training_suite(config)
    use_threads(config)
    model = summarise_model(config)
    check_memory(config, model, reporter)
    for line in announcement(config, model.parameters, on_device(resolve_device(config.policy.device))):
        reporter.say(line)
    run = create_run_directory(config)
    try:
        with exclusive(run.path):
            return _run(run, config, suite, reporter, started)
    except Exception:
        discard_unbegun(run)
        raise


def resume(path: Path, reporter: Reporter, *, started: float | None = None) -> RunDirectory:
    """Continue the run in `path` from what it has on disk. A complete run is left as it is."""
    run, config = open_run_directory(path)
    if run.complete:
        return run
    check_names(config)
    check_trackers(config)
    with exclusive(run.path):
        return _run(run, config, training_suite(config), reporter, started)


def _run(
    run: RunDirectory, config: Config, suite: LimitedSuite, reporter: Reporter, started: float | None
) -> RunDirectory:
    started = time.monotonic() if started is None else started
    use_threads(config)
    remove_leftovers(run)
    record_environment(run, config, suite)
    prepare_start(run, config, suite, reporter)
    trainer = _Trainer(run, config, suite, reporter)
    with open_trackers(run, config, reporter) as trackers:
        before = stored_evaluation(run, "before")
        if before is None:
            before = evaluate_policy(run, "before", trainer.policy_before(), suite, config, reporter)
        trackers.evaluation(0, before)
        trainer.train(started, trackers)
        after = stored_evaluation(run, "after")
        if after is None:
            after = evaluate_policy(run, "after", trainer.policy, suite, config, reporter)
        trackers.evaluation(config.training.updates, after)
    write_summary(run, config, before, after, seconds=trainer.progress.seconds + time.monotonic() - started)
    return run


def evaluate_policy(
    run: RunDirectory, name: str, policy: AnyPolicy, suite: LimitedSuite, config: Config, reporter: Reporter
) -> Evaluation:
    """Evaluate `policy`, and store the result as `evaluations/<name>.json`."""
    evaluator = build_evaluator(config, suite, reporter, monitor=PlayWatch(reporter, config))
    stored = evaluator.evaluate(policy, run.evaluation(name), model=f"{run.path.name} ({name})")
    assert stored is not None, "no cost limit"
    return stored.evaluation


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is. `seconds` were spent by earlier processes of the run, up to their newest checkpoint."""

    update: int = 0
    tasks_drawn: int = 0
    seconds: float = 0.0


class _Trainer:
    """The loop and its state: policy, frozen reference, optimiser, and two generators."""

    def __init__(self, run: RunDirectory, config: Config, suite: LimitedSuite, reporter: Reporter) -> None:
        self.run, self.config, self.suite, self.reporter = run, config, suite, reporter
        rollout_seed, update_seed = np.random.SeedSequence(config.run.seed).spawn(2)
        self.rollout_rng = np.random.default_rng(rollout_seed)
        self.update_rng = np.random.default_rng(update_seed)
        self.progress = Progress()
        start = load_language_model(start_model(run, config), config)
        self.trained, self.optimizer = self._restore(start) or self._begin(start)
        self.reference = reference_model(start, self.trained, config.training)
        self.policy = run_policy(config, self.trained)
        tasks = suite.tasks(config.environment.train_split)
        self.collector = Collector(config, tasks, self.policy, self.rollout_rng, reporter)
        self.took: list[float] = []  # seconds of this process's updates

    def policy_before(self) -> AnyPolicy:
        """The policy before the first update, also where a checkpoint has taken its place by now."""
        if not self.progress.update:
            return self.policy
        return load_checkpoint_policy(self.run, self.config, "start")[0]

    def train(self, started: float, trackers: Trackers) -> None:
        """Run all updates that are still to be done."""
        self._evaluate_between(trackers)  # a process may have died in it, after it had saved the checkpoint
        updates = self.config.training.updates
        left = updates - self.progress.update
        self.reporter.say(f"Training with {self.config.advantage.estimator}: {left} updates")
        with self.reporter.counting("updates") as count:
            self.collector.note = lambda text: count(self.progress.update, updates, text)
            while self.progress.update < updates:
                count(self.progress.update, updates)
                began = time.monotonic()
                row = self._one_update()
                append_metrics(self.run, row)
                self.took.append(time.monotonic() - began)
                trackers.row(row)
                count(self.progress.update, updates, f"success {row['success']:.2f}")
                if worth_a_line(self.progress.update, updates):
                    self.reporter.say(update_line(row, updates, self._seconds_left()))
                self._checkpoint(started)
                self._evaluate_between(trackers)

    def _seconds_left(self) -> float:
        """Of the updates alone, as the last few went: later ones may be shorter, since won games are."""
        recent = self.took[-_RECENT:]
        return sum(recent) / len(recent) * (self.config.training.updates - self.progress.update)

    def _one_update(self) -> dict[str, Any]:
        """Collect, estimate, update, store; returns the update's metrics."""
        update = self.progress.update + 1
        clock = time.perf_counter
        began = clock()
        drawn = self.collector.collect(update, self.progress.tasks_drawn)
        collected = clock()
        batch, advantages = estimate(drawn.steps, self.config)
        estimated = clock()
        set_learning_rate(self.optimizer, self.config.training, update)
        trained = self._train_on(drawn.steps, advantages)
        self.policy.take_weights(self.trained.model)
        updated = clock()
        store_steps(self.run, self.config, update, drawn.steps, advantages)
        self.progress = replace(self.progress, update=update, tasks_drawn=drawn.tasks_drawn)
        return update_row(
            UpdateFacts(
                update=update,
                played=[*drawn.steps, *drawn.replaced],
                batch=batch,
                advantages=advantages,
                trained=trained,
                resampled_groups=drawn.resampled_groups,
                tasks_drawn=self.progress.tasks_drawn,
                seconds=Seconds(collected - began, estimated - collected, updated - estimated),
                peak_memory_gib=peak_memory_gib(self.trained.model.device),
            )
        )

    def _train_on(self, steps: Sequence[StepRecord], advantages: Advantages) -> dict[str, float]:
        """The policy update itself; returns its figures."""
        samples = [
            Sample(record.prompt_ids, record.token_ids, record.log_probs, float(value), cut=not record.finished)
            for record, value in zip(steps, advantages.values, strict=True)
        ]
        return update_policy(
            self.trained.model,
            self.reference,
            self.optimizer,
            samples,
            self.config.training,
            self.update_rng,
            Sampling(
                temperature=sampling_temperature(self.config, self.progress.update + 1),
                max_response_tokens=self.config.policy.max_response_tokens,
                recompute_log_probs=self.config.recomputes_log_probs,
            ),
            on_progress=lambda done, total: self.collector.note(f"training: {done:,} of {total:,} steps"),
        )

    def _checkpoint(self, started: float) -> None:
        """Save the state where it is due."""
        settings, update = self.config.training, self.progress.update
        if update % settings.checkpoint_every == 0 or update == settings.updates:
            save_checkpoint(
                self.run.checkpoints,
                update,
                model=self.trained.model,
                tokenizer=self.trained.tokenizer,
                optimizer=self.optimizer,
                state={
                    "tasks_drawn": self.progress.tasks_drawn,
                    "seconds": self.progress.seconds + time.monotonic() - started,
                    "rollout_rng": self.rollout_rng.bit_generator.state,
                    "update_rng": self.update_rng.bit_generator.state,
                    "evaluations": training_evaluations(self.run),
                },
                keep=settings.keep_checkpoints,
            )

    def _evaluate_between(self, trackers: Trackers) -> None:
        """Play the panel between first and last where it is due, unless the run has that evaluation already.

        Its generator is its own, so nothing that follows depends on whether and when it is played.
        """
        update, updates = self.progress.update, self.config.training.updates
        name = evaluation_name(update, updates)
        due = 0 < update < updates and evaluation_due(update, updates, self.config.evaluation.every)
        if due:
            found = stored_evaluation(self.run, name)
            if found is None:
                found = evaluate_policy(self.run, name, self.policy, self.suite, self.config, self.reporter)
            trackers.evaluation(update, found)

    def _begin(self, start: LanguageModel) -> tuple[LanguageModel, torch.optim.Optimizer]:
        """What is trained, at its start, and a new optimiser."""
        trained = with_adapter(start, self.config)
        return trained, make_optimizer(trained.model, self.config.training)

    def _warn_of_lost_evaluations(self, names: object) -> None:
        """Warn of each evaluation that is missing; the one from before training is played again."""
        for file in lost_evaluations(self.run, names):
            if file != self.run.evaluation("before"):
                self.reporter.warn(f"{file} is gone, and its policy may be, too: the run goes on without it")

    def _restore(self, start: LanguageModel) -> tuple[LanguageModel, torch.optim.Optimizer] | None:
        """Continue from the newest complete checkpoint; None if there is none."""
        folder = newest_complete(self.run.checkpoints)
        restored = None
        if folder is not None:
            limits, device = limits_of(self.config), self.config.policy.device
            checkpoint = load_checkpoint(folder, self.config.training, limits, device=device, base=start)
            restored = checkpoint.language_model, checkpoint.optimizer
            state = checkpoint.state
            self.rollout_rng = restore_generator(state["rollout_rng"])
            self.update_rng = restore_generator(state["update_rng"])
            self.progress = Progress(checkpoint.update, state["tasks_drawn"], state["seconds"])
            self._warn_of_lost_evaluations(state.get("evaluations", []))
            self.reporter.say(f"Continuing from {folder}")
        rewind_metrics(self.run, self.progress.update)
        rewind_evaluations(self.run, self.progress.update, self.config.training.updates)
        for name in training_evaluations(self.run):
            stored_evaluation(self.run, name)  # a damaged one is reported before anything is trained
        return restored
