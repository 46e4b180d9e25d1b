"""Untrusted text without control characters, counts with nouns, "did you mean", foreign errors, common subsequences."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from pathlib import Path

_LEAST_SIMILARITY = 0.6
"""Least similarity of a suggestion, 0 to 1, as in `difflib`: "quikstart" and "quickstart" have 0.95."""
_MARGIN = 0.1
"""Only names whose similarity is at most this far below the largest are suggested."""
_MOST = 3
_CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_CONTROLS_IN_LINES = re.compile(rf"(?![\n\t]){_CONTROLS.pattern}")


def visible(text: str, most: int = 200) -> str:
    """One line of at most `most` characters; controls, direction marks and invisible characters become "�".

    Example: `visible("a\\x1b[31mb\\nc")` is "a�[31mb c".
    """
    line = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def visible_lines(text: str) -> str:
    """The whole text, cleaned like `visible`, with its line breaks and tabs.

    Example: `visible_lines("a\\x1b[31mb\\nc")` is "a�[31mb\\nc".
    """
    return _CONTROLS_IN_LINES.sub("\N{REPLACEMENT CHARACTER}", text)


def counted(count: int, noun: str, plural: str = "") -> str:
    """A count with its noun: "1 update", "2,000 updates". `plural` is the noun's plural; default: the noun and "s"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def suggestions(given: str, known: Iterable[str]) -> list[str]:
    """The known names most similar to `given`, at most 3, the most similar first.

    For dotted names: similar names in the same section; else the same name in other sections; else, if the section does
    not exist, names that are similar as a whole.

    Example: `suggestions("training.group_size", ["rollout.group_size", "training.epochs"]) == ["rollout.group_size"]`.
    """
    names = list(dict.fromkeys(known))
    section, _, last = given.rpartition(".")
    in_section = {name.rpartition(".")[2]: name for name in names if name.rpartition(".")[0] == section}
    misspelt = [in_section[name] for name in _similar(last, in_section)]
    in_others = [name for name in names if name.rpartition(".")[2] == last]
    as_a_whole = [] if section and in_section else _similar(given, names)
    return (misspelt or in_others or as_a_whole)[:_MOST]


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """`"; did you mean a or b?"`, or "" if no name is similar."""
    found = suggestions(given, known)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _similar(given: str, names: Iterable[str]) -> list[str]:
    similarity = {name: SequenceMatcher(None, given.lower(), name.lower()).ratio() for name in names}
    least = max(_LEAST_SIMILARITY, max(similarity.values(), default=0.0) - _MARGIN)
    return sorted((name for name in similarity if similarity[name] >= least), key=lambda name: -similarity[name])


def common_subsequence(places: Mapping[str, int], length: int, text: str) -> int:
    """Length of the longest common subsequence of `text` and a text of `length` characters.

    Each character of `text` updates one row of the usual table, whose bits are 0 where the length grows, in a few
    operations on integers (Hyyrö 2004). `places`: per character of the other text, the bits at which it occurs.
    """
    full = (1 << length) - 1
    row = full
    for character in text:
        matching = row & places.get(character, 0)
        row = ((row + matching) | (row - matching)) & full
    return length - row.bit_count()


def describe_error(call: str, error: BaseException, *, below: str) -> str:
    """An error with the file and line that raised it.

    Args:
        call: the call that failed.
        error: the error.
        below: the file of this package that made the call; its lines are not reported.
    """
    place = traceback.extract_tb(error.__traceback__)[-1]
    line = "" if place.filename == below else f" ({Path(place.filename).name}, line {place.lineno})"
    return f"{call} raised {type(error).__name__}: {safe_text(error)}{line}"


def safe_text(value: object) -> str:
    """`str(value)`, or a placeholder if that fails."""
    try:
        return str(value)
    except Exception as error:
        return f"(its message cannot be shown: {type(error).__name__})"


def safe_repr(value: object) -> str:
    """`repr(value)` as one line (`visible`), or a placeholder if it fails."""
    try:
        return visible(repr(value))
    except Exception as error:
        return f"a value of type {type(value).__name__} that cannot be shown ({type(error).__name__})"
