"""Supervised warm start: imitate demonstrations until success is in a target window.

Reinforcement learning from sparse rewards needs a start model that sometimes succeeds and sometimes fails. A model that
already follows the prompt format needs no warm start; a tiny model trained from scratch does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np
import torch

from hgpo.config import TrainingSettings, WarmStartSettings
from hgpo.messages import Conversation
from hgpo.policies.language_model import LanguageModel
from hgpo.policies.weights import adapter_dropout
from hgpo.training.batching import Sample
from hgpo.training.log_probs import token_log_probs
from hgpo.training.losses import token_mean
from hgpo.training.update import gradient_step

_BATCHES_SORTED_TOGETHER = 16


@dataclass(frozen=True, slots=True)
class Probe:
    """One evaluation during the warm start: after `update` updates, with the mean loss since the last evaluation."""

    update: int
    loss: float
    success: float


@dataclass(frozen=True, slots=True)
class WarmStartReport:
    """The result of a warm start. `probes` contains every evaluation in order of time, also rolled-back ones."""

    stopped: Literal["target", "overshoot", "budget"]
    success: float  # of the model that was kept
    update: int  # number of updates of the kept model
    probes: tuple[Probe, ...]


@dataclass(frozen=True, slots=True)
class _Snapshot:
    update: int
    success: float
    parameters: dict[str, torch.Tensor]
    moments: list[dict[str, torch.Tensor]]


class WarmStart:
    """Trains `language_model.model` in place on demonstrations.

    The loss is the cross-entropy of response tokens and end token, averaged over tokens, in the model's precision.
    Training stops when success is in the target window ("target"). If success jumps over the window, model and
    optimiser are reset to the previous probe and continue with half as many updates between probes. After "overshoot"
    (a single update jumps over the window) and "budget" (`max_updates` is reached), the closest model is kept.

    Args:
        language_model: the trained model.
        settings: target window, learning rate, batch size.
        rng: draws the batches.
        training: settings that limit the memory of forward and backward passes.
    """

    def __init__(
        self,
        language_model: LanguageModel,
        settings: WarmStartSettings,
        rng: np.random.Generator,
        training: TrainingSettings | None = None,
    ) -> None:
        self._language_model = language_model
        self._model = language_model.model
        self._training = training or TrainingSettings()
        self._settings = settings
        self._trained = {name: weight for name, weight in self._model.named_parameters() if weight.requires_grad}
        self._rng = rng
        self._optimizer = torch.optim.AdamW(
            self._trained.values(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self._update = 0
        self._updates_taken = 0

    def run(
        self,
        demonstrations: Sequence[tuple[Conversation, str]],
        evaluate: Callable[[], float],
        on_update: Callable[[int, float], None] = lambda taken, loss: None,
        on_rollback: Callable[[float, int, int], None] = lambda success, update, interval: None,
    ) -> WarmStartReport:
        """Imitate (prompt, response) pairs.

        Args:
            demonstrations: the pairs.
            evaluate: returns the model's success rate in [0, 1] now; called at least every `evaluate_every` updates.
            on_update: called after every update with the number of updates, rolled-back ones included, and the loss.
            on_rollback: called after every rollback, with the success rate that was too high, the update that the
                model is at again, and the number of updates to the next evaluation.

        Raises:
            ValueError: there are no demonstrations, or one exceeds the model's limits or the memory.
            FloatingPointError: the loss or the gradient is not finite; the parameters keep their values.
        """
        settings = self._settings
        samples = encode_demonstrations(self._language_model, demonstrations)
        batches = _endless_batches(samples, settings.batch_size, self._rng)
        stopped: Literal["target", "overshoot", "budget"] = "budget"
        interval = settings.evaluate_every
        below = closest = self._snapshot(success=float("-inf"))
        probes: list[Probe] = []
        while self._updates_taken < settings.max_updates:
            loss = self._train(batches, min(interval, settings.max_updates - self._updates_taken), on_update)
            success = evaluate()
            probes.append(Probe(self._update, loss, success))
            closer, too_low = self._distance(success) <= self._distance(closest.success), success < settings.target_low
            here = self._snapshot(success) if closer or too_low else closest  # one copy for both, they are large
            closest = here if closer else closest
            if self._distance(success) == 0:
                stopped = "target"
                break
            if too_low:
                below = here
            elif self._update - below.update > 1:
                self._restore(below)
                interval = max(1, interval // 2)
                on_rollback(success, below.update, interval)
            else:
                stopped = "overshoot"
                break
        self._restore(closest)
        self._optimizer.zero_grad(set_to_none=True)
        return WarmStartReport(stopped, closest.success, closest.update, tuple(probes))

    def _train(self, batches: Iterator[list[Sample]], updates: int, on_update: Callable[[int, float], None]) -> float:
        losses = []
        for samples in islice(batches, updates):
            with adapter_dropout(self._model, self._rng):
                losses.append(self._train_batch(samples))
            on_update(self._updates_taken, losses[-1])
        return float(np.mean(losses))

    def _train_batch(self, samples: list[Sample]) -> float:
        settings = self._settings
        self._update += 1
        self._updates_taken += 1
        for group in self._optimizer.param_groups:
            group["lr"] = settings.learning_rate * min(1.0, self._update / (settings.warmup_updates + 1))
        total_tokens = sum(len(sample.response_ids) for sample in samples)
        figures = gradient_step(
            self._model,
            {"gradient_norm": self._optimizer},
            samples,
            lambda rows, width: {"loss": self._loss([samples[row] for row in rows], total_tokens, width)},
            micro_batch_tokens=settings.micro_batch_tokens,
            max_gradient_norm=settings.max_gradient_norm,
            share_prefixes=self._training.share_prefixes,
            setting="warm_start.micro_batch_tokens",
        )
        return figures["loss"]

    def _loss(self, samples: list[Sample], total_tokens: int, width: int | None) -> torch.Tensor:
        """The share that these samples have in the batch's loss, with gradient."""
        found = token_log_probs(
            self._model,
            samples,
            precision=self._language_model.limits.precision,
            entropy="none",
            max_logits=self._training.max_logits,
            recompute_layers=self._training.gradient_checkpointing,
            row_tokens=width,
        )
        return token_mean(-found.log_prob_BT, found.mask_BT, total_tokens)

    def _distance(self, success: float) -> float:
        return max(self._settings.target_low - success, success - self._settings.target_high, 0.0)

    def _snapshot(self, success: float) -> _Snapshot:
        return _Snapshot(
            update=self._update,
            success=success,
            parameters={name: value.detach().clone() for name, value in self._trained.items()},
            moments=[
                {key: value.clone() for key, value in self._optimizer.state.get(parameter, {}).items()}
                for parameter in self._trained.values()
            ],
        )

    @torch.no_grad()
    def _restore(self, snapshot: _Snapshot) -> None:
        self._update = snapshot.update
        for name, parameter in self._trained.items():
            parameter.copy_(snapshot.parameters[name])
        self._optimizer.state.clear()
        for parameter, moments in zip(self._trained.values(), snapshot.moments, strict=True):
            if moments:
                self._optimizer.state[parameter] = {key: value.clone() for key, value in moments.items()}


