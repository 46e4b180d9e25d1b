"""One policy update: a few AdamW steps on a batch of samples.

Shape suffixes: B rows of a micro-batch, T response tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, cos, isfinite, pi
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hgpo.config import TrainingSettings
from hgpo.policies.weights import Precision, adapter_dropout, adapter_off, has_adapter
from hgpo.training.batching import Sample, SharePrefixes
from hgpo.training.log_probs import TokenLogProbs, response_log_probs, times_lowered, token_log_probs, within_memory
from hgpo.training.losses import (
    LOSSES,
    Clip,
    ResponseTokens,
    TokenWeights,
    approximate_kl,
    importance_weights,
    k3_divergence,
    sampler_mismatch,
    token_mean,
    token_weights,
    value_loss_parts,
    weighted_mean,
)

Metrics = dict[str, float]

_TERMS = ("policy_loss", "kl", "entropy")  # averaged like the loss; all other metrics are means over tokens


@dataclass(frozen=True, slots=True)
class Sampling:
    """Properties of the sampling that the update needs.

    Attributes:
        temperature: the sampling temperature.
        max_response_tokens: length at which a response was cut.
        recompute_log_probs: compute the old log-probs with the trained model, and correct for the sampler's difference.
        precision: arithmetic of the forward passes, as while sampling.
    """

    temperature: float = 1.0
    max_response_tokens: int = 512
    recompute_log_probs: bool = False
    precision: Precision = "auto"


@dataclass(frozen=True, slots=True)
class SharedCritic:
    """A critic's head on the policy's layers.

    Attributes:
        normal_values: hidden states [B, H] at the ends of prompts -> normalised values [B].
        optimizer: optimiser of the head.
        loss_weight: weight of the value loss in the loss.
        value_clip: see `hgpo.training.losses.value_loss`.
    """

    normal_values: Callable[[torch.Tensor], torch.Tensor]
    optimizer: torch.optim.Optimizer
    loss_weight: float
    value_clip: float | None


@dataclass(frozen=True, slots=True)
class Trained:
    """The model of an update with its optimiser and reference.

    Attributes:
        model: a causal language model.
        optimizer: see `make_optimizer`.
        reference: the frozen model of the KL penalty; `model` itself if it has an adapter, which is switched off
            for the reference; None: no penalty.
        critic: a critic that shares the model's layers; None: there is none.
    """

    model: Any
    optimizer: torch.optim.Optimizer
    reference: Any | None = None
    critic: SharedCritic | None = None

    @property
    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """The optimisers of the model and of a shared critic's head, by the names of their gradient norms."""
        of_model = {"gradient_norm": self.optimizer}
        return of_model if self.critic is None else of_model | {"critic_gradient_norm": self.critic.optimizer}


@dataclass(frozen=True, slots=True)
class _Target:
    """A sample with its tokens' old log-probs, reference log-probs and importance weights (None: not used)."""

    sample: Sample
    old: NDArray[np.float32]
    reference: NDArray[np.float32] | None
    weight: NDArray[np.float32] | None


@dataclass(frozen=True, slots=True)
class _MiniBatch:
    """The samples of one optimiser step.

    Attributes:
        targets: the samples.
        weights: weights of their tokens in the loss.
        tokens: number of response tokens.
    """

    targets: list[_Target]
    weights: TokenWeights
    tokens: int

    @classmethod
    def of(cls, targets: list[_Target], settings: TrainingSettings, sampling: Sampling) -> _MiniBatch:
        length_B = np.array([len(target.sample.response_ids) for target in targets], dtype=np.int64)
        weights = token_weights(
            length_B,
            settings.loss_aggregation,
            max_response_tokens=sampling.max_response_tokens,
            micro_batch_rows=settings.loss_micro_batch_rows,
        )
        return cls(targets, weights, int(length_B.sum()))


