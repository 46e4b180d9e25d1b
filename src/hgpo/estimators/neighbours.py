"""Which states of a task match: those that are similar by character trigrams of their texts or by given vectors.

    similarity(x, y) = 1 - |x - y|^2 / 2        x, y: vectors of two states; their cosine if both have length 1
    kappa(u) = 1                                kernel "uniform", for u >= threshold
    kappa(u) = 1 - (1 - u) / (1 - threshold)    kernel "epanechnikov", for u >= threshold

Two states match if they are equal or their similarity is at least the threshold; kappa is the weight of the match. The
vector of a text has the counts of its character trigrams, hashed to 1,024 numbers with signs and scaled to length 1
(Weinberger et al., Feature Hashing, ICML 2009). "epanechnikov" is the kernel of Epanechnikov (1969) as a function of
the distance |x - y|.

In a task with up to 1,024 different states, all pairs are compared. More states are split into blocks of that size by
medians of random projections (Dasgupta & Freund, Random projection trees, STOC 2008). This is done four times, and the
states of each block are compared with each other. Time and memory then grow with N log N, but some matching pairs are
missed. Each state keeps its 64 most similar matches. Of equally similar ones it keeps those that a fixed order of the
states by content selects, so the order of the rows has no effect.

Shapes: N steps in group order, U texts, S states of a block, P pairs of them, D dimensions of a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from hgpo.columns import FloatArray, IntArray
from hgpo.estimators.levels import Matching
from hgpo.estimators.matches import Matches
from hgpo.estimators.similarity import texts_of
from hgpo.grouping import Runs, StepGroups, changes, ranges
from hgpo.steps import StepBatch

MOST_MATCHES = 64
BLOCK = 1_024
_TREES = 4
_DIMENSIONS_BITS = 10
_AT_ONCE = 1_048_576
"""Trigrams and numbers of vectors that are computed together; they need about 70 MB."""
_ROUNDING = 1e-9
_HASH = 0x9E3779B97F4A7C15  # odd: multiply-shift hashing

Vectors = Callable[[IntArray], FloatArray]
"""Returns the vectors of some states, float64[S, D]."""


def similar_states(batch: StepBatch, groups: StepGroups, matching: Matching) -> Matches:
    """Which states match: the matches of level 0, whose groups are the states of each task.

    The vector of a state is the mean embedding of its steps, or the vector of its text.
    """
    states = Runs.from_starts(groups.starts[0])
    count = len(states.start_G)
    number_G = _by_content(batch, groups.row_N[states.start_G])
    of_number = _embeddings(batch, groups, states) if matching.by == "embedding" else _texts(batch, groups, states)

    def vectors(place: IntArray) -> FloatArray:
        return of_number(number_G[place])

    own = np.arange(count)  # place in the order by content, as all indices up to the last line
    found: list[tuple[IntArray, IntArray, FloatArray]] = [(own, own, np.full(count, np.inf))]  # inf: never cut off
    for task in np.split(own, np.flatnonzero(groups.task_starts_N[states.start_G])[1:]):
        for block in _blocks(task, vectors):
            first, second, similarity = _similar(vectors(block), matching.threshold)
            found.append((block[first], block[second], similarity))
    source, target, similarity = _most_similar(*(np.concatenate(parts) for parts in zip(*found, strict=True)))
    similarity = np.minimum(similarity, 1.0)
    weight = np.ones(len(source))
    if matching.kernel == "epanechnikov":
        weight -= (1.0 - similarity) / (1.0 - matching.threshold)
        kept = weight > _ROUNDING
        source, target, similarity, weight = source[kept], target[kept], similarity[kept], weight[kept]
    return Matches.of_pairs(number_G[source], number_G[target], similarity, weight, count, matching.own_trajectory)


def _by_content(batch: StepBatch, row_G: IntArray) -> IntArray:
    """The states sorted by task and content, int64[G]: ties are then broken independently of the order of the rows."""
    content = [repr(label) for label in batch.labels["observation"]]
    rank = np.empty(len(content), dtype=np.int64)
    rank[sorted(range(len(content)), key=content.__getitem__)] = np.arange(len(content))
    return np.lexsort((rank[batch.observation[row_G]], batch.group[row_G]))


def _most_similar(source: IntArray, target: IntArray, similarity: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Keep each pair once, and for each state the pair with itself and those with its `MOST_MATCHES` most similar."""
    kept = np.unique(source * (int(source.max()) + 1) + target, return_index=True)[1]
    kept = kept[np.lexsort((_rank(similarity[kept]), source[kept]))]
    first = np.flatnonzero(changes(source[kept]))
    size = np.diff(np.append(first, len(kept)))
    kept = kept[ranges(first, first + np.minimum(size, MOST_MATCHES + 1))]
    return source[kept], target[kept], similarity[kept]


def _rank(similarity: FloatArray) -> FloatArray:
    """Lowest for the most similar, and equal for similarities that are equal except for rounding."""
    return np.rint(similarity * (-1.0 / _ROUNDING))


def _embeddings(batch: StepBatch, groups: StepGroups, states: Runs) -> Vectors:
    assert batch.embedding is not None, "`Matching.needs` lists it, and `Estimator.run` checks it"
    embedding, size_G = batch.embedding, states.size_G

    def vectors(state: IntArray) -> FloatArray:
        begin, size = states.start_G[state], size_G[state]
        sums = np.add.reduceat(
            embedding[groups.row_N[ranges(begin, begin + size)]].astype(np.float64), np.cumsum(size) - size
        )
        return np.asarray(sums / size[:, None], dtype=np.float64)

    return vectors


