"""Text of models, environments and files for a terminal: what acts instead of being seen is replaced."""

from __future__ import annotations

import re

_ACTING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_ACTING_IN_LINES = re.compile(rf"(?![\n\t]){_ACTING.pattern}")


def visible(text: str, most: int = 200) -> str:
    """One line of at most `most` characters without controls, direction marks and invisible characters.

    Example: `visible("a\\x1b[31mb\\nc")` is "a�[31mb c".
    """
    line = _ACTING.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def visible_lines(text: str) -> str:
    """The whole text in the same way, with its line breaks and tabs.

    Example: `visible_lines("a\\x1b[31mb\\nc")` is "a�[31mb\\nc".
    """
    return _ACTING_IN_LINES.sub("\N{REPLACEMENT CHARACTER}", text)