def make_optimizer(model: Any, settings: TrainingSettings) -> torch.optim.AdamW:
    """AdamW over all trainable parameters.

    Raises:
        ValueError: a trainable parameter is not float32. At the learning rates used here, bfloat16 weights round every
            step away; keep them float32 and set `precision` to "bfloat16" for speed.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.dtype != torch.float32:
            raise ValueError(
                f"{name} is {parameter.dtype}: load the model with dtype float32 and set policy.precision = 'bfloat16'"
            )
    return torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)


def set_learning_rate(optimizer: torch.optim.Optimizer, settings: TrainingSettings, update: int) -> None:
    """Set the rate of update 1, 2, …: it rises to `learning_rate` at update warmup_updates + 1, then stays or falls.

    AdamW divides a gradient by the root of a running mean of squared gradients. While that mean has few terms, every
    weight moves by about the whole learning rate, in a noisy direction. A falling rate reduces the noise of the last
    batches: "cosine" is learning_rate · (1 + cos(π · p)) / 2, where p in [0, 1) is the finished share of the updates
    after the warm-up, as in the schedulers of transformers and verl.
    """
    warmup = settings.warmup_updates
    rate = settings.learning_rate * min(1.0, update / (warmup + 1))
    if settings.learning_rate_schedule == "cosine" and update > warmup:
        rate *= (1 + cos(pi * (update - 1 - warmup) / (settings.updates - warmup))) / 2
    for group in optimizer.param_groups:
        group["lr"] = rate


def update_policy(
    trained: Trained,
    samples: Sequence[Sample],
    settings: TrainingSettings,
    rng: np.random.Generator,
    sampling: Sampling = Sampling(),
    *,
    on_progress: Callable[[int, int], object] = lambda done, total: None,
) -> Metrics:
    """Train the model in place on `samples`, each `settings.epochs` times.

    `on_progress` is called after every mini-batch with the number of samples trained on so far, and in total.

    `rng` shuffles the samples; they are split into mini-batches of at most `mini_batch_size`, as equal as possible,
    with one optimiser step each. There are ceil(samples / mini_batch_size) of them, also if samples are skipped for
    their advantage, so that all estimators take the same number of steps on the same samples. Gradients are summed over
    micro-batches, so the micro-batch size affects only rounding. Dropout is off, except an adapter's own, so that the
    ratio starts at 1. With recomputed log-probs, the policy loss of each token is weighted by `importance_weights`.

    Samples with an empty response are left out and counted in `empty_responses`. `skip_zero_advantage` leaves out
    samples with advantage 0, `skip_cut_responses` samples whose response was cut. If no sample is left, nothing is
    trained, `samples` is 0 and there are no means.

    Returns:
        Means over the optimiser steps: loss, policy_loss, kl, entropy, clip_fraction, dual_clip_fraction,
        approximate_kl, gradient_norm (before clipping), and with a shared critic critic_loss, critic_clip_fraction,
        critic_gradient_norm; with recomputed log-probs the figures of `sampler_mismatch`; the counts samples, tokens,
        empty_responses, mini_batches; and out_of_memory, how often micro-batches had to be made smaller
        (`hgpo.training.log_probs.within_memory`), if they had to.

    Raises:
        FloatingPointError: the loss or a gradient is not finite. The parameters keep the values they had before that
            mini-batch.
        ValueError: `kl_coefficient` > 0 without a reference model, all responses are empty, or a single sample needs
            more memory than is available.
    """
    model, reference = trained.model, trained.reference
    is_itself = reference is model and not has_adapter(model)
    if settings.kl_coefficient > 0 and (reference is None or is_itself):
        raise ValueError(f"kl_coefficient {settings.kl_coefficient} needs a reference model; set it to 0 to do without")
    answered = [sample for sample in samples if len(sample.response_ids)]
    if not answered:
        raise ValueError("there is no sample with a non-empty response to train on")
    counted = [sample for sample in answered if not (settings.skip_cut_responses and sample.cut)]
    kept = [sample for sample in counted if not (settings.skip_zero_advantage and sample.advantage == 0)]
    model.eval()
    lowered_before = times_lowered(model, reference)
    targets = _targets(trained, kept, settings, sampling)

    def step(rows: NDArray[np.int64]) -> Metrics:
        batch = _MiniBatch.of([targets[row] for row in rows], settings, sampling)
        return gradient_step(
            model,
            trained.optimizers,
            [target.sample for target in batch.targets],
            lambda part, width: _micro_batch_loss(trained, batch, part, settings, sampling, width),
            micro_batch_tokens=settings.micro_batch_tokens,
            max_gradient_norm=settings.max_gradient_norm,
            share_prefixes=settings.share_prefixes,
        )

    means, count = train_epochs(model, len(kept), step, settings, rng, on_progress, counted=len(counted))
    mismatch = _mismatch(targets, settings.importance_cap) if sampling.recompute_log_probs else {}
    counts = {
        "samples": len(kept),
        "tokens": sum(len(sample.response_ids) for sample in kept),
        "empty_responses": len(samples) - len(answered),
        "mini_batches": count,
    }
    _reset_gradients(trained.optimizers.values())  # sampling follows, which can use the memory
    lowered = times_lowered(model, reference) - lowered_before
    return means | mismatch | counts | ({"out_of_memory": lowered} if lowered else {})


def train_epochs(
    model: Any,
    samples: int,
    step: Callable[[NDArray[np.int64]], Metrics],
    settings: TrainingSettings,
    rng: np.random.Generator,
    on_progress: Callable[[int, int], object],
    *,
    counted: int = 0,
) -> tuple[Metrics, int]:
    """Call `step` with the indices of every mini-batch, in random order, `settings.epochs` times.

    `rng` shuffles the samples and draws the dropout of the model's adapter; `counted` is that of `mini_batches`.
    Returns the means of the figures that the steps return, and the number of steps.
    """
    totals: defaultdict[str, float] = defaultdict(float)
    count = done = 0
    for _ in range(settings.epochs):
        for rows in mini_batches(rng.permutation(samples), settings.mini_batch_size, counted):
            with adapter_dropout(model, rng):
                figures = step(rows)
            count += 1
            done += len(rows)
            on_progress(done, samples * settings.epochs)
            for name, value in figures.items():
                totals[name] += value
    return {name: total / count for name, total in totals.items()}, count


def mini_batches(order_N: NDArray[np.int64], size: int, counted: int = 0) -> list[NDArray[np.int64]]:
    """Split `order_N` into ceil(max(N, `counted`) / `size`) equal parts, at most N; no part if it is empty."""
    parts = ceil(max(len(order_N), counted) / size)
    return np.array_split(order_N, min(parts, len(order_N))) if len(order_N) else []


def _targets(trained: Trained, samples: list[Sample], settings: TrainingSettings, sampling: Sampling) -> list[_Target]:
    """Everything that stays fixed during the update, computed once per sample."""

    def log_probs_under(model: Any) -> list[NDArray[np.float32]]:
        return response_log_probs(
            model,
            samples,
            temperature=sampling.temperature,
            precision=sampling.precision,
            max_tokens=settings.micro_batch_tokens,
            max_logits=settings.max_logits,
            share_prefixes=settings.share_prefixes,
        )

    sampled, cap = [sample.log_probs for sample in samples], settings.importance_cap
    absent = [None] * len(samples)
    old = log_probs_under(trained.model) if sampling.recompute_log_probs else sampled
    with adapter_off(trained.reference):
        reference = log_probs_under(trained.reference) if settings.kl_coefficient > 0 else absent
    corrected = sampling.recompute_log_probs and cap is not None
    weight = [importance_weights(*pair, cap) for pair in zip(old, sampled, strict=True)] if corrected else absent
    return [_Target(*columns) for columns in zip(samples, old, reference, weight, strict=True)]


def _mismatch(targets: list[_Target], cap: float | None) -> Metrics:
    """`sampler_mismatch` over all tokens of the update."""
    nothing = np.empty(0, dtype=np.float32)
    old_N = np.concatenate([nothing, *(target.old for target in targets)])
    sampled_N = np.concatenate([nothing, *(target.sample.log_probs for target in targets)])
    return sampler_mismatch(old_N, sampled_N, cap)


def gradient_step(
    model: Any,
    optimizers: Mapping[str, torch.optim.Optimizer],
    samples: Sequence[Sample],
    loss_of: Callable[[NDArray[np.int64], int | None], dict[str, torch.Tensor]],
    *,
    micro_batch_tokens: int,
    max_gradient_norm: float,
    share_prefixes: SharePrefixes,
    setting: str = "training.micro_batch_tokens",
) -> Metrics:
    """Accumulate the gradient of one mini-batch over micro-batches, check it, and take one optimiser step.

    `optimizers` are by the names of their gradient norms. `loss_of` takes the indices of a micro-batch and the width of
    shared rows (or None), and returns its share in the mini-batch's loss ("loss", with gradient) and in each figure.
    Returns the figures of the mini-batch and the gradient norms before clipping.

    Raises:
        FloatingPointError: the loss or a gradient is not finite; the parameters keep their values.
    """

    def accumulate(micro_batches: list[NDArray[np.int64]], width: int | None) -> Metrics:
        totals: defaultdict[str, float] = defaultdict(float)
        _reset_gradients(optimizers.values())
        for rows in micro_batches:
            parts = loss_of(rows, width)
            figures = _numbers(parts)
            if not isfinite(figures["loss"]):
                _reset_gradients(optimizers.values())
                raise FloatingPointError(
                    f"the loss is {figures['loss']}: the parameters were not changed ({figures}). "
                    "Lower the learning rate (critic.learning_rate if critic_loss is not finite), or resume from an "
                    "earlier checkpoint"
                )
            parts["loss"].backward()  # type: ignore[no-untyped-call]
            for name, value in figures.items():
                totals[name] += value
        return dict(totals)

    figures = within_memory(model, samples, micro_batch_tokens, accumulate, setting, share_prefixes)
    for name, optimizer in optimizers.items():
        figures[name] = _clip_gradients(optimizer, max_gradient_norm)
    for optimizer in optimizers.values():
        optimizer.step()
    return figures


def _reset_gradients(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)


def _micro_batch_loss(
    trained: Trained,
    batch: _MiniBatch,
    rows: NDArray[np.int64],
    settings: TrainingSettings,
    sampling: Sampling,
    width: int | None,
) -> dict[str, torch.Tensor]:
    """The share that these rows have in the mini-batch's loss ("loss", with gradient) and in each metric."""
    targets = [batch.targets[row] for row in rows]
    samples = [target.sample for target in targets]
    found = token_log_probs(
        trained.model,
        samples,
        temperature=sampling.temperature,
        precision=sampling.precision,
        entropy="with_gradient" if settings.entropy_coefficient else "figure",
        max_logits=settings.max_logits,
        recompute_layers=settings.gradient_checkpointing,
        row_tokens=width,
        prompt_ends=trained.critic is not None,
    )
    weight_B = found.log_prob_BT.new_tensor(batch.weights.weight_B[rows])
    parts = {
        name: weighted_mean(value_BT, found.mask_BT, weight_B, batch.weights.divisor)
        if name in _TERMS
        else token_mean(value_BT, found.mask_BT, batch.tokens)
        for name, value_BT in _token_values(targets, found, settings).items()
    }
    parts["loss"] = parts["policy_loss"] - settings.entropy_coefficient * parts["entropy"]
    if "kl" in parts:
        parts["loss"] = parts["loss"] + settings.kl_coefficient * parts["kl"]
    if trained.critic is not None:
        assert found.prompt_end_BH is not None, "it was asked for"
        value_B = trained.critic.normal_values(found.prompt_end_BH)
        parts |= value_loss_parts(value_B, samples, trained.critic.value_clip, len(batch.targets))
        parts["loss"] = parts["loss"] + trained.critic.loss_weight * parts["critic_loss"]
    return parts