def _texts(batch: StepBatch, groups: StepGroups, states: Runs) -> Vectors:
    texts = texts_of(batch, "match_by='text'")
    number, text_G = np.unique(batch.observation[groups.row_N[states.start_G]], return_inverse=True)
    count_UD = trigram_counts([texts[one] for one in number])

    def vectors(state: IntArray) -> FloatArray:
        count_SD = count_UD[text_G[state]].astype(np.float64)
        length_S = np.sqrt(np.einsum("sd,sd->s", count_SD, count_SD))
        return np.asarray(count_SD / np.maximum(length_S, 1.0)[:, None], dtype=np.float64)

    return vectors


def trigram_counts(texts: list[str]) -> NDArray[np.float32]:
    """Hashed counts of each text's character trigrams, exact whole numbers, float32[U, 1024].

    Both ends of a text are marked before counting, so trigrams there differ from those of the same characters inside.
    """
    count_UD = np.zeros((len(texts), 1 << _DIMENSIONS_BITS), dtype=np.float32)
    size_U = np.array([len(text) + count_UD.shape[1] for text in texts])
    for part in np.split(np.arange(len(texts)), np.flatnonzero(np.diff(np.cumsum(size_U) // _AT_ONCE)) + 1):
        padded = [f"\x02\x02{texts[number]}\x03" for number in part]
        codes = np.frombuffer("".join(padded).encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint64)
        length = np.array([len(text) for text in padded])
        start = np.cumsum(length) - length
        at = ranges(start, start + length - 2)
        trigram = codes[at] | codes[at + 1] << np.uint64(21) | codes[at + 2] << np.uint64(42)
        hashed = (trigram * np.uint64(_HASH)) >> np.uint64(63 - _DIMENSIONS_BITS)
        sign = 1.0 - 2.0 * (hashed & np.uint64(1))
        cell = (np.repeat(np.arange(len(padded)), length - 2) << _DIMENSIONS_BITS) + (hashed >> np.uint64(1)).astype(
            np.int64
        )
        counts = np.bincount(cell, weights=sign, minlength=len(padded) << _DIMENSIONS_BITS)
        count_UD[part] = counts.reshape(len(padded), -1)
    return count_UD


def _blocks(state: IntArray, vectors: Vectors) -> Iterator[IntArray]:
    """Yield the states of a task in blocks of at most `BLOCK`. More states are split `_TREES` times, in other ways."""
    if len(state) <= BLOCK:
        if len(state) > 1:
            yield state
        return
    depth = int(np.ceil(np.log2(len(state) / BLOCK)))
    random = np.random.default_rng(0)  # always the same directions: equal batches have equal advantages
    direction = random.standard_normal((vectors(state[:1]).shape[1], _TREES * depth))
    chunks = np.array_split(state, 1 << depth)
    projection = np.concatenate([vectors(chunk) @ direction for chunk in chunks])
    for tree in range(_TREES):
        parts = [np.arange(len(state))]
        for column in projection[:, tree * depth : (tree + 1) * depth].T:
            by_projection = [part[np.argsort(column[part], kind="stable")] for part in parts]
            parts = [half for part in by_projection for half in np.array_split(part, 2)]
        yield from (state[part] for part in parts)


def _similar(vector_SD: FloatArray, threshold: float) -> tuple[IntArray, IntArray, FloatArray]:
    """For each state, its up to `MOST_MATCHES` most similar other states that reach the threshold.

    Returns:
        One entry for each pair: index of the state, index of the other state, similarity.
    """
    centred_SD = vector_SD - vector_SD.mean(axis=0)
    square_S = np.einsum("sd,sd->s", centred_SD, centred_SD)
    similarity_SS = centred_SD @ centred_SD.T
    similarity_SS -= 0.5 * square_S[:, None]
    similarity_SS -= 0.5 * square_S
    similarity_SS += 1.0
    np.fill_diagonal(similarity_SS, -np.inf)
    error_S = 4.0 * np.finfo(np.float64).eps * square_S
    if error_S.max() > _ROUNDING:  # some vectors are far apart
        _set_exact(similarity_SS, vector_SD, np.nonzero(similarity_SS >= threshold - error_S[:, None] - error_S))
    near_SS = similarity_SS >= threshold - _ROUNDING
    if near_SS.sum(axis=1).max() > MOST_MATCHES:
        nearest = np.argpartition(_rank(similarity_SS), MOST_MATCHES, axis=1)[:, :MOST_MATCHES]
        closest_SS = np.zeros_like(near_SS)
        np.put_along_axis(closest_SS, nearest, True, axis=1)
        near_SS &= closest_SS
    first, second = np.nonzero(near_SS)
    return first, second, similarity_SS[first, second]


def _set_exact(similarity_SS: FloatArray, vector_SD: FloatArray, pairs: tuple[IntArray, ...]) -> None:
    """Compute the similarity of some pairs from the difference of their vectors, where products lose digits."""
    first, second = pairs
    for part in np.array_split(np.arange(len(first)), 1 + len(first) * vector_SD.shape[1] // _AT_ONCE):
        difference_PD = vector_SD[first[part]] - vector_SD[second[part]]
        similarity_SS[first[part], second[part]] = 1.0 - 0.5 * np.einsum("pd,pd->p", difference_PD, difference_PD)
