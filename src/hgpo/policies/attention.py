"""Attention of one new token at a time, without what transformers' own wastes on it.

Where several query heads share a key head (grouped-query attention), transformers copies keys and values once per query
head as soon as there is a padding mask. One new token needs no copy: the query heads that share a key head are read as
so many queries of that head, which no kernel can tell apart. And on an accelerator transformers looks at every token
whether the mask hides anything, for which the host has to wait.

Shape suffixes: B rows, H query heads, K key heads, G query heads per key head, S tokens seen, D head size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

_PLAIN, _DECODING = "sdpa", "sdpa_of_one_token"


@contextmanager
def decoding_attention(model: Any) -> Iterator[None]:
    """Within it, a model that uses PyTorch's attention decodes by `attend`, where it gains by that.

    All other models are left as they are, and so is training, which runs outside.
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
    """What transformers calls for every layer; returns [B, 1, H, D] for one new token, its own attention for more."""
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
    """transformers' mask [B, 1, q_length, S]; for one token on an accelerator even where it hides nothing."""
    waits = q_length == 1 and device.type != "cpu"
    mask: torch.Tensor | None = sdpa_mask(
        q_length=q_length, device=device, allow_is_causal_skip=allow_is_causal_skip and not waits, **options
    )
    return mask


AttentionInterface.register(_DECODING, attend)
AttentionMaskInterface.register(_DECODING, decoding_mask)
