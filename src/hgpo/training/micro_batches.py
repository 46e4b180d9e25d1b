"""Cutting samples into batches that memory holds.

Rollouts of one task meet the same prompt again, and often give the same answer. Such samples have the same log-probs:
the model reads them once, and they count once here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hgpo.training.samples import Sample


def distinct(samples: Sequence[Sample]) -> tuple[list[int], NDArray[np.int64]]:
    """The first index of each distinct pair of prompt and response, and for every sample the place of its own there.

    Example: of samples a, b, a: `[0, 1]` and `[0, 1, 0]`.
    """
    first: list[int] = []
    places: dict[tuple[bytes, bytes], int] = {}
    place_N = np.empty(len(samples), dtype=np.int64)
    for row, sample in enumerate(samples):
        place = places.setdefault((sample.prompt_ids.tobytes(), sample.response_ids.tobytes()), len(first))
        if place == len(first):
            first.append(row)
        place_N[row] = place
    return first, place_N


def micro_batches(samples: Sequence[Sample], max_tokens: int) -> list[NDArray[np.int64]]:
    """Indices of `samples` in batches of similar length, longest first, each of at most `max_tokens` padded tokens.

    Those are counted as by `padded_tokens`: the longest prompt and the longest response need not come from one sample.
    A sample longer than `max_tokens` gets a batch of its own. Samples that are not distinct share a batch, side by
    side. Equal lengths keep their order.
    """
    first, place_N = distinct(samples)
    members: list[list[int]] = [[] for _ in first]
    for row, place in enumerate(place_N):
        members[place].append(row)
    order = sorted(range(len(first)), key=lambda place: -samples[first[place]].token_count)
    batches: list[list[int]] = []
    prompt = response = longest = read = 0
    for place in order:
        sample = samples[first[place]]
        prompt, response = max(prompt, len(sample.prompt_ids)), max(response, len(sample.response_ids))
        width = max(longest, prompt + response - 1)  # never less than the longest sample's own tokens
        if batches and (read + 1) * width <= max_tokens:
            batches[-1] += members[place]
            read += 1
        else:
            batches.append([*members[place]])
            prompt, response, longest = len(sample.prompt_ids), len(sample.response_ids), sample.token_count
            read = 1
    return [np.asarray(batch, dtype=np.int64) for batch in batches]


def padded_tokens(samples: Sequence[Sample], rows: Iterable[int]) -> int:
    """Tokens that the model is given of one batch: distinct rows · (longest prompt + longest response - 1)."""
    chosen = [samples[row] for row in rows]
    prompt = max(len(sample.prompt_ids) for sample in chosen)
    response = max(len(sample.response_ids) for sample in chosen)
    return len(distinct(chosen)[0]) * (prompt + response - 1)
