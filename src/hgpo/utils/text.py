"""Text of models, environments and files for a terminal: what acts instead of being seen is replaced."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

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


# What somebody may have meant by a name that is not there.


_ALIKE = 0.6
"""Least likeness, from 0 to 1 as `difflib` counts it: "quikstart" and "quickstart" have 0.95."""
_AS_GOOD = 0.1
"""A name that is less like the given one than the likest, by more than this, is no suggestion."""
_MOST = 3


def suggestions(given: str, known: Iterable[str]) -> list[str]:
    """The names that may have been meant, the likest first; at most 3.

    Of dotted names, those that are misspelt within the same section come first, then those of the same name in another
    section, then, where there is no such section, those that are alike as a whole.

    Example: `suggestions("training.group_size", ["rollout.group_size", "training.epochs"]) == ["rollout.group_size"]`.
    """
    names = list(dict.fromkeys(known))
    section, _, last = given.rpartition(".")
    beside = {name.rpartition(".")[2]: name for name in names if name.rpartition(".")[0] == section}
    misspelt = [beside[name] for name in _alike(last, beside)]
    elsewhere = [name for name in names if name.rpartition(".")[2] == last]
    as_a_whole = [] if section and beside else _alike(given, names)
    return (misspelt or elsewhere or as_a_whole)[:_MOST]


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """`"; did you mean a or b?"`, or nothing where no name is like the given one."""
    found = suggestions(given, known)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _alike(given: str, names: Iterable[str]) -> list[str]:
    """Those about as like it as the likest, in order."""
    likeness = {name: SequenceMatcher(None, given.lower(), name.lower()).ratio() for name in names}
    least = max(_ALIKE, max(likeness.values(), default=0.0) - _AS_GOOD)
    return sorted((name for name in likeness if likeness[name] >= least), key=lambda name: -likeness[name])
