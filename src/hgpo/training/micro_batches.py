"""Cutting samples into batches that memory holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hgpo.training.samples import Sample


def micro_batches(samples: Sequence[Sample], max_tokens: int) -> list[NDArray[np.int64]]:
    """Indices of `samples` in batches of similar length, longest first, each of at most `max_tokens` padded tokens.

    Those are counted as by `padded_tokens`: the longest prompt and the longest response need not come from one sample.
    A sample longer than `max_tokens` gets a batch of its own. Equal lengths keep their order.
    """
    order = sorted(range(len(samples)), key=lambda row: -samples[row].token_count)
    batches: list[list[int]] = []
    prompt = response = longest = 0
    for row in order:
        sample = samples[row]
        prompt, response = max(prompt, len(sample.prompt_ids)), max(response, len(sample.response_ids))
        width = max(longest, prompt + response - 1)  # never less than the longest sample's own tokens
        if batches and (len(batches[-1]) + 1) * width <= max_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
            prompt, response, longest = len(sample.prompt_ids), len(sample.response_ids), sample.token_count
    return [np.asarray(batch, dtype=np.int64) for batch in batches]


def padded_tokens(samples: Sequence[Sample], rows: Iterable[int]) -> int:
    """Tokens that the model is given of one batch: rows · (longest prompt + longest response - 1)."""
    chosen = [samples[row] for row in rows]
    prompt = max(len(sample.prompt_ids) for sample in chosen)
    response = max(len(sample.response_ids) for sample in chosen)
    return len(chosen) * (prompt + response - 1)
