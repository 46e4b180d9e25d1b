"""Log-probs and entropies of given responses under a model, within the available memory.

The logits of a whole micro-batch can take more memory than the model: 8,192 tokens of 151,936 logits are 5 GB in
float32, and training needs several such tensors at once. If there are more than `max_logits`, they are computed in
chunks of tokens, one chunk at a time, and computed again in the backward pass. If memory runs out nevertheless, the
work runs again in smaller micro-batches.

Shape suffixes: B samples, P prompt tokens, T response tokens, L = P + T - 1 input tokens, M response tokens of all
samples, U distinct pairs of a response token and its prefix, C tokens of a chunk, N tokens in any layout, H hidden
size, V vocabulary.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from hgpo.policies.cache import last_columns, pad_left, pad_right
from hgpo.policies.weights import Precision, autocast
from hgpo.training.batching import (
    PackedTrees,
    Sample,
    SharePrefixes,
    distinct,
    lay_out_trees,
    micro_batches,
    pack,
    padded_tokens,
    split_model,
)
from hgpo.training.batching import row_tokens as tree_width

logger = logging.getLogger(__name__)
Done = TypeVar("Done")
_HELP = (
    "shorten policy.max_prompt_tokens or policy.max_response_tokens, set training.gradient_checkpointing = true, lower "
    "training.max_logits, or train on a device with more memory"
)
Entropy = Literal["none", "figure", "with_gradient"]
MAX_LOGITS = 2**26
"""Default of `max_logits`: a quarter of a GiB in float32."""


@dataclass(frozen=True, slots=True)
class TokenLogProbs:
    """Per-token log-probs and entropies of B responses, padded on the right to T.

    Attributes:
        log_prob_BT: float32.
        entropy_BT: float32; None if not requested.
        mask_BT: bool: a token of the response.
        prompt_end_BH: hidden state at the last token of each prompt; None if not requested.
    """

    log_prob_BT: torch.Tensor
    entropy_BT: torch.Tensor | None
    mask_BT: torch.Tensor
    prompt_end_BH: torch.Tensor | None = None

    def rows(self, index_B: torch.Tensor) -> TokenLogProbs:
        """The results of the rows `index_B`, which may contain a row several times."""
        entropy_BT = None if self.entropy_BT is None else self.entropy_BT[index_B]
        prompt_end_BH = None if self.prompt_end_BH is None else self.prompt_end_BH[index_B]
        return TokenLogProbs(self.log_prob_BT[index_B], entropy_BT, self.mask_BT[index_B], prompt_end_BH)


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
    prompt_ends: bool = False,
) -> TokenLogProbs:
    """Log-probs and entropies of responses from one forward pass over the distinct samples, with gradients if enabled.

        log_prob[b, t] = log softmax(logits[b, t] / temperature)[response[b, t]]
        entropy[b, t]  = -Σ_v p_v log p_v,  p = softmax(logits[b, t] / temperature)

    Layout: rows of trees (`hgpo.training.batching`), or one row per sample: prompts flush right, responses flush left,
    so all responses start in one column. Logits are computed for response positions only. The last response token
    predicts nothing and is left out of the input. Values outside the mask are finite but have no meaning.

    Args:
        model: a causal language model.
        samples: the samples; no response may be empty.
        temperature: divides the logits.
        precision: arithmetic of the forward pass.
        entropy: "none", "figure" (a metric, without gradient) or "with_gradient" (a term of the loss).
        max_logits: most logits in memory at a time; if B · T · V is larger, they are computed in chunks, and
            recomputed in the backward pass.
        recompute_layers: whether layers keep only their inputs for the backward pass, see `recomputed_layers`.
        row_tokens: width of rows that samples share; None: one row per sample.
        prompt_ends: whether to return the hidden states at the ends of the prompts.

    Raises:
        ValueError: `prompt_ends` is True, and the model's logits are not its head applied to its hidden states.
    """
    first, place = distinct(samples)
    chosen = [samples[row] for row in first]
    chunk = max(1, max_logits // model.config.get_text_config().vocab_size)
    config = _LogProbConfig(temperature, precision, entropy, chunk, recompute_layers, prompt_ends)
    found = (
        _rows_log_probs(model, chosen, config)
        if row_tokens is None
        else _trees_log_probs(model, chosen, config, row_tokens)
    )
    return found.rows(torch.from_numpy(place).to(model.device))


@dataclass(frozen=True, slots=True)
class _LogProbConfig:
    """Arguments of `token_log_probs`, and `chunk`, the most tokens whose logits are computed at a time."""

    temperature: float
    precision: Precision
    entropy: Entropy
    chunk: int
    recompute_layers: bool
    prompt_ends: bool


def _rows_log_probs(model: Any, samples: Sequence[Sample], config: _LogProbConfig) -> TokenLogProbs:
    """`token_log_probs` of distinct samples, with one row per sample."""
    inputs, token_BT, mask_BT = lay_out(samples, model.device)
    columns = last_columns(model, token_BT.shape[1])
    parts = split_model(model) if config.prompt_ends or token_BT.numel() > config.chunk else None
    if parts is None:
        if config.prompt_ends:
            raise ValueError(
                f"critic.shared = true needs a model whose logits are head(hidden states), and {type(model).__name__} "
                "is none; set critic.shared = false"
            )
        with autocast(model, config.precision), recomputed_layers(model, config.recompute_layers):
            logits_BTV = model(**inputs, logits_to_keep=token_BT.shape[1], **columns).logits
        return TokenLogProbs(*log_probs_of_logits(logits_BTV, token_BT, config.temperature, config.entropy), mask_BT)
    body, head = parts
    with autocast(model, config.precision):
        with recomputed_layers(model, config.recompute_layers):
            hidden_BTH = body(**inputs, **columns).last_hidden_state[:, -token_BT.shape[1] :]
        found_M = _hidden_log_probs(head, hidden_BTH[mask_BT], token_BT[mask_BT], config)
    return _spread(*found_M, mask_BT, hidden_BTH[:, 0] if config.prompt_ends else None)


def _trees_log_probs(model: Any, samples: Sequence[Sample], config: _LogProbConfig, row_tokens: int) -> TokenLogProbs:
    """`token_log_probs` of distinct samples in shared rows. Equal tokens after equal prefixes are computed once."""
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
        with recomputed_layers(model, config.recompute_layers):
            hidden_RWH = body(**packed.inputs).last_hidden_state
        found_U = _hidden_log_probs(head, hidden_RWH[row_U, position_U], token_U, config)
    place_on_device_M = torch.from_numpy(place_M.reshape(-1)).to(model.device)
    log_prob_M, entropy_M = (None if value_U is None else value_U[place_on_device_M] for value_U in found_U)
    assert log_prob_M is not None
    prompt_end_BH = at_prompt_ends(hidden_RWH, packed, present_BT.sum(axis=1)) if config.prompt_ends else None
    return _spread(log_prob_M, entropy_M, torch.from_numpy(present_BT).to(model.device), prompt_end_BH)


def at_prompt_ends(hidden_RWH: torch.Tensor, packed: PackedTrees, length_B: NDArray[np.int64]) -> torch.Tensor:
    """The hidden states before the first token of each response."""
    first_B = np.cumsum(length_B) - length_B
    row_B, place_B = (torch.from_numpy(column_M[first_B]) for column_M in (packed.row_M, packed.place_M))
    return hidden_RWH[row_B.to(hidden_RWH.device), place_B.to(hidden_RWH.device)]


def _hidden_log_probs(
    head: torch.nn.Module, hidden_MH: torch.Tensor, token_M: torch.Tensor, config: _LogProbConfig
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-prob and entropy of each token, in as many chunks as the logits need."""

    def computed(hidden_CH: torch.Tensor, token_C: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        return log_probs_of_logits(head(hidden_CH), token_C, config.temperature, config.entropy)

    if len(token_M) <= config.chunk:
        return computed(hidden_MH, token_M)
    chunks = [slice(first, first + config.chunk) for first in range(0, len(token_M), config.chunk)]
    found = [checkpoint(computed, hidden_MH[chunk], token_M[chunk], use_reentrant=False) for chunk in chunks]
    log_probs, entropies = zip(*found, strict=True)
    return torch.cat(log_probs), None if config.entropy == "none" else torch.cat(entropies)


def _spread(
    log_prob_M: torch.Tensor,
    entropy_M: torch.Tensor | None,
    mask_BT: torch.Tensor,
    prompt_end_BH: torch.Tensor | None,
) -> TokenLogProbs:
    """Place the values of the M response tokens where the mask is True, row by row; 0 elsewhere."""
    zero_BT = torch.zeros(mask_BT.shape, device=mask_BT.device)
    entropy_BT = None if entropy_M is None else zero_BT.masked_scatter(mask_BT, entropy_M)
    return TokenLogProbs(zero_BT.masked_scatter(mask_BT, log_prob_M), entropy_BT, mask_BT, prompt_end_BH)


def log_probs_of_logits(
    logits_NV: torch.Tensor, token_N: torch.Tensor, temperature: float, entropy: Entropy
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-prob of each token and entropy of the distribution that it was drawn from, both float32 in the tokens' shape.

    Args:
        logits_NV: the logits, in the tokens' shape with the vocabulary as last dimension.
        token_N: the tokens, in any layout.
        temperature: divides the logits.
        entropy: "none" (None is returned), "figure" (without gradient) or "with_gradient".
    """
    log_prob_NV = (logits_NV.float() / temperature).log_softmax(-1)
    log_prob_N = log_prob_NV.gather(-1, token_N.unsqueeze(-1)).squeeze(-1)
    if entropy == "none":
        return log_prob_N, None
    kept_NV = log_prob_NV if entropy == "with_gradient" else log_prob_NV.detach()
    return log_prob_N, -(kept_NV.exp() * kept_NV).sum(-1)


def lay_out(samples: Sequence[Sample], device: torch.device) -> tuple[dict[str, Any], torch.Tensor, torch.Tensor]:
    """Keyword arguments of the model, the response tokens padded on the right [B, T], and their mask [B, T]."""
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

    No response may be empty. If memory runs out, the batches get smaller, see `within_memory`.
    """

    def computed(batches: list[NDArray[np.int64]], width: int | None) -> list[NDArray[np.float32]]:
        results: list[NDArray[np.float32]] = [np.empty(0, dtype=np.float32)] * len(samples)
        for rows in batches:
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
def recomputed_layers(model: Any, wanted: bool = True) -> Iterator[None]:
    """In the block, forward passes store only the inputs of layers (gradient checkpointing); they may use no cache.

    If it is not `wanted`, or there are no gradients, nothing changes. transformers recomputes layers only in training
    mode, which would switch dropout on.

    Raises:
        ValueError: the model has no layers that can be recomputed.
    """
    if not (wanted and torch.is_grad_enabled()):
        yield
        return
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise ValueError(
            f"training.gradient_checkpointing: {type(model).__name__} has no layers that can be recomputed; set it to "
            "false, and lower training.micro_batch_tokens instead"
        )
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # only the instance's


def return_freed_memory() -> bool:
    """Return the C library's free pages to the system; False if the library is not glibc or has no free pages.

    glibc keeps freed blocks of up to 32 MiB, such as the tensors of layers. Their sizes differ between sampling and
    training, so many cannot be reused, and the process would grow with every update. Call this function once per
    mini-batch, not per forward pass, because pages that are needed again have to be mapped again.
    """
    if not sys.platform.startswith("linux"):
        return False
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(ctypes.c_size_t(0)))


class SampleTooLongError(ValueError):
    """The forward and backward pass of one sample does not fit into memory."""


_lowered: WeakKeyDictionary[Any, tuple[int, int]] = WeakKeyDictionary()
"""Model -> its current limit in tokens, and how often the limit was lowered."""


def within_memory(
    model: Any,
    samples: Sequence[Sample],
    max_tokens: int,
    work: Callable[[list[NDArray[np.int64]], int | None], Done],
    setting: str = "training.micro_batch_tokens",
    share_prefixes: SharePrefixes = False,
) -> Done:
    """Run `work` in micro-batches, make them smaller until memory suffices, and return the result.

    A backward pass that fails half-way has added to some gradients already, so the work starts from its beginning. The
    smaller limit stays in force for the model.

    Args:
        model: the limit is stored per model.
        samples: the samples that are split into `micro_batches`.
        max_tokens: the limit to begin with.
        work: (batches of indices, width of shared rows or None) -> result; it must start from the beginning each time.
            PyTorch's random state is restored before every call.
        setting: name of the limit's setting, for messages.
        share_prefixes: whether samples share rows (`hgpo.training.batching.row_tokens`).

    Raises:
        SampleTooLongError: a single sample does not fit into memory.
    """
    if model.device.type == "cpu":
        return_freed_memory()
    while True:
        limit = min(max_tokens, _lowered[model][0]) if model in _lowered else max_tokens
        width = tree_width(model, share_prefixes, samples, limit)
        random_state = torch.get_rng_state()  # of dropout
        on_device = torch.cuda.get_rng_state(model.device) if model.device.type == "cuda" else None
        try:
            return work(micro_batches(samples, limit, width), width)
        except torch.OutOfMemoryError as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        # Outside of the block, so that the error no longer holds the tensors of the failed pass.
        _lower(model, samples, limit, width, setting, reason)
        torch.set_rng_state(random_state)
        gc.collect()
        if on_device is not None:
            torch.cuda.set_rng_state(on_device, model.device)
            torch.cuda.empty_cache()


def times_lowered(*models: Any) -> int:
    """How often the limits of these models were lowered; duplicates count once."""
    return sum(times for model, (_, times) in _lowered.items() if any(model is one for one in models))


def _lower(model: Any, samples: Sequence[Sample], limit: int, width: int | None, setting: str, reason: str) -> None:
    """Halve the tokens of the largest batch with several distinct rows; raise an error if there is none."""
    samples = [samples[row] for row in distinct(samples)[0]]
    batches = micro_batches(samples, limit, width)
    several = [padded_tokens(samples, rows, width) for rows in batches if len(rows) > 1]
    if not several:
        longest = max(padded_tokens(samples, rows, width) for rows in batches)
        raise SampleTooLongError(f"a single sample of {longest:,} tokens does not fit into memory ({reason}): {_HELP}")
    largest = max(several)
    smaller = largest // 2
    _, times = _lowered.get(model, (0, 0))
    _lowered[model] = smaller, times + 1
    logger.warning(
        "%s ran out of memory at %s tokens per micro-batch; continuing with %s: set %s=%d",
        model.device.type.upper(),
        f"{largest:,}",
        f"{smaller:,}",
        setting,
        smaller,
    )
