"""Texts and values that have broken programs."""

from __future__ import annotations

from random import Random

_TEXTS = (
    *("[/x]", "[bold", "[link=file:///etc/passwd]x[/link]", "\x1b]0;title\x07", "\x1b[2J", "\x9b31m", "\u202egnp.exe"),
    *("<script>alert(1)</script>", "{{ 7*7 }}", "${HOME}", "$(touch hit)", "`touch hit`", "; touch hit", "| touch hit"),
    *("../../etc/passwd", "/dev/zero", "~", "-", "--help", "", " ", "\n", "\r\n", "\0", "\u2028", "\ud83d\ude00"),
    *("a" * 100_000, "é" * 300, "[" * 3000, "9" * 400, "\\" * 99, "'" * 99, '"' * 99),
    *("%s%n", "NaN", "1e999", "-1", "0x10", "None", "null", "true", "[]", "{}", "'", '"', "\\"),
    *(".x:y", "os:system", "a.b.c:d", ":", "x:", ":y", "x:y:z", "__import__('os')", "con", "nul.txt", "file://x"),
)
_VALUES = (
    *(None, True, False, 0, -1, 1, 10**26, -(10**26), 10**400, 2**63, 1e308, -1e308, 1e-320, 0.5),
    *([], {}, [[]], [1, 1], ["a"], {"a": 1}, [None], {"": ""}),
)


def hostile_text(rng: Random) -> str:
    """One of them, alone or in company."""
    text = rng.choice(_TEXTS)
    return text if rng.random() < 0.6 else rng.choice(_TEXTS) + text


def hostile_value(rng: Random) -> object:
    """A text, or anything else that JSON can say."""
    return hostile_text(rng) if rng.random() < 0.5 else rng.choice(_VALUES)