def _token_values(
    targets: Sequence[_Target], found: TokenLogProbs, settings: TrainingSettings
) -> dict[str, torch.Tensor]:
    """The policy loss and the metrics of every token, [B, T]; "kl" only with reference log-probs."""
    log_prob_BT = found.log_prob_BT
    old_log_prob_BT = _stack([target.old for target in targets], log_prob_BT)
    advantage_B1 = log_prob_BT.new_tensor([[target.sample.advantage] for target in targets])
    policy = LOSSES[settings.loss](
        ResponseTokens(log_prob_BT, old_log_prob_BT, advantage_B1, found.mask_BT),
        Clip(settings.clip_low, settings.clip_high, settings.dual_clip),
    )
    assert found.entropy_BT is not None, "it was asked for"
    weights = [target.weight for target in targets if target.weight is not None]
    values_BT = {
        "policy_loss": policy.loss_BT * _stack(weights, log_prob_BT) if weights else policy.loss_BT,
        "entropy": found.entropy_BT,
        "clip_fraction": policy.clipped_BT.float(),
        "dual_clip_fraction": policy.dual_clipped_BT.float(),
        "approximate_kl": approximate_kl(log_prob_BT, old_log_prob_BT),
    }
    references = [target.reference for target in targets if target.reference is not None]
    if references:
        values_BT["kl"] = k3_divergence(log_prob_BT, _stack(references, log_prob_BT))
    return values_BT


def _numbers(parts: dict[str, torch.Tensor]) -> Metrics:
    """Copy all values from the device at once, since each copy makes the host wait."""
    values = torch.stack([value.detach() for value in parts.values()]).cpu().tolist()
    return dict(zip(parts, values, strict=True))


def _stack(rows: list[NDArray[np.float32]], like_BT: torch.Tensor) -> torch.Tensor:
    """Rows padded with zeros to the shape of `like_BT`, on its device."""
    padded_BT = np.zeros(tuple(like_BT.shape), dtype=np.float32)
    for index, row in enumerate(rows):
        padded_BT[index, : len(row)] = row
    return torch.from_numpy(padded_BT).to(like_BT.device)


def _clip_gradients(optimizer: torch.optim.Optimizer, max_norm: float) -> float:
    """Scale the gradients to a norm of at most `max_norm`; return the norm before. FloatingPointError: not finite."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if not torch.isfinite(norm):
        optimizer.zero_grad(set_to_none=True)
        raise FloatingPointError(f"the gradient norm is {norm.item()}: the parameters were not changed")
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm.item()
