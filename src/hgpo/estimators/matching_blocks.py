"""Matching characters of two texts as `difflib` counts them, in less time on long texts.

`difflib.SequenceMatcher(None, text, other, autojunk=False)` takes the longest common block of two texts (of several,
the first in `text`, then the first in `other`) and continues left and right of it. Its search visits all pairs of equal
characters: quadratic in the length. Here, equal substrings get equal numbers (prefix doubling) and a bisection over the
length finds the longest common block: O(n log^2 n) per block and the same blocks.

Shapes: X and Y positions of the two texts that are still candidates. A position in the second text counts from the
beginning of the first.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from heapq import heappop, heappush

import numpy as np

from hgpo.columns import IntArray

_SMALL = 40_000
"""Product of two lengths up to which difflib's search takes less time than operations on arrays."""
_Segment = tuple[int, int, int, int]
"""Begin and end in the first text, begin and end in the second."""


def least_matches(threshold: float, characters: int) -> int:
    """The fewest matching characters with `2.0 * matches / characters >= threshold`, as difflib's ratio rounds it."""
    matches = max(int(threshold * characters / 2.0) - 1, 0)
    while 2.0 * matches / characters < threshold:
        matches += 1
    return matches


def matches_reach(text: str, other: str, needed: int) -> bool:
    """Whether difflib's matching blocks of `text` and `other` have at least `needed` characters in total.

    Searches the largest segments first and ends as soon as the answer is certain.
    """
    substrings = _Substrings(text, other)
    matched, possible = 0, min(len(text), len(other))  # possible: matches in the pending segments, at most
    pending: list[tuple[int, _Segment, int]] = [(-possible, (0, len(text), 0, len(other)), possible)]
    while pending and matched < needed <= matched + possible:
        negative_most, (start, end, other_start, other_end), longest = heappop(pending)
        possible += negative_most
        if (end - start) * (other_end - other_start) <= _SMALL:
            matched += _matched(text[start:end], other[other_start:other_end])
            continue
        at, other_at, length = substrings.longest_block((start, end, other_start, other_end), longest)
        if not length:
            continue
        matched += length
        for part in ((start, at, other_start, other_at), (at + length, end, other_at + length, other_end)):
            if most := min(part[1] - part[0], part[3] - part[2]):
                possible += most
                heappush(pending, (-most, part, length))
    return matched >= needed


def _matched(text: str, other: str) -> int:
    return sum(block.size for block in SequenceMatcher(None, text, other, autojunk=False).get_matching_blocks())


class _Substrings:
    """Numbers of the substrings of two texts: two of the same length have equal keys if and only if they are equal."""

    def __init__(self, text: str, other: str) -> None:
        self._length = len(text)
        codes = np.frombuffer((text + other).encode("utf-32-le", "surrogatepass"), dtype="<u4")
        self._numbers = [_dense(codes)]  # of the substrings of 1, 2, 4, … characters that begin at each position

    def longest_block(self, segment: _Segment, longest: int) -> tuple[int, int, int]:
        """Begin in each text and length of difflib's next block, which has at most `longest` characters.

        The length is found by bisection. Only positions at which a common block of the length so far begins remain.
        """
        start, end, other_start, other_end = segment
        at_X = np.arange(start, end)
        at_Y = np.arange(other_start, other_end) + self._length
        length, too_long = 0, min(end - start, other_end - other_start, longest) + 1
        while length + 1 < too_long:
            tried = min(max(2 * length, 1), (length + too_long) // 2)
            fits_X, fits_Y = at_X[at_X <= end - tried], at_Y[at_Y <= other_end + self._length - tried]
            key_X, key_Y = self._keys(fits_X, tried), self._keys(fits_Y, tried)
            common_X = np.isin(key_X, key_Y)
            if common_X.any():
                at_X, at_Y, length = fits_X[common_X], fits_Y[np.isin(key_Y, key_X[common_X])], tried
            else:
                too_long = tried
        if not length:
            return start, other_start, 0
        same_Y = self._keys(at_Y, length) == self._keys(at_X[:1], length)
        return int(at_X[0]), int(at_Y[np.argmax(same_Y)]) - self._length, length

    def _keys(self, at: IntArray, length: int) -> IntArray:
        """One key per substring of `length` characters that begins at a position of `at`."""
        doublings = length.bit_length() - 1
        while len(self._numbers) <= doublings:
            last, half = self._numbers[-1], 1 << (len(self._numbers) - 1)
            self._numbers.append(_dense(last[:-half] * len(last) + last[half:]))
        numbers, half = self._numbers[doublings], 1 << doublings
        if length == half:
            return numbers[at]
        return numbers[at] * (self._numbers[0].size + 1) + numbers[at + length - half]


def _dense(values: IntArray) -> IntArray:
    numbers: IntArray = np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64, copy=False)
    return numbers
