"""Cutting samples into batches that memory holds.

Rollouts of one task meet the same prompt again, and often give the same answer. Such samples have the same log-probs:
the model reads them once, and they count once here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hgpo.training.prefix_trees import plant
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


def micro_batches(samples: Sequence[Sample], max_tokens: int, row_tokens: int | None = None) -> list[NDArray[np.int64]]:
    """Indices of `samples` in batches of at most `max_tokens` tokens, padding included.

    Those are counted as by `padded_tokens`. A sample longer than `max_tokens` gets a batch of its own. Samples that are
    not distinct share a batch, side by side.

    Args:
        samples: what is cut.
        max_tokens: of a batch.
        row_tokens: width of rows that samples share (`hgpo.training.prefix_trees`): those that begin alike come into
            one batch. None: a row each, batches of similar length, longest first, and equal lengths keep their order.
    """
    if not samples:
        return []
    first, place_N = distinct(samples)
    members: list[list[int]] = [[] for _ in first]
    for row, place in enumerate(place_N):
        members[place].append(row)
    chosen = [samples[row] for row in first]
    batches = _of_equals(chosen, max_tokens) if row_tokens is None else _of_neighbours(chosen, max_tokens, row_tokens)
    return [np.asarray([row for place in batch for row in members[place]], dtype=np.int64) for batch in batches]


def _of_neighbours(samples: Sequence[Sample], max_tokens: int, width: int) -> list[list[int]]:
    """As many rows of trees as there is room for."""
    trees, count = plant(samples, width), max(1, max_tokens // width)
    parts = [trees[first : first + count] for first in range(0, len(trees), count)]
    return [[member for tree in part for member in tree.members] for part in parts]


def _of_equals(samples: Sequence[Sample], max_tokens: int) -> list[list[int]]:
    """As many rows of one sample each as there is room for: the longest prompt and the longest response of a batch need
    not come from one sample."""
    order = sorted(range(len(samples)), key=lambda place: -samples[place].token_count)
    batches: list[list[int]] = []
    prompt = response = longest = read = 0
    for place in order:
        sample = samples[place]
        prompt, response = max(prompt, len(sample.prompt_ids)), max(response, len(sample.response_ids))
        width = max(longest, prompt + response - 1)  # never less than the longest sample's own tokens
        if batches and (read + 1) * width <= max_tokens:
            batches[-1].append(place)
            read += 1
        else:
            batches.append([place])
            prompt, response, longest = len(sample.prompt_ids), len(sample.response_ids), sample.token_count
            read = 1
    return batches


def padded_tokens(samples: Sequence[Sample], rows: Iterable[int], row_tokens: int | None = None) -> int:
    """Tokens that the model is given of one batch.

    Those are rows · width: of trees, or distinct samples · (longest prompt + longest response - 1).
    """
    chosen = [samples[row] for row in rows]
    if row_tokens is not None:
        trees = plant([chosen[row] for row in distinct(chosen)[0]], row_tokens)
        return len(trees) * max(len(tree.ids_W) for tree in trees)
    prompt = max(len(sample.prompt_ids) for sample in chosen)
    response = max(len(sample.response_ids) for sample in chosen)
    return len(distinct(chosen)[0]) * (prompt + response - 1)
