"""Log-probs and entropies of given responses under a model, and gradient checkpointing of its layers.

The logits of a whole micro-batch can take more memory than the model: 8,192 tokens of 151,936 logits are 5 GB in
float32, and training needs several such tensors at once. Above `max_logits`, the logits of a chunk of tokens exist
while it is computed, and are computed again in the backward pass.

Shape suffixes: B samples, P prompt tokens, T response tokens, L = P + T - 1 input tokens, M response tokens of all
samples, U those that differ in the tokens before them, C tokens of a chunk, N tokens in any layout, H hidden size,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from hgpo.policies.cache import pad_left, pad_right
from hgpo.policies.weights import Precision, autocast
from hgpo.training.batching import Sample, SharePrefixes, distinct, lay_out_trees, micro_batches, pack, split_model
from hgpo.training.batching import row_tokens as tree_width
from hgpo.training.oom import within_memory

Entropy = Literal["none", "figure", "with_gradient"]
MAX_LOGITS = 2**26
"""A quarter of a GiB in float32."""


@dataclass(frozen=True, slots=True)
class PassOptions:
    """How forward and backward passes save memory.

    Attributes:
        max_logits: most logits in memory at a time.
        recompute_layers: layers keep only their inputs, and compute the rest again in the backward pass.
        share_prefixes: read common prefixes of samples once.
    """

    max_logits: int = MAX_LOGITS
    recompute_layers: bool = False
    share_prefixes: SharePrefixes = "auto"


@dataclass(frozen=True, slots=True)
class TokenLogProbs:
    """Per-token log-probs and entropies of B responses, padded on the right to T.

    Attributes:
        log_prob_BT: float32.
        entropy_BT: float32; None if not requested.
        mask_BT: bool: a token of the response.
    """

    log_prob_BT: torch.Tensor
    entropy_BT: torch.Tensor | None
    mask_BT: torch.Tensor

    def rows(self, index_B: torch.Tensor) -> TokenLogProbs:
        """Those of some rows, which may come several times."""
        entropy_BT = None if self.entropy_BT is None else self.entropy_BT[index_B]
        return TokenLogProbs(self.log_prob_BT[index_B], entropy_BT, self.mask_BT[index_B])


def token_log_probs(
    model: Any,
    samples: Sequence[Sample],
    *,
    temperature: float = 1.0,
    precision: Precision = "auto",
    entropy: Entropy = "with_gradient",
    max_logits: int = MAX_LOGITS,
    recompute_layers: bool = False,
    row_tokens: int | None = None,
) -> TokenLogProbs:
    """Score the responses of `samples` in one forward pass of the distinct ones, with gradients where autograd is on.

        log_prob[b, t] = log softmax(logits[b, t] / temperature)[response[b, t]]
        entropy[b, t]  = -Σ_v p_v log p_v,  p = softmax(logits[b, t] / temperature)

    Layout: rows of trees (`hgpo.training.batching`), or a row each: prompts flush right, responses flush left, so
    all responses start in one column. Logits are computed for response positions only. The last response token predicts
    nothing and is left out of the input. Values outside the mask are finite but mean nothing.

    Args:
        model: a causal language model.
        samples: what is computed; no response may be empty.
        temperature: divides the logits.
        precision: arithmetic of the forward pass.
        entropy: whether it is computed, as a metric or for the loss.
        max_logits: most logits in memory at a time; if B · T · V is larger, they are computed in chunks, and
            recomputed in the backward pass.
        recompute_layers: see `hgpo.training.log_probs`.
        row_tokens: width of rows that samples share; None: a row each.
    """
    first, place = distinct(samples)
    chosen = [samples[row] for row in first]
    chunk = max(1, max_logits // model.config.get_text_config().vocab_size)
    config = _LogProbConfig(temperature, precision, entropy, chunk, recompute_layers and torch.is_grad_enabled())
    found = (
        _rows_log_probs(model, chosen, config)
        if row_tokens is None
        else _trees_log_probs(model, chosen, config, row_tokens)
    )
    return found.rows(torch.from_numpy(place).to(model.device))


@dataclass(frozen=True, slots=True)
class _LogProbConfig:
    """Arguments of `token_log_probs`, and how many tokens are computed at a time."""

    temperature: float
    precision: Precision
    entropy: Entropy
    chunk: int
    recompute_layers: bool

    def layers(self, model: Any) -> AbstractContextManager[Any]:
        return recomputed_layers(model) if self.recompute_layers else nullcontext()


def _rows_log_probs(model: Any, samples: Sequence[Sample], config: _LogProbConfig) -> TokenLogProbs:
    """Distinct samples in a row each."""
    inputs, token_BT, mask_BT = lay_out(samples, model.device)
    parts = split_model(model) if token_BT.numel() > config.chunk else None
    if parts is None:
        with autocast(model, config.precision), config.layers(model):
            logits_BTV = model(**inputs, logits_to_keep=token_BT.shape[1]).logits
        return TokenLogProbs(*log_probs_of_logits(logits_BTV, token_BT, config.temperature, config.entropy), mask_BT)
    body, head = parts
    with autocast(model, config.precision):
        with config.layers(model):
            hidden_BTH = body(**inputs).last_hidden_state[:, -token_BT.shape[1] :]
        found_M = _hidden_log_probs(head, hidden_BTH[mask_BT], token_BT[mask_BT], config)
    return _spread(*found_M, mask_BT)


def _trees_log_probs(model: Any, samples: Sequence[Sample], config: _LogProbConfig, row_tokens: int) -> TokenLogProbs:
    """Distinct samples in rows that they share. A token that several have after the same words is computed once."""
    packed = lay_out_trees(samples, pack(samples, row_tokens), model.device)
    response_BT, present_BT = pad_right([sample.response_ids for sample in samples], 0)
    found_U3, place_M = np.unique(
        np.stack([packed.row_M, packed.place_M, response_BT[present_BT]], axis=1), axis=0, return_inverse=True
    )
    row_U, position_U, token_U = torch.from_numpy(found_U3.T).to(model.device)
    parts = split_model(model)
    assert parts is not None, "a model that accepts trees has a separate head"
    body, head = parts
    with autocast(model, config.precision):
        with config.layers(model):
            hidden_UH = body(**packed.inputs).last_hidden_state[row_U, position_U]
        found_U = _hidden_log_probs(head, hidden_UH, token_U, config)
    place_on_device_M = torch.from_numpy(place_M.reshape(-1)).to(model.device)
    log_prob_M, entropy_M = (None if value_U is None else value_U[place_on_device_M] for value_U in found_U)
    assert log_prob_M is not None
    return _spread(log_prob_M, entropy_M, torch.from_numpy(present_BT).to(model.device))


def _hidden_log_probs(
    head: torch.nn.Module, hidden_MH: torch.Tensor, token_M: torch.Tensor, config: _LogProbConfig
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-prob and entropy of each token, in as many chunks as the logits need."""
    if len(token_M) <= config.chunk:
        return log_probs_of_logits(head(hidden_MH), token_M, config.temperature, config.entropy)
    return log_probs_in_chunks(
        head, hidden_MH, token_M, temperature=config.temperature, chunk=config.chunk, entropy=config.entropy
    )