def encode_demonstrations(
    language_model: LanguageModel, demonstrations: Sequence[tuple[Conversation, str]]
) -> list[Sample]:
    """Demonstrations as samples: the prompt through the chat template, the response followed by the end token.

    Raises:
        ValueError: there are no demonstrations, or one exceeds the model's limits.
    """
    if not demonstrations:
        raise ValueError("there are no demonstrations to learn from")
    limits = language_model.limits
    prompts = language_model.encoder.encode_prompts([prompt for prompt, _ in demonstrations])
    responses = language_model.encode_responses([response for _, response in demonstrations])
    for kind, encoded, limit in (
        ("prompt", prompts, limits.prompt_tokens),
        ("response", responses, limits.response_tokens),
    ):
        if (longest := max(map(len, encoded))) > limit:
            raise ValueError(
                f"a demonstration takes {longest} {kind} tokens: set policy.max_{kind}_tokens ({limit}) to at least "
                f"{longest}"
            )
    return [
        Sample(prompt, response, np.zeros(len(response), dtype=np.float32), 0.0)
        for prompt, response in zip(prompts, responses, strict=True)
    ]


def _endless_batches(samples: Sequence[Sample], batch_size: int, rng: np.random.Generator) -> Iterator[list[Sample]]:
    """Batches of similar length, every sample once per pass, in random order."""
    lengths_N = np.asarray([sample.token_count for sample in samples])
    chunk_size = batch_size * _BATCHES_SORTED_TOGETHER
    while True:
        order_N = rng.permutation(len(lengths_N))
        for start in range(0, len(order_N), chunk_size):
            chunk = order_N[start : start + chunk_size]
            chunk = chunk[np.argsort(lengths_N[chunk], kind="stable")]
            batches = [chunk[first : first + batch_size] for first in range(0, len(chunk), batch_size)]
            for index in rng.permutation(len(batches)):
                yield [samples[row] for row in batches[index]]
