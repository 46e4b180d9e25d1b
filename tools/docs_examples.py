"""Rewrites docstrings for the API pages: an extension of griffe, named in mkdocs.yml."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)
_SHARED = re.compile(r"^( +)(\w+(?:, \w+)+): (.*(?:\n\1 +\S.*)*)", re.MULTILINE)


class WrittenOut(griffe.Extension):
    """Puts examples into code fences, and gives each name an entry of its own.

    Outside fences, Markdown reads `>>>` as quotations and `[…]` as links; griffe reads `a, b: text` as one name.
    """

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object as it is loaded."""
        if obj.docstring:
            text = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
            obj.docstring.value = _SHARED.sub(_one_by_one, text)


def _one_by_one(found: re.Match[str]) -> str:
    """The entry `a, b: text` as `a: text` and `b: text`."""
    return "\n".join(f"{found[1]}{name}: {found[3]}" for name in found[2].split(", "))
