"""Sampling from a causal language model with a key-value cache and explicit random numbers.

Token t of row b is drawn by inverting the cumulative distribution at the uniform number u[b, t]. The numbers belong to
the row: neither other rows nor the order or size of batches change a row's response (floating point aside), and the
same numbers give the same response on every device.

Decoding avoids two costs of transformers' attention. With grouped-query attention and a padding mask, transformers
copies keys and values once per query head; for one new token, `attend` passes the query heads that share a key head as
queries of that head instead. On an accelerator, transformers checks for every token whether the mask hides anything,
which makes the host wait; `decoding_mask` omits the check.

Shape suffixes: B rows, U distinct prompts, G shared prefixes, A rows still being written, P prompt tokens, Q new and
S cached tokens, T response tokens, V vocabulary; in attention H query heads, K key heads, G query heads per key head,
D head size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from hgpo.policies.base import TokenIds
from hgpo.policies.cache import (
    PromptLayout,
    ResponseCache,
    cache_name,
    cuts,
    last_columns,
    lay_out_apart,
    lay_out_together,
    select_rows,
)

_PLAIN, _DECODING = "sdpa", "sdpa_of_one_token"


@contextmanager
def decoding_attention(model: Any) -> Iterator[None]:
    """In the context, a model with PyTorch's attention uses `attend`, if that is faster for it.

    Other models are unchanged.
    """
    config = model.config.get_text_config(decoder=True)
    heads = getattr(config, "num_attention_heads", None)
    key_heads = getattr(config, "num_key_value_heads", None) or heads
    gains = key_heads != heads or model.device.type != "cpu"
    if config._attn_implementation != _PLAIN or config.sub_configs or not gains:
        yield
        return
    config._attn_implementation = _DECODING
    try:
        yield
    finally:
        config._attn_implementation = _PLAIN


def attend(
    module: torch.nn.Module,
    query_BHQD: torch.Tensor,
    key_BKSD: torch.Tensor,
    value_BKSD: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """The attention function of a layer, as transformers calls it; returns [B, Q, H, D]."""
    rows, heads, queries, size = query_BHQD.shape
    key_heads = key_BKSD.shape[1]
    shared_mask = attention_mask is None or attention_mask.shape[1] == 1
    if queries != 1 or heads == key_heads or not shared_mask:
        mixed, _ = sdpa_attention_forward(module, query_BHQD, key_BKSD, value_BKSD, attention_mask, **options)
        return mixed, None
    mixed_BKGD = torch.nn.functional.scaled_dot_product_attention(
        query_BHQD.reshape(rows, key_heads, heads // key_heads, size),
        key_BKSD,
        value_BKSD,
        attn_mask=attention_mask,
        dropout_p=options.get("dropout", 0.0),
        scale=options.get("scaling"),
    )
    return mixed_BKGD.reshape(rows, 1, heads, mixed_BKGD.shape[-1]), None


def decoding_mask(
    *, q_length: int, device: torch.device, allow_is_causal_skip: bool = True, **options: Any
) -> torch.Tensor | None:
    """transformers' mask [B, 1, Q, S]; on an accelerator a single token gets a mask even if it hides nothing."""
    waits = q_length == 1 and device.type != "cpu"
    mask: torch.Tensor | None = sdpa_mask(
        q_length=q_length, device=device, allow_is_causal_skip=allow_is_causal_skip and not waits, **options
    )
    return mask


AttentionInterface.register(_DECODING, attend)
AttentionMaskInterface.register(_DECODING, decoding_mask)


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """One response.

    Attributes:
        token_ids: int[T], the end token included.
        log_probs: float32[T], log-probs of the tokens.
        finished: whether it has an end token.
    """

    token_ids: TokenIds
    log_probs: NDArray[np.float32]
    finished: bool


