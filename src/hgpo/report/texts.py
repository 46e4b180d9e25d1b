"""Every text of a report once: texts are kept as lists of lines, and equal lines are kept once.

Prompts of one trajectory repeat the template and most of each other's history, line by line, so a report of some
hundred megabytes of prompts comes to a few, before compression.
"""

from __future__ import annotations

import numpy as np

from hgpo.columns import IntArray


class TextStore:
    """Numbers texts from 1 by first appearance; 0 is "no text".

    Example: `store = TextStore(); store.add("a\\nb"), store.add(None), store.add("a\\nc")` is (1, 0, 2), with
    `store.lines` a, b, c and `store.encoded()` ([0, 0, 2, 4], [0, 1, 0, 2]).
    """

    def __init__(self) -> None:
        self._text_number: dict[str, int] = {}
        self._line_number: dict[str, int] = {}
        self._line_ids: list[int] = []
        self._ends: list[int] = [0, 0]

    def add(self, text: str | None) -> int:
        """The number of a text."""
        if text is None:
            return 0
        number = self._text_number.get(text)
        if number is None:
            number = self._text_number[text] = len(self._text_number) + 1
            lines = self._line_number
            self._line_ids += [lines.setdefault(line, len(lines)) for line in text.split("\n")]
            self._ends.append(len(self._line_ids))
        return number

    @property
    def lines(self) -> list[str]:
        """The distinct lines, by number."""
        return list(self._line_number)

    def encoded(self) -> tuple[IntArray, IntArray]:
        """(start, line): text n is lines `line[start[n]:start[n + 1]]`, joined by line breaks."""
        return np.array(self._ends, dtype=np.int64), np.array(self._line_ids, dtype=np.int64)
