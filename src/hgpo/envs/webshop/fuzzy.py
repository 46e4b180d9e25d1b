"""How alike two phrases are, word order and repetition aside: the token set ratio of `thefuzz`.

Own code because the rule is the reward's definition and takes a page: `thefuzz` rounds to whole per cents and drops
non-ASCII characters, the library below it does neither, and both would be a dependency of every purchase.
"""

from __future__ import annotations

import re
from functools import lru_cache

_NOT_A_WORD = re.compile(r"[\W_]")


@lru_cache(maxsize=1 << 16)
def token_set_ratio(one: str, other: str) -> int:
    """Per cent, 0 to 100, of agreement between the sets of words of two phrases; 0 where one has no words.

    With I the words in both and A, B the words in one only (each sorted and joined), it is the largest ratio of
    (I, I+A), (I, I+B) and (I+A, I+B); a phrase whose words are all in the other scores 100.

    Example: `token_set_ratio("long sleeve", "sleeve, long and warm") == 100`.
    """
    words, others = set(_words(one)), set(_words(other))
    if not words or not others:
        return 0
    common = " ".join(sorted(words & others))
    if common and (words <= others or others <= words):
        return 100
    full = f"{common} {' '.join(sorted(words - others))}".strip()
    full_other = f"{common} {' '.join(sorted(others - words))}".strip()
    best = _ratio(full, full_other)
    if common:
        best = max(best, _ratio(common, full), _ratio(common, full_other))
    return round(best)


def _words(phrase: str) -> list[str]:
    return _NOT_A_WORD.sub(" ", phrase.encode("ascii", "ignore").decode()).lower().split()


def _ratio(one: str, other: str) -> float:
    """100 less the per cent of characters to delete from both until they are equal; halves must be exact."""
    total = len(one) + len(other)
    return 100.0 - 100.0 * (total - 2 * _common_subsequence(one, other)) / total


def _common_subsequence(one: str, other: str) -> int:
    """Length of the longest common subsequence, one bit per character of `one` (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for position, character in enumerate(one):
        places[character] = places.get(character, 0) | 1 << position
    everything = (1 << len(one)) - 1
    row = everything
    for character in other:
        match = row & places.get(character, 0)
        row = ((row + match) | (row - match)) & everything
    return len(one) - row.bit_count()
