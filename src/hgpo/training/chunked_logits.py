"""Log-probs and entropies over a large vocabulary, a few tokens at a time.

The logits of a whole micro-batch can take more memory than the model: 8,192 tokens of 151,936 logits are 5 GB in
float32, and training holds several such tensors at once. Here the logits of a chunk of tokens exist while it is scored,
and once more in the backward pass, where they are computed again.

Shape suffixes: N tokens in any layout, M response tokens of all rows, C tokens of a chunk, H hidden size, V vocabulary.
"""

from __future__ import annotations

import logging
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch.utils.checkpoint import checkpoint

from hgpo.policies.lora import adapter_off, base_model

logger = logging.getLogger(__name__)
Entropy = Literal["none", "figure", "with_gradient"]
_TOLERANCE = 1e-3  # of logits that two ways of computing give; a scale or a cap that is left out is far above it


def score_in_chunks(
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
        chunk: tokens scored at a time.
        entropy: whether it is wanted.
    """
    log_probs, entropies = [], []
    for first in range(0, len(token_M), chunk):
        part = slice(first, first + chunk)
        log_prob_C, entropy_C = checkpoint(
            _score_hidden, head, hidden_MH[part], token_M[part], temperature, entropy, use_reentrant=False
        )
        log_probs.append(log_prob_C)
        entropies.append(entropy_C)
    return torch.cat(log_probs), None if entropy == "none" else torch.cat(entropies)


def score_logits(
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


def _score_hidden(
    head: torch.nn.Module, hidden_CH: torch.Tensor, token_C: torch.Tensor, temperature: float, entropy: Entropy
) -> tuple[torch.Tensor, torch.Tensor | None]:
    return score_logits(head(hidden_CH), token_C, temperature, entropy)


def split_model(model: Any) -> tuple[Any, torch.nn.Module] | None:
    """The body of a causal language model and its head, None where its logits are more than head(body).

    Some models scale or cap their logits; that is found out once a model, on two tokens.
    """
    if model not in _split:
        _split[model] = _split_checked(model)
    return _split[model]


_split: WeakKeyDictionary[Any, tuple[Any, torch.nn.Module] | None] = WeakKeyDictionary()


@torch.no_grad()
def _split_checked(model: Any) -> tuple[Any, torch.nn.Module] | None:
    causal = base_model(model)
    body, head = causal.base_model, causal.get_output_embeddings()
    if body is causal or head is None:
        return None
    ids = torch.zeros((1, 2), dtype=torch.long, device=causal.device)
    with adapter_off(model):  # its dropout would make two passes differ
        logits = causal(input_ids=ids, use_cache=False).logits.float()
        found = head(body(input_ids=ids, use_cache=False).last_hidden_state).float()
    if found.shape == logits.shape and torch.allclose(found, logits, atol=_TOLERANCE, rtol=_TOLERANCE):
        return body, head
    logger.warning("%s makes more of its logits than its head does: they are held all at once", type(causal).__name__)
    return None
