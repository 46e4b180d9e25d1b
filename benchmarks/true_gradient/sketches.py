"""Sketches of gradients: few numbers per step whose inner products are those of the gradients, up to a small error.

A sketch adds the entries of a gradient up in W buckets, with random signs:

    s[b] = sum of sign_p * g_p over the parameters p with bucket(p) = b,    E[s . s'] = g . g'

for two gradients g, g', with a standard deviation of about |g| |g'| / sqrt(W) over the signs. Here the parameters of
one block of W get different buckets: a block is added with a random shift.

Shapes: B samples, L tokens of a row, T response tokens, W buckets, P entries of one parameter. Source: Charikar, Chen
and Farach-Colton, Finding frequent items in data streams, 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hgpo.policies.weights import autocast
from hgpo.training.batching import Sample, distinct, micro_batches, split_model
from hgpo.training.log_probs import lay_out, log_probs_of_logits

WIDTH = 8192


@dataclass(frozen=True, slots=True)
class _Buckets:
    """Signs and shifts of one parameter's entries: float32[P], and one shift per block of W entries."""

    sign_P: torch.Tensor
    shifts: list[int]


class Sketcher:
    """Sketches the gradients of a model.

    Args:
        model: a causal language model.
        trained: whether a parameter of this name is part of the gradient.
        width: W. Sketches with equal model, `trained` and width can be compared.
        micro_batch_tokens: most tokens (padding included) of a forward and backward pass; changes time, not results.

    Raises:
        ValueError: a chosen parameter is not the weight or bias of a linear layer, an embedding or an RMS norm.
    """

    def __init__(
        self,
        model: Any,
        *,
        trained: Callable[[str], bool] = lambda name: True,
        width: int = WIDTH,
        micro_batch_tokens: int = 4096,
    ) -> None:
        self.model, self.width, self._micro_batch_tokens = model, width, micro_batch_tokens
        parts = split_model(model)
        if parts is None:
            raise ValueError(f"the logits of {type(model).__name__} are not its head applied to its hidden states")
        self._body, self._head = parts
        draws = torch.Generator().manual_seed(0)
        self._buckets: dict[int, _Buckets] = {}
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(trained(name))
            if trained(name):
                self._buckets[id(parameter)] = _draw_buckets(parameter.numel(), width, draws)
        self._layers = [layer for layer in model.modules() if self._parameters(layer)]
        covered = {id(parameter) for layer in self._layers for parameter in self._parameters(layer).values()}
        for name, parameter in model.named_parameters():
            if id(parameter) in self._buckets and id(parameter) not in covered:
                raise ValueError(f"no rule for the gradient of {name} of each sample; leave it out with `trained`")
        self._sketch_BW = torch.empty(0)

    def of_samples(self, samples: Sequence[Sample], temperature: float) -> NDArray[np.float32]:
        """The sketch of the gradient of each response's log-prob, float32[B, W]: a sum over its tokens."""
        first, place_B = distinct(samples)
        chosen = [samples[row] for row in first]
        found = np.empty((len(chosen), self.width), dtype=np.float32)
        with self._watched():
            for rows in micro_batches(chosen, self._micro_batch_tokens):
                found[rows] = self._of_batch([chosen[row] for row in rows], temperature)
        return found[place_B]

    def _of_batch(self, samples: Sequence[Sample], temperature: float) -> NDArray[np.float32]:
        inputs, token_BT, mask_BT = lay_out(samples, self.model.device)
        self._sketch_BW = torch.zeros(len(samples), self.width)
        with autocast(self.model, "auto"):  # as the policy computes when it plays
            hidden_BTH = self._body(**inputs).last_hidden_state[:, -token_BT.shape[1] :]
            log_prob_BT, _ = log_probs_of_logits(self._head(hidden_BTH), token_BT, temperature, "none")
        (log_prob_BT * mask_BT).sum().backward()
        return self._sketch_BW.numpy()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        hooks = [layer.register_forward_hook(self._watch) for layer in self._layers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            self.model.zero_grad(set_to_none=True)

    def _watch(self, layer: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        given, result = inputs[0].detach(), output.detach()  # under autocast in bfloat16
        if given.is_floating_point():  # not an embedding's ids
            given, result = given.float(), result.float()

        def add(gradient: torch.Tensor) -> None:
            for name, parameter in self._parameters(layer).items():
                entries_BP = _of_each_sample(layer, name, given, result, gradient.float())
                _add(self._sketch_BW, entries_BP, self._buckets[id(parameter)])

        if output.requires_grad:
            output.register_hook(add)

    def _parameters(self, layer: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
        """The layer's own parameters that are part of the gradient and for which there is a rule, by name."""
        if not (isinstance(layer, torch.nn.Linear | torch.nn.Embedding) or type(layer).__name__.endswith("RMSNorm")):
            return {}
        own = dict(layer.named_parameters(recurse=False))
        return {name: parameter for name, parameter in own.items() if id(parameter) in self._buckets}


def _of_each_sample(
    layer: torch.nn.Module, name: str, given: torch.Tensor, result: torch.Tensor, gradient: torch.Tensor
) -> torch.Tensor:
    """Each sample's gradient of one parameter of a layer, [B, P]; `gradient` is that of the layer's output."""
    batch = len(gradient)
    if isinstance(layer, torch.nn.Embedding):
        size, hidden = layer.weight.shape
        place = given + size * torch.arange(batch, device=given.device)[:, None]
        dense = torch.zeros(batch * size, hidden)
        return dense.index_add_(0, place.reshape(-1), gradient.reshape(-1, hidden)).reshape(batch, -1)
    if name == "bias":
        return gradient.reshape(batch, -1, gradient.shape[-1]).sum(1)
    if isinstance(layer, torch.nn.Linear):
        return torch.bmm(gradient.transpose(1, 2), given).reshape(batch, -1)
    scaled = gradient * result / layer.weight.detach()  # an RMS norm's output is its weight times the normal input
    return scaled.reshape(batch, -1, scaled.shape[-1]).sum(1)


def _draw_buckets(entries: int, width: int, draws: torch.Generator) -> _Buckets:
    sign_P = torch.randint(0, 2, (entries,), generator=draws).float().mul_(2).sub_(1)
    blocks = -(-entries // width)
    return _Buckets(sign_P, torch.randint(0, width, (blocks,), generator=draws).tolist())


def _add(sketch_BW: torch.Tensor, entries_BP: torch.Tensor, buckets: _Buckets) -> None:
    """Add the entries, with their signs, block by block; a block that passes the last bucket goes on at the first."""
    width = sketch_BW.shape[1]
    signed_BP = entries_BP * buckets.sign_P
    for block, shift in enumerate(buckets.shifts):
        part = signed_BP[:, block * width : (block + 1) * width]
        before = min(part.shape[1], width - shift)
        sketch_BW[:, shift : shift + before] += part[:, :before]
        sketch_BW[:, : part.shape[1] - before] += part[:, before:]
