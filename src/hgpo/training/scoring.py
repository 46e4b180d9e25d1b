"""Log-probs and entropies of given responses under a model.

Shape suffixes: B rows, P prompt tokens, T response tokens, L = P + T - 1 input tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hgpo.policies.padding import pad_left, pad_right
from hgpo.policies.precision import Precision, autocast
from hgpo.training.micro_batches import distinct, micro_batches
from hgpo.training.out_of_memory import within_memory
from hgpo.training.recomputation import recomputed_layers
from hgpo.training.samples import Sample
from hgpo.training.vocabulary import Entropy, score_in_chunks, score_logits, split_model

MAX_LOGITS = 2**26
"""A quarter of a GiB in float32."""


@dataclass(frozen=True, slots=True)
class TokenScores:
    """What a model thinks of the tokens of B responses, padded on the right to T.

    Attributes:
        log_prob_BT: float32.
        entropy_BT: float32; None where it was not asked for.
        mask_BT: bool: a token of the response.
    """

    log_prob_BT: torch.Tensor
    entropy_BT: torch.Tensor | None
    mask_BT: torch.Tensor

    def rows(self, index_B: torch.Tensor) -> TokenScores:
        """Those of some rows, which may come several times."""
        entropy_BT = None if self.entropy_BT is None else self.entropy_BT[index_B]
        return TokenScores(self.log_prob_BT[index_B], entropy_BT, self.mask_BT[index_B])


def score_responses(
    model: Any,
    samples: Sequence[Sample],
    *,
    temperature: float = 1.0,
    precision: Precision = "auto",
    entropy: Entropy = "with_gradient",
    max_logits: int = MAX_LOGITS,
    recompute_layers: bool = False,
) -> TokenScores:
    """Score the responses of `samples` in one forward pass of the distinct ones, with gradients where autograd is on.

        log_prob[b, t] = log softmax(logits[b, t] / temperature)[response[b, t]]
        entropy[b, t]  = -Σ_v p_v log p_v,  p = softmax(logits[b, t] / temperature)

    Layout: prompts flush right, responses flush left, so all responses start in one column and logits are computed for
    response positions only. The last response token predicts nothing and is left out of the input. Values outside the
    mask are finite but mean nothing.

    Args:
        model: a causal language model.
        samples: what is scored; no response may be empty.
        temperature: divides the logits.
        precision: arithmetic of the forward pass.
        entropy: whether it is wanted, as a figure or for a loss.
        max_logits: most logits held at a time; where B · T · V is more, they are computed in chunks, and once more in
            the backward pass.
        recompute_layers: see `hgpo.training.recomputation`.
    """
    first, place = distinct(samples)
    place_B = torch.from_numpy(place).to(model.device)
    inputs, token_BT, mask_BT = lay_out([samples[row] for row in first], model.device)
    vocabulary = model.config.get_text_config().vocab_size
    parts = split_model(model) if token_BT.numel() * vocabulary > max_logits else None
    layers = recomputed_layers(model) if recompute_layers and torch.is_grad_enabled() else nullcontext()
    if parts is None:
        with autocast(model, precision), layers:
            logits_BTV = model(**inputs, logits_to_keep=token_BT.shape[1]).logits
        return TokenScores(*score_logits(logits_BTV, token_BT, temperature, entropy), mask_BT).rows(place_B)
    body, head = parts
    with autocast(model, precision):
        with layers:
            hidden_BTH = body(**inputs).last_hidden_state[:, -token_BT.shape[1] :]
        log_prob_M, entropy_M = score_in_chunks(
            head,
            hidden_BTH[mask_BT],
            token_BT[mask_BT],
            temperature=temperature,
            chunk=max(1, max_logits // vocabulary),
            entropy=entropy,
        )
    spread_BT = torch.zeros(token_BT.shape, device=model.device)
    entropy_BT = None if entropy_M is None else spread_BT.masked_scatter(mask_BT, entropy_M)
    return TokenScores(spread_BT.masked_scatter(mask_BT, log_prob_M), entropy_BT, mask_BT).rows(place_B)


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
) -> list[NDArray[np.float32]]:
    """Log-probs of each sample's response, without gradients, in batches of at most `max_tokens` padded tokens.

    No response may be empty. Where CUDA runs out of memory the batches get smaller (`hgpo.training.out_of_memory`).
    """

    def scored(limit: int) -> list[NDArray[np.float32]]:
        results: list[NDArray[np.float32]] = [np.empty(0, dtype=np.float32)] * len(samples)
        for rows in micro_batches(samples, limit):
            with torch.no_grad():
                scores = score_responses(
                    model,
                    [samples[row] for row in rows],
                    temperature=temperature,
                    precision=precision,
                    entropy="none",
                    max_logits=max_logits,
                )
            log_prob_BT = scores.log_prob_BT.cpu().numpy()
            for row, log_prob_T in zip(rows, log_prob_BT, strict=True):
                results[row] = log_prob_T[: len(samples[row].response_ids)].copy()
        return results

    return within_memory(model, samples, max_tokens, scored)