def _spread(log_prob_M: torch.Tensor, entropy_M: torch.Tensor | None, mask_BT: torch.Tensor) -> TokenLogProbs:
    """The tokens where the mask has them, row by row."""
    zero_BT = torch.zeros(mask_BT.shape, device=mask_BT.device)
    entropy_BT = None if entropy_M is None else zero_BT.masked_scatter(mask_BT, entropy_M)
    return TokenLogProbs(zero_BT.masked_scatter(mask_BT, log_prob_M), entropy_BT, mask_BT)


def log_probs_in_chunks(
    head: torch.nn.Module,
    hidden_MH: torch.Tensor,
    token_M: torch.Tensor,
    *,
    temperature: float,
    chunk: int,
    entropy: Entropy,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-prob of each token, float32[M], and the entropy it was drawn with, float32[M] or None.

    Args:
        head: gives logits of hidden states.
        hidden_MH: what the model has made of everything before each token.
        token_M: the tokens.
        temperature: divides the logits.
        chunk: tokens computed at a time.
        entropy: whether it is wanted.
    """
    log_probs, entropies = [], []
    for first in range(0, len(token_M), chunk):
        part = slice(first, first + chunk)
        log_prob_C, entropy_C = checkpoint(
            _chunk_log_probs, head, hidden_MH[part], token_M[part], temperature, entropy, use_reentrant=False
        )
        log_probs.append(log_prob_C)
        entropies.append(entropy_C)
    return torch.cat(log_probs), None if entropy == "none" else torch.cat(entropies)


def log_probs_of_logits(
    logits_NV: torch.Tensor, token_N: torch.Tensor, temperature: float, entropy: Entropy
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-prob of each token and the entropy it was drawn with, both float32 of the tokens' shape.

    Args:
        logits_NV: of the tokens' shape and the vocabulary.
        token_N: the tokens, in any layout.
        temperature: divides the logits.
        entropy: "none" gives None; a "figure" takes no part in gradients.
    """
    log_prob_NV = (logits_NV.float() / temperature).log_softmax(-1)
    log_prob_N = log_prob_NV.gather(-1, token_N.unsqueeze(-1)).squeeze(-1)
    if entropy == "none":
        return log_prob_N, None
    kept_NV = log_prob_NV if entropy == "with_gradient" else log_prob_NV.detach()
    return log_prob_N, -(kept_NV.exp() * kept_NV).sum(-1)


def _chunk_log_probs(
    head: torch.nn.Module, hidden_CH: torch.Tensor, token_C: torch.Tensor, temperature: float, entropy: Entropy
) -> tuple[torch.Tensor, torch.Tensor | None]:
    return log_probs_of_logits(head(hidden_CH), token_C, temperature, entropy)


def lay_out(samples: Sequence[Sample], device: torch.device) -> tuple[dict[str, Any], torch.Tensor, torch.Tensor]:
    """What the model is given, the response tokens [B, T], and which of these are any."""
    prompt_BP, prompt_mask_BP = pad_left([sample.prompt_ids for sample in samples], 0)
    response_BT, mask_BT = pad_right([sample.response_ids for sample in samples], 0)
    ids_BL = torch.from_numpy(np.concatenate([prompt_BP, response_BT[:, :-1]], axis=1)).to(device)
    attend_BL = torch.from_numpy(np.concatenate([prompt_mask_BP, mask_BT[:, :-1]], axis=1)).to(device)
    inputs = {
        "input_ids": ids_BL,
        "attention_mask": attend_BL.long(),
        "position_ids": (attend_BL.cumsum(-1) - 1).clamp(min=0),
        "use_cache": False,
    }
    return inputs, torch.from_numpy(response_BT).to(device), torch.from_numpy(mask_BT).to(device)


def response_log_probs(
    model: Any,
    samples: Sequence[Sample],
    *,
    temperature: float = 1.0,
    precision: Precision = "auto",
    max_tokens: int = 8_192,
    max_logits: int = MAX_LOGITS,
    share_prefixes: SharePrefixes = "auto",
) -> list[NDArray[np.float32]]:
    """Log-probs of each sample's response, without gradients, in batches of at most `max_tokens` padded tokens.

    No response may be empty. Where CUDA runs out of memory the batches get smaller (`hgpo.training.oom`).
    """

    def computed(limit: int) -> list[NDArray[np.float32]]:
        results: list[NDArray[np.float32]] = [np.empty(0, dtype=np.float32)] * len(samples)
        width = tree_width(model, share_prefixes, samples, limit)
        for rows in micro_batches(samples, limit, width):
            with torch.no_grad():
                found = token_log_probs(
                    model,
                    [samples[row] for row in rows],
                    temperature=temperature,
                    precision=precision,
                    entropy="none",
                    max_logits=max_logits,
                    row_tokens=width,
                )
            log_prob_BT = found.log_prob_BT.cpu().numpy()
            for row, log_prob_T in zip(rows, log_prob_BT, strict=True):
                results[row] = log_prob_T[: len(samples[row].response_ids)].copy()
        return results

    return within_memory(model, samples, max_tokens, computed, share_prefixes=share_prefixes)


@contextmanager
def recomputed_layers(model: Any) -> Iterator[None]:
    """In the block, forward passes with gradients store only the inputs of layers (gradient checkpointing).

    transformers does so only in training mode, which would switch dropout on. Here only the layers' own flags are set;
    their submodules stay in evaluation mode. The flags are reset after the block, because a layer that recomputes
    accepts no key-value cache, which sampling needs.

    Raises:
        ValueError: the model has no layers that can be recomputed.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ValueError(
            f"training.gradient_checkpointing: {type(model).__name__} has no layers that can be recomputed; set it to "
            "false, and lower training.micro_batch_tokens instead"
        )
    if not layers[0].gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    for layer in layers:
        layer.training = True  # not recursive, unlike layer.train()
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False