# no_grad, not inference_mode: under the latter, autocast casts every weight again for every token.
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

    Identical prompts (the first step of a group) and shared prefixes of prompts are computed once. Finished rows
    leave the batch: on a CPU at once, on an accelerator every few tokens, since finding them makes the host wait.

    Args:
        model: a causal language model.
        prompts: token ids of each row.
        uniform_BT: numbers in [0, 1), T = `max_tokens`; None for greedy decoding.
        temperature: temperature of the softmax; ignored by greedy decoding.
        max_tokens: most tokens of a response.
        end_tokens: tokens that end a response.
        pad_token: fills the rest of a row.

    Raises:
        FloatingPointError: the model gave logits that are not finite.
    """
    decoder = _Decoder(model, prompts, max_tokens, end_tokens, pad_token)
    if uniform_BT is None:
        uniform_TB = None
    else:
        uniform_TB = torch.from_numpy(np.ascontiguousarray(uniform_BT.T)).to(decoder.device)
    with decoding_attention(model):
        for t in range(max_tokens):
            uniform_A = None if uniform_TB is None else uniform_TB[t][decoder.row_A]
            if not decoder.step(t, uniform_A, temperature):
                break
    return decoder.results()


def draw_tokens(
    logits_BV: torch.Tensor, uniform_B: torch.Tensor | None, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens [B] and their log-probs [B] under softmax(logits / temperature); greedy if `uniform_B` is None.

    token = min { v : Σ_{w<=v} p_w > u }. A token of probability zero is never drawn. Greedy log-probs are those at
    temperature 1.
    """
    logits_BV = logits_BV.float()
    if uniform_B is None:
        token_B = logits_BV.argmax(-1)
        log_prob_BV = logits_BV.log_softmax(-1)
    else:
        log_prob_BV = (logits_BV if temperature == 1 else logits_BV / temperature).log_softmax(-1)
        # float64, because the last of 150,000 float32 sums would have an error above a rare token's probability
        cumulative_BV = log_prob_BV.exp().cumsum(-1, dtype=torch.float64)
        threshold_B1 = (uniform_B * cumulative_BV[:, -1]).unsqueeze(-1)
        token_B = torch.searchsorted(cumulative_BV, threshold_B1, right=True).squeeze(-1)
        token_B = token_B.clamp_(max=logits_BV.shape[-1] - 1)
    return token_B, log_prob_BV.gather(-1, token_B.unsqueeze(-1)).squeeze(-1)


@dataclass(frozen=True, slots=True)
class _Pace:
    """Costs of a device.

    Attributes:
        forward_tokens: prompt tokens that take as long as one more forward pass.
        tokens_between_drops: tokens between two searches for finished rows.
    """

    forward_tokens: int
    tokens_between_drops: int


_CPU = _Pace(256, 1)
_ACCELERATOR = _Pace(4096, 8)  # not measured
_SHARE_FROM = 10_000_000  # parameters; smaller models take longer for the second pass than they save


