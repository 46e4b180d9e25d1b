"""The critic: it estimates the value of every step, and learns from the returns.

    values = critic.estimate(steps)  ->  advantages  ->  critic.train(samples)

If the critic shares the policy's layers, its value loss is a term of the policy update (`hgpo.training.update`), and
`train` changes only its head.

Shape suffixes: N steps, B prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from hgpo.columns import FloatArray
from hgpo.config import CriticSettings, TrainingSettings
from hgpo.estimators.gae import value_targets
from hgpo.policies.base import TokenIds
from hgpo.policies.weights import Precision, autocast
from hgpo.rollout.records import StepRecord, Values
from hgpo.steps import StepBatch
from hgpo.training.batching import Sample, ValueTarget
from hgpo.training.log_probs import within_memory
from hgpo.training.losses import value_loss_parts
from hgpo.training.update import Metrics, SharedCritic, gradient_step, train_epochs
from hgpo.training.value_model import ValueModel, prompt_end_states, prompt_sample, value_figures


class Critic:
    """A value model with its optimiser.

    Attributes:
        model: see `ValueModel`.
        optimizer: optimiser of the critic's own parameters.
        settings: section `critic` of the settings.
    """

    def __init__(
        self,
        model: ValueModel,
        settings: CriticSettings,
        training: TrainingSettings,
        *,
        gamma: float,
        target_lambda: float,
        precision: Precision = "auto",
    ) -> None:
        """Make the optimiser. `target_lambda` is that of `hgpo.estimators.gae.value_targets`."""
        self.model, self.settings = model, settings
        self.optimizer = torch.optim.AdamW(
            model.trained_parameters(), lr=settings.learning_rate, weight_decay=training.weight_decay
        )
        self._training, self._precision = training, precision
        self._gamma, self._target_lambda = gamma, target_lambda

    def trains_alone(self, update: int) -> bool:
        """Whether update number `update`, from 1, trains the critic and not the policy."""
        return update <= self.settings.pretrain_updates

    def estimate(self, steps: Sequence[StepRecord]) -> Values:
        """The value of every step, and of every state in which a time limit cut an episode."""
        cut = [row for row, step in enumerate(steps) if len(step.next_prompt_ids)]
        found = self.values([step.prompt_ids for step in steps] + [steps[row].next_prompt_ids for row in cut])
        bootstrap_N = np.zeros(len(steps))
        bootstrap_N[cut] = found[len(steps) :]
        return Values(found[: len(steps)], bootstrap_N)

    def values(self, prompts: Sequence[TokenIds]) -> FloatArray:
        """The value of each prompt without gradients, float64[B], units of the reward."""
        model, settings = self.model, self._training
        samples = [prompt_sample(prompt) for prompt in prompts]

        @torch.no_grad()
        def computed(batches: list[NDArray[np.int64]], width: int | None) -> NDArray[np.float32]:
            value_B = np.empty(len(samples), dtype=np.float32)
            for rows in batches:
                with autocast(model.layers, self._precision):
                    state_BH = prompt_end_states(model.layers, [samples[row] for row in rows], row_tokens=width)
                value_B[rows] = model.normal_values(state_BH).cpu().numpy()
            return value_B

        most, shares = settings.micro_batch_tokens, settings.share_prefixes
        return model.scale.restored(within_memory(model.layers, samples, most, computed, share_prefixes=shares))

    def targets(self, batch: StepBatch) -> tuple[list[ValueTarget], Metrics]:
        """Each step's target and figures about the values; also updates the normalisation with the targets."""
        assert batch.value is not None, "`estimate` made them"
        target_N = value_targets(batch, self._gamma, self._target_lambda)
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

        def step(rows: NDArray[np.int64]) -> Metrics:
            chosen = [samples[row] for row in rows]
            return gradient_step(
                self.model.layers,
                {"critic_gradient_norm": self.optimizer},
                chosen,
                lambda part, width: self._loss([chosen[row] for row in part], len(chosen), width),
                micro_batch_tokens=self._training.micro_batch_tokens,
                max_gradient_norm=self._training.max_gradient_norm,
                share_prefixes=self._training.share_prefixes,
            )

        means, _ = train_epochs(self.model.layers, len(samples), step, self._training, rng, on_progress)
        self.optimizer.zero_grad(set_to_none=True)
        return {name: mean for name, mean in means.items() if name != "loss"}  # the same as critic_loss

    def _loss(self, samples: list[Sample], total_samples: int, width: int | None) -> dict[str, torch.Tensor]:
        """The share that these samples have in the mini-batch's loss ("loss", with gradient) and in each figure."""
        model = self.model
        with torch.set_grad_enabled(not model.shared), autocast(model.layers, self._precision):
            state_BH = prompt_end_states(
                model.layers,
                samples,
                recompute_layers=self._training.gradient_checkpointing and not model.shared,
                row_tokens=width,
            )
        parts = value_loss_parts(model.normal_values(state_BH), samples, self.settings.value_clip, total_samples)
        return {"loss": parts["critic_loss"], **parts}
