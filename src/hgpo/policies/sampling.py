"""Sampling from a causal language model with a key-value cache and explicit randomness.

Token t of row b is drawn by inverting the cumulative distribution at the uniform number u[b, t]. The numbers belong to
the row, so neither the rows beside it nor the order or size of the batches changes what a row says (floating point
aside), and the same numbers give the same response on every device.

Shape suffixes: B rows, U distinct prompts among them, A rows still being written, P prompt tokens, T response tokens,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hgpo.policies.padding import TokenIds, pad_left


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """One response: its tokens (end token included), their log-probs, and whether it ended by itself."""

    token_ids: TokenIds
    log_probs: NDArray[np.float32]
    finished: bool


# no_grad and not inference_mode: under the latter, autocast casts every weight anew for every token.
@torch.no_grad()
def sample_responses(
    model: Any,
    prompts: Sequence[TokenIds],
    *,
    uniform_BT: NDArray[np.float64] | None,
    temperature: float,
    max_tokens: int,
    end_tokens: Sequence[int],
    pad_token: int,
) -> list[SampledTokens]:
    """Sample one response per prompt, at most `max_tokens` long, all rows together.

    Identical prompts (the first step of a group of rollouts) are read once. Rows that have ended leave the batch.

    Args:
        uniform_BT: numbers in [0, 1), T = `max_tokens`; None for greedy decoding (`temperature` 0).

    Raises:
        FloatingPointError: the model gave logits that are not finite.
    """
    decoder = _Decoder(model, prompts, max_tokens, end_tokens, pad_token)
    if uniform_BT is None:
        uniform_TB = None
    else:
        uniform_TB = torch.from_numpy(np.ascontiguousarray(uniform_BT.T)).to(decoder.device)
    for t in range(max_tokens):
        uniform_A = None if uniform_TB is None else uniform_TB[t][decoder.row_A]
        if not decoder.step(t, uniform_A, temperature):
            break
    return decoder.results()


def draw_tokens(
    logits_BV: torch.Tensor, uniform_B: torch.Tensor | None, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens [B] and their log-probs [B] under softmax(logits / temperature), or the greedy ones where uniform is None.

    token = min { v : Σ_{w<=v} p_w > u }. A token of probability zero is never drawn. Greedy log-probs are those at
    temperature 1, since under the greedy choice itself they would all be 0.
    """
    logits_BV = logits_BV.float()
    if uniform_B is None:
        token_B = logits_BV.argmax(-1)
        log_prob_BV = logits_BV.log_softmax(-1)
    else:
        log_prob_BV = (logits_BV / temperature).log_softmax(-1)
        # float64, or the last of 150,000 float32 sums would be off by more than a rare token's probability
        cumulative_BV = log_prob_BV.exp().cumsum(-1, dtype=torch.float64)
        threshold_B1 = (uniform_B * cumulative_BV[:, -1]).unsqueeze(-1)
        token_B = torch.searchsorted(cumulative_BV, threshold_B1, right=True).squeeze(-1)
        token_B = token_B.clamp_(max=logits_BV.shape[-1] - 1)
    return token_B, log_prob_BV.gather(-1, token_B.unsqueeze(-1)).squeeze(-1)


class _Decoder:
    """The state of one batch while it is being written: cache, next logits, and which rows are still open."""

    def __init__(
        self, model: Any, prompts: Sequence[TokenIds], max_tokens: int, end_tokens: Sequence[int], pad_token: int
    ) -> None:
        self.model = model
        self.device = model.device
        self.row_A = torch.arange(len(prompts), device=self.device)
        self._end_tokens = torch.tensor(sorted(end_tokens), device=self.device)
        self._token_BT = torch.full((len(prompts), max_tokens), pad_token, device=self.device)
        self._log_prob_BT = torch.zeros((len(prompts), max_tokens), device=self.device)
        self._open_A = torch.ones(len(prompts), dtype=torch.bool, device=self.device)
        self._read_prompts(prompts, max_tokens, pad_token)

    def _read_prompts(self, prompts: Sequence[TokenIds], max_tokens: int, pad_token: int) -> None:
        distinct = {prompt.tobytes(): prompt for prompt in prompts}
        index_of = {key: index for index, key in enumerate(distinct)}
        padded = pad_left([*distinct.values()], pad_token)
        ids_UP, mask_UP = (torch.from_numpy(array).to(self.device) for array in padded)
        output = self.model(
            input_ids=ids_UP,
            attention_mask=mask_UP.long(),
            position_ids=(mask_UP.cumsum(-1) - 1).clamp_(min=0),
            use_cache=True,
            logits_to_keep=1,
        )
        self._cache = output.past_key_values
        self._logits_AV = output.logits[:, -1]
        self._length_A = mask_UP.sum(-1)
        self._prompt_width = ids_UP.shape[1]
        self._mask_AL = torch.cat([mask_UP, mask_UP.new_ones(len(distinct), max_tokens)], dim=1).long()
        if len(distinct) < len(prompts):
            indices = [index_of[prompt.tobytes()] for prompt in prompts]
            self._select(torch.tensor(indices, device=self.device))

    def step(self, t: int, uniform_A: torch.Tensor | None, temperature: float) -> bool:
        """Draw token `t` of every row in the batch; False when there is nothing left to draw."""
        token_A, log_prob_A = draw_tokens(self._logits_AV, uniform_A, temperature)
        self._token_BT[self.row_A, t] = token_A
        self._log_prob_BT[self.row_A, t] = log_prob_A
        self._open_A &= ~torch.isin(token_A, self._end_tokens)
        open_count = int(self._open_A.sum())
        if open_count == 0 or t + 1 == self._token_BT.shape[1]:
            return False
        if open_count < len(token_A):
            keep = self._open_A.nonzero().squeeze(-1)
            self.row_A, token_A, self._open_A = self.row_A[keep], token_A[keep], self._open_A[keep]
            self._select(keep)
        output = self.model(
            input_ids=token_A.unsqueeze(-1),
            attention_mask=self._mask_AL[:, : self._prompt_width + t + 1],
            position_ids=(self._length_A + t).unsqueeze(-1),
            past_key_values=self._cache,
            use_cache=True,
        )
        self._logits_AV = output.logits[:, -1]
        return True

    def _select(self, index_A: torch.Tensor) -> None:
        self._cache.batch_select_indices(index_A)
        self._logits_AV = self._logits_AV[index_A]
        self._length_A = self._length_A[index_A]
        self._mask_AL = self._mask_AL[index_A]

    def results(self) -> list[SampledTokens]:
        token_BT = self._token_BT.cpu()
        is_end_BT = torch.isin(token_BT, self._end_tokens.cpu()).numpy()
        log_prob_BT = self._log_prob_BT.cpu().numpy()
        if not np.isfinite(log_prob_BT).all():
            raise FloatingPointError("the model gave logits that are not finite: its weights are broken")
        width = token_BT.shape[1]
        finished_B: NDArray[np.bool_] = np.asarray(is_end_BT.any(axis=1))
        length_B = np.where(finished_B, is_end_BT.argmax(axis=1) + 1, width)
        ids_BT = token_BT.numpy().astype(np.int32)
        return [
            SampledTokens(ids_T[:length].copy(), log_prob_T[:length].copy(), bool(finished))
            for ids_T, log_prob_T, length, finished in zip(ids_BT, log_prob_BT, length_B, finished_B, strict=True)
        ]
