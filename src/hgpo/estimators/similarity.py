"""Observations that count as the same because their texts are similar: greedy grouping by difflib's ratio.

Shapes: N steps, P distinct (task, observation) pairs, T texts of one task, R representatives among them, A characters
of their alphabet. Source: the similarity-based grouping of the published GiGPO code.
"""

from __future__ import annotations

import logging
import time
from heapq import heappop, heappush

import numpy as np

from hgpo import columns
from hgpo.columns import IntArray
from hgpo.steps import StepBatch
from hgpo.utils.text import common_subsequence

logger = logging.getLogger(__name__)

_QUIET_SECONDS = 10.0
_Segment = tuple[int, int, int, int]
"""Begin and end in the first text, begin and end in the second."""


def similar_observations(batch: StepBatch, threshold: float) -> IntArray:
    """Number of the representative observation of each step, int64[N] in the batch's row order.

    The distinct observations of a task are taken in order of the earliest step at which a trajectory of the task saw
    them, equally early ones in order of their text. Each joins the first representative that it is similar enough to,
    see `representatives`. Neither the order of the rows nor the names of the trajectories matter.

    Args:
        batch: the steps; their observations must be text.
        threshold: least ratio of two similar texts, above 0 and at most 1.

    Raises:
        ValueError: an observation that is not text; the message names its row.
    """
    texts = texts_of(batch, "similarity_threshold")
    pair_P, pair_N = np.unique(batch.group * len(texts) + batch.observation, return_inverse=True)
    task_P, text_P = np.divmod(pair_P, len(texts))
    earliest_P = np.full(len(pair_P), len(batch))
    np.minimum.at(earliest_P, pair_N, batch.step)
    rank = np.empty(len(texts), dtype=np.int64)
    rank[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
    order_P = np.lexsort((rank[text_P], earliest_P, task_P))

    representative_P = np.empty_like(text_P)
    for pairs in np.split(order_P, np.flatnonzero(np.diff(task_P[order_P])) + 1):
        chosen = representatives([texts[number] for number in text_P[pairs]], threshold)
        representative_P[pairs] = text_P[pairs[chosen]]
    representative_N: IntArray = representative_P[pair_N]
    return representative_N


def texts_of(batch: StepBatch, option: str) -> list[str]:
    """The labels of the observations as text; those that only a `next_observation` has are left empty.

    Raises:
        ValueError: an observation that is not text; the message names its row and the option.
    """
    labels = batch.labels["observation"]
    texts = [""] * len(labels)
    number_U, first_row_U = np.unique(batch.observation, return_index=True)
    for number, row in zip(number_U.tolist(), first_row_U.tolist(), strict=True):
        label = labels[number]
        if not isinstance(label, str):
            columns.fail("observation", row, f"{option} compares text, got {type(label).__name__} {label!r}")
        texts[number] = label
    return texts


def representatives(texts: list[str], threshold: float) -> IntArray:
    """Index of the representative of each of `texts`, int64[T]; the texts are all different.

    Each text joins the first representative, in order of their appearance, with
    `SequenceMatcher(None, text, representative, autojunk=False).ratio() >= threshold`, and becomes a representative
    itself if there is none. At most T (T - 1) / 2 comparisons; two upper bounds of the ratio decide most of them: the
    characters both texts have (for all representatives at once), then their longest common subsequence, of which the
    matching blocks that the ratio counts are one. What remains is counted by `matches_reach`.

    After `_QUIET_SECONDS`, a warning reports the progress, and then at longer intervals.

    Example: at threshold 0.75, ["abcd", "abce", "xy"] gives [0, 0, 2]: abcd and abce match in 2 * 3 of 8 characters.
    """
    count_TA = _character_counts(texts)
    length_T = np.array([len(text) for text in texts], dtype=np.int64)
    representative_T = np.arange(len(texts))
    kept: list[_Representative] = []
    kept_RA, kept_length_R = np.empty_like(count_TA), np.empty_like(length_T)
    silent_until = time.monotonic() + _QUIET_SECONDS
    for index, text in enumerate(texts):
        if time.monotonic() > silent_until:
            logger.warning(
                "similarity_threshold: %d of %d different observations of a task compared; they have up to %d "
                "characters, and the time grows with the square of their number",
                *(index, len(texts), length_T.max()),
            )
            silent_until = time.monotonic() + 3 * _QUIET_SECONDS
        shared_R = np.minimum(kept_RA[: len(kept)], count_TA[index]).sum(axis=1)
        bound_R = 2.0 * shared_R / (kept_length_R[: len(kept)] + length_T[index])
        similar = (kept[at] for at in np.flatnonzero(bound_R >= threshold) if kept[at].similar(text, threshold))
        if (first := next(similar, None)) is not None:
            representative_T[index] = first.index
            continue
        kept_RA[len(kept)], kept_length_R[len(kept)] = count_TA[index], length_T[index]
        kept.append(_Representative(index, text))
    return representative_T


def _character_counts(texts: list[str]) -> IntArray:
    """How often each text has each character of the alphabet of all, int64[T, A]."""
    alphabet = {character: at for at, character in enumerate(sorted(set().union(*texts)))}
    count_TA = np.zeros((len(texts), len(alphabet)), dtype=np.int64)
    for index, text in enumerate(texts):
        count_TA[index] = np.bincount([alphabet[character] for character in text], minlength=len(alphabet))
    return count_TA


class _Representative:
    """A representative text; what depends only on it is computed once."""

    def __init__(self, index: int, text: str) -> None:
        self.index = index
        self._text = text
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        self._places = {  # per character, the bits at which the text has it
            chr(code): int.from_bytes(np.packbits(codes == code, bitorder="little").tobytes(), "little")
            for code in np.unique(codes)
        }

    def similar(self, text: str, threshold: float) -> bool:
        """Whether the ratio of `text` to this one reaches the threshold."""
        needed = least_matches(threshold, len(self._text) + len(text))
        longest = common_subsequence(self._places, len(self._text), text)  # at least as many as the matches
        return longest >= needed and matches_reach(text, self._text, needed)


def least_matches(threshold: float, characters: int) -> int:
    """The fewest matching characters with `2.0 * matches / characters >= threshold`, as difflib's ratio rounds it."""
    matches = max(int(threshold * characters / 2.0) - 1, 0)
    while 2.0 * matches / characters < threshold:
        matches += 1
    return matches


def matches_reach(text: str, other: str, needed: int) -> bool:
    """Whether difflib's matching blocks of `text` and `other` have at least `needed` characters in total.

    The blocks are those of `SequenceMatcher(None, text, other, autojunk=False)`: the longest common block, then the
    same left and right of it. This function searches the largest segments first and ends as soon as the answer is
    certain. `SequenceMatcher` itself takes minutes for texts of 20,000 characters.
    """
    matched, possible = 0, min(len(text), len(other))  # possible: matches in the pending segments, at most
    pending: list[tuple[int, _Segment]] = [(-possible, (0, len(text), 0, len(other)))]
    while pending and matched < needed <= matched + possible:
        negative_most, (start, end, other_start, other_end) = heappop(pending)
        possible += negative_most
        at, other_at, length = _longest_block(text, other, (start, end, other_start, other_end))
        if not length:
            continue
        matched += length
        for part in ((start, at, other_start, other_at), (at + length, end, other_at + length, other_end)):
            if most := min(part[1] - part[0], part[3] - part[2]):
                possible += most
                heappush(pending, (-most, part))
    return matched >= needed


def _longest_block(text: str, other: str, segment: _Segment) -> tuple[int, int, int]:
    """Begin in each text and length of the longest common block; of several, the first in `text`, then in `other`."""
    start, end, other_start, other_end = segment
    at, other_at, length = start, other_start, 0
    for begin in range(start, end):
        while begin + length < end:  # is there a longer block that begins here?
            found = other.find(text[begin : begin + length + 1], other_start, other_end)
            if found < 0:
                break
            at, other_at, length = begin, found, length + 1
    return at, other_at, length
