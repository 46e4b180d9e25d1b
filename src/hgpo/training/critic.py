"""The critic: it estimates the value of every step, and learns from the returns.

    values = critic.estimate(steps)  ->  advantages  ->  critic.train(samples)

If the critic shares the policy's layers, its value loss is a term of the policy update (`hgpo.training.update`), and
`train` changes only its head.

Shape suffixes: N steps, B prompts of a micro-batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np
import torch
from numpy.typing import NDArray

from hgpo.config import CriticSettings, TrainingSettings
from hgpo.estimators.gae import value_targets
from hgpo.policies.weights import Precision, adapter_dropout, autocast
from hgpo.rollout.records import StepRecord, Values
from hgpo.steps import StepBatch
from hgpo.training.batching import Sample, ValueTarget
from hgpo.training.log_probs import within_memory
from hgpo.training.losses import value_loss
from hgpo.training.update import Metrics, SharedCritic, clip_gradients, mini_batches, stacked_targets
from hgpo.training.value_model import ValueModel, prompt_end_states, prompt_sample, prompt_values, value_figures


@dataclass(frozen=True, slots=True)
class CriticRules:
    """Settings of a critic's targets and forward passes.

    Attributes:
        gamma: discount of the returns.
        target_lambda: lambda of the targets, see `hgpo.estimators.gae.value_targets`.
        precision: arithmetic of the forward passes.
    """

    gamma: float
    target_lambda: float
    precision: Precision = "auto"


class Critic:
    """A value model with its optimiser.

    Attributes:
        model: see `ValueModel`.
        optimizer: optimiser of the critic's own parameters.
        settings: section `critic` of the settings.
    """

    def __init__(
        self, model: ValueModel, settings: CriticSettings, training: TrainingSettings, rules: CriticRules
    ) -> None:
        self.model, self.settings = model, settings
        self.optimizer = torch.optim.AdamW(
            model.trained_parameters(), lr=settings.learning_rate, weight_decay=training.weight_decay
        )
        self._training, self._rules = training, rules

    def trains_alone(self, update: int) -> bool:
        """Whether update number `update`, from 1, trains the critic and not the policy."""
        return update <= self.settings.pretrain_updates

    def estimate(self, steps: Sequence[StepRecord]) -> Values:
        """The value of every step, and of every state in which a time limit cut an episode."""
        cut = [row for row, step in enumerate(steps) if len(step.next_prompt_ids)]
        prompts = [step.prompt_ids for step in steps] + [steps[row].next_prompt_ids for row in cut]
        found = prompt_values(
            self.model,
            prompts,
            precision=self._rules.precision,
            max_tokens=self._training.micro_batch_tokens,
            share_prefixes=self._training.share_prefixes,
        )
        bootstrap_N = np.zeros(len(steps))
        bootstrap_N[cut] = found[len(steps) :]
        return Values(found[: len(steps)], bootstrap_N)

    def targets(self, batch: StepBatch) -> tuple[list[ValueTarget], Metrics]:
        """Each step's target and figures about the values; also updates the normalisation with the targets."""
        assert batch.value is not None, "`estimate` made them"
        target_N = value_targets(batch, self._rules.gamma, self._rules.target_lambda)
        self.model.rescale(target_N)
        scale = self.model.scale
        pairs = zip(scale.normalised(target_N), scale.normalised(batch.value), strict=True)
        targets = [ValueTarget(float(target), float(old)) for target, old in pairs]
        return targets, value_figures(target_N, batch.value)

    def shared(self) -> SharedCritic | None:
        """What the policy update needs of a critic that shares the policy's layers; None for a separate critic."""
        if not self.model.shared:
            return None
        return SharedCritic(
            self.model.normal_values, self.optimizer, self.settings.loss_weight, self.settings.value_clip
        )

    def train(
        self,
        prompts: Sequence[NDArray[np.int32]],
        targets: Sequence[ValueTarget],
        rng: np.random.Generator,
        on_progress: Callable[[int, int], object] = lambda done, total: None,
    ) -> Metrics:
        """Train the critic's own parameters on all steps, `training.epochs` times, in mini-batches like the policy's.

        Args:
            prompts: prompt ids of each step, int32[P].
            targets: target of each step.
            rng: shuffles the steps.
            on_progress: called with the number of steps trained on so far, and in total.

        Returns:
            Means over the optimiser steps: critic_loss, critic_clip_fraction, critic_gradient_norm.

        Raises:
            FloatingPointError: the loss or a gradient is not finite; the parameters keep their values.
        """
        samples = [
            replace(prompt_sample(prompt), value=target) for prompt, target in zip(prompts, targets, strict=True)
        ]
        totals: defaultdict[str, float] = defaultdict(float)
        count = done = 0
        for _ in range(self._training.epochs):
            for rows in mini_batches(rng.permutation(len(samples)), self._training.mini_batch_size):
                with adapter_dropout(self.model.layers, rng):
                    figures = self._train_mini_batch([samples[row] for row in rows])
                count, done = count + 1, done + len(rows)
                on_progress(done, len(samples) * self._training.epochs)
                for name, value in figures.items():
                    totals[name] += value
        self.optimizer.zero_grad(set_to_none=True)
        return {name: total / count for name, total in totals.items()}

    def _train_mini_batch(self, samples: list[Sample]) -> Metrics:
        figures = within_memory(
            self.model.layers,
            samples,
            self._training.micro_batch_tokens,
            lambda batches, width: self._accumulate(samples, batches, width),
            share_prefixes=self._training.share_prefixes,
        )
        figures["critic_gradient_norm"] = clip_gradients(self.optimizer, self._training.max_gradient_norm)
        self.optimizer.step()
        return figures

    def _accumulate(self, samples: list[Sample], batches: list[NDArray[np.int64]], width: int | None) -> Metrics:
        """The gradient of one mini-batch, starting from zero, and its figures."""
        totals: defaultdict[str, float] = defaultdict(float)
        self.optimizer.zero_grad(set_to_none=True)
        for rows in batches:
            chosen = [samples[row] for row in rows]
            loss, clipped = self._loss(chosen, width)
            if not isfinite(value := loss.item()):
                self.optimizer.zero_grad(set_to_none=True)
                raise FloatingPointError(f"the critic's loss is {value}: lower critic.learning_rate")
            (loss / len(samples)).backward()  # type: ignore[no-untyped-call]
            totals["critic_loss"] += value / len(samples)
            totals["critic_clip_fraction"] += clipped / len(samples)
        return dict(totals)

    def _loss(self, samples: list[Sample], width: int | None) -> tuple[torch.Tensor, int]:
        """Sum of the losses of some samples, and how many of them were clipped."""
        model, rules = self.model, self._rules
        with torch.set_grad_enabled(not model.shared), autocast(model.layers, rules.precision):
            state_BH = prompt_end_states(
                model.layers,
                samples,
                recompute_layers=self._training.gradient_checkpointing and not model.shared,
                row_tokens=width,
            )
        value_B = model.normal_values(state_BH)
        loss_B, clipped_B = value_loss(value_B, *stacked_targets(samples, value_B), self.settings.value_clip)
        return loss_B.sum(), int(clipped_B.sum())