class _Decoder:
    """The state of one batch: cache, next logits and open rows."""

    def __init__(
        self, model: Any, prompts: Sequence[TokenIds], max_tokens: int, end_tokens: Sequence[int], pad_token: int
    ) -> None:
        self.model = model
        self.device = model.device
        self._cache_name = cache_name(model)
        self._pace = _CPU if self.device.type == "cpu" else _ACCELERATOR
        self._end_tokens = torch.tensor(sorted(end_tokens), device=self.device)
        self._token_BT = torch.full((len(prompts), max_tokens), pad_token, device=self.device)
        self._log_prob_BT = torch.zeros((len(prompts), max_tokens), device=self.device)
        self._read_prompts(prompts, max_tokens, pad_token)

    def _read_prompts(self, prompts: Sequence[TokenIds], max_tokens: int, pad_token: int) -> None:
        distinct = {prompt.tobytes(): prompt for prompt in prompts}
        layout = self._lay_out([*distinct.values()], len(prompts), max_tokens, pad_token)
        self._prompt_width = layout.ids_UP.shape[1]
        self._logits_AV = self._forward_prompts(layout)
        self._length_A = torch.from_numpy(layout.mask_UP.sum(-1)).to(self.device)
        mask_UL = np.pad(layout.mask_UP, ((0, 0), (0, max_tokens)), constant_values=True)
        self._mask_AL = torch.from_numpy(mask_UL).to(self.device, torch.long)
        keys = [*distinct]
        row_of = {keys[index]: row for row, index in enumerate(layout.order_U)}
        self._select(torch.tensor([row_of[prompt.tobytes()] for prompt in prompts]))
        self.row_A = torch.arange(len(prompts), device=self.device)
        self._open_A = torch.ones(len(prompts), dtype=torch.bool, device=self.device)

    def _lay_out(self, distinct: list[TokenIds], rows: int, max_tokens: int, pad_token: int) -> PromptLayout:
        """The layout of the prompts; also makes a cache for them and their responses."""
        layout = apart = lay_out_apart(distinct, pad_token)
        # Models with an attention of their own may take distances between columns for distances between tokens.
        plain = self.model.config.get_text_config(decoder=True)._attn_implementation == _PLAIN
        if plain and sum(parameter.numel() for parameter in self.model.parameters()) >= _SHARE_FROM:
            layout = lay_out_together(distinct, pad_token, overhead=self._pace.forward_tokens)
        self._cache = ResponseCache.of(self.model, rows, layout.ids_UP.shape[1] + max_tokens)
        if self._cache.in_place or layout is apart:
            return layout
        self._cache = ResponseCache.of(self.model, rows, apart.ids_UP.shape[1] + max_tokens)
        return apart

    def _forward_prompts(self, layout: PromptLayout) -> torch.Tensor:
        """Logits [U, V] after each prompt; shared prefixes are computed first."""
        if layout.shared:
            self._forward_parts(layout.ids_GP, layout.mask_GP, 0)
            select_rows(self._cache, torch.from_numpy(layout.prefix_U), self.device)
        return self._forward_parts(layout.ids_UP, layout.mask_UP, layout.shared)

    def _forward_parts(self, ids_UP: NDArray[np.int64], mask_UP: NDArray[np.bool_], known: int) -> torch.Tensor:
        """Logits [U, V] after each row. The first `known` columns are cached; rows run in parts of similar length."""
        rows, width = ids_UP.shape
        length_U = mask_UP[:, known:].sum(-1)
        parts = cuts(length_U, overhead=self._pace.forward_tokens) if self._cache.in_place else [slice(0, rows)]
        logits = []
        for part in parts:
            new = width - int(length_U[part.start])
            seen = int(mask_UP[part].any(axis=0).argmax())  # columns before it are empty in all rows of the part
            self._cache.show(part, min(seen, new), new)
            logits.append(self._forward_part(ids_UP[part, new:], mask_UP[part, min(seen, new) :]))
        self._cache.show(slice(0, rows), 0, width)
        return torch.cat(logits)

    def _forward_part(self, ids_UQ: NDArray[np.int64], mask_US: NDArray[np.bool_]) -> torch.Tensor:
        """Logits [U, V] after Q new tokens; the mask covers S tokens, of which the new ones are the last."""
        ids, mask = (torch.from_numpy(np.ascontiguousarray(array)).to(self.device) for array in (ids_UQ, mask_US))
        output = self.model(
            input_ids=ids,
            attention_mask=mask.long(),
            position_ids=(mask.cumsum(-1) - 1).clamp_(min=0)[:, -ids.shape[1] :],
            **{self._cache_name: self._cache},
            use_cache=True,
            logits_to_keep=1,
            **last_columns(self.model, 1),
        )
        if getattr(output, self._cache_name, None) is None:
            raise ValueError(
                f"{type(self.model).__name__} returns no key-value cache, so it cannot be sampled from here"
            )
        return output.logits[:, -1]  # type: ignore[no-any-return]

    def step(self, t: int, uniform_A: torch.Tensor | None, temperature: float) -> bool:
        """Draw token `t` of every row in the batch; False if all responses are complete."""
        token_A, log_prob_A = draw_tokens(self._logits_AV, uniform_A, temperature)
        self._token_BT[self.row_A, t] = token_A
        self._log_prob_BT[self.row_A, t] = log_prob_A
        self._open_A &= ~torch.isin(token_A, self._end_tokens)
        if t + 1 == self._token_BT.shape[1]:
            return False
        if (t + 1) % self._pace.tokens_between_drops == 0 and not self._drop_ended():
            return False
        output = self.model(
            input_ids=self._token_BT[self.row_A, t].unsqueeze(-1),
            attention_mask=self._mask_AL[:, : self._prompt_width + t + 1],
            position_ids=(self._length_A + t).unsqueeze(-1),
            **{self._cache_name: self._cache},
            use_cache=True,
        )
        self._logits_AV = output.logits[:, -1]
        return True

    def _drop_ended(self) -> bool:
        """Remove finished rows from the batch; False if none is left. The host waits for the device here."""
        open_A = self._open_A.cpu()
        count = int(open_A.sum())
        if 0 < count < len(open_A):
            index_A = torch.arange(count)
            index_A[~open_A[:count]] = count + open_A[count:].nonzero().squeeze(-1)  # the last rows fill the gaps
            self._select(index_A)
            index_A = index_A.to(self.device)
            self.row_A, self._open_A = self.row_A[index_A], self._open_A[index_A]
        return count > 0

    def _select(self, index_A: torch.Tensor) -> None:
        """Replace row a by row index[a]; `index_A` is on the CPU."""
        if torch.equal(index_A, torch.arange(len(self._length_A))):
            return
        select_rows(self._cache, index_A, self.device)
        index_A = index_A.to(self.device)
        self._logits_AV = self._logits_AV[index_A]
        self._length_A = self._length_A[index_A]
        self._mask_AL = self._mask_AL[index_A]

    def results(self) -> list[SampledTokens]:
        """The responses, each up to its first end token."""
        token_BT = self._token_BT.cpu()
        is_end_BT = torch.isin(token_BT, self._end_tokens.cpu()).numpy()
        log_prob_BT = self._log_prob_BT.cpu().numpy()
        width = token_BT.shape[1]
        finished_B: NDArray[np.bool_] = np.asarray(is_end_BT.any(axis=1))
        length_B = np.where(finished_B, is_end_BT.argmax(axis=1) + 1, width)
        if not np.isfinite(log_prob_BT[np.arange(width) < length_B[:, None]]).all():
            raise FloatingPointError("the model returned non-finite logits: check its weights for NaN or inf")
        ids_BT = token_BT.numpy().astype(np.int32)
        return [
            SampledTokens(ids_T[:length].copy(), log_prob_T[:length].copy(), bool(finished))
            for ids_T, log_prob_T, length, finished in zip(ids_BT, log_prob_BT, length_B, finished_B, strict=True)
        ]
