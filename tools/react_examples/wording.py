"""Helpers that put thoughts into English."""

from __future__ import annotations

import re
from collections import Counter

_SENTENCE_START = re.compile(r"(?:^|\. )[a-z]")
_UNCOUNTED = frozenset(["bread", "lettuce", "toiletpaper", "tea", "coffee", "honey", "soap", "vinegar", "rice"])


class Wording:
    """Words the same thought differently each time, with its wordings in turn.

    `first` is the index of the first wording, so that examples can begin differently.

    Example: `Wording(0).say("take", ("I see {it}.", "Here is {it}."), it="pen 1")` is `"I see pen 1."`.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._said: Counter[str] = Counter()

    def say(self, thought: str, wordings: tuple[str, ...], **names: str) -> str:
        """The next wording of a thought, filled in; sentences begin with a capital letter."""
        chosen = wordings[(self._first + self._said[thought]) % len(wordings)]
        self._said[thought] += 1
        return _SENTENCE_START.sub(lambda start: start[0].upper(), chosen.format(**names))


def with_article(name: str) -> str:
    """`"a mug"`, `"an egg"`, `"some bread"`; of several words the last is the noun."""
    if name.split()[-1] in _UNCOUNTED:
        return f"some {name}"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
