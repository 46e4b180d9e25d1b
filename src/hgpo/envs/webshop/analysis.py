"""From text to index terms, as Lucene's English analysis makes them: words, no possessives, no stop words, stems.

Words follow Unicode's word boundaries (UAX #29) as Lucene's standard tokenizer applies them: `8"` is `8`, `3.5`
is one word and so is `size:small`, `t-shirt` is two. Ideographs and kana syllables count one by one, and so do
emoji. Thai and letters that Unicode has gained since are the exceptions.
"""

from __future__ import annotations

import re
import unicodedata

from hgpo.envs.webshop.stemmer import stem

MAX_WORD_LENGTH = 255
_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was
will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Lucene's English stop words: these 33."""

_IDEOGRAPHS = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3041-\u3096\u309d-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)


def _characters(*categories: str) -> str:
    """All characters of the basic plane in some Unicode categories, as the inside of a character class."""
    codes = [code for code in range(0x80, 0xFFFE) if unicodedata.category(chr(code)) in categories]
    starts = [code for code, before in zip(codes, [0, *codes], strict=False) if code != before + 1]
    ends = [code for code, after in zip(codes, [*codes[1:], 0], strict=True) if code + 1 != after]
    return "".join(f"{chr(start)}-{chr(end)}" for start, end in zip(starts, ends, strict=True))


_MARK = _characters("Mn", "Mc", "Me", "Cf") + "\uff9e\uff9f"
_LETTER = rf"[^\W\d_{_IDEOGRAPHS}{_characters('No')}\uff9e\uff9f]"
_JOINER = "\u203f\u2040\u2054\ufe33\ufe34\ufe4d-\ufe4f\uff3f_"
_BETWEEN_LETTERS = ":\u00b7\u0387\u05f4\u2027\ufe13\ufe55\uff1a"
_BETWEEN_NUMBERS = ",;\u037e\u0589\u060c\u060d\u066c\u07f8\u2044\ufe10\ufe14\ufe50\ufe54\uff0c\uff1b"
_BETWEEN_EITHER = "'.\u2018\u2019\u2024\ufe52\uff07\uff0e"
_PICTURE = (
    "©®‼⁉™ℹ↔-↙↩↪⌚⌛⌨⎈⏏⏩-⏳⏸-⏺Ⓜ▪▫▶◀◻-◾☀-★☇-☒☔-⚅⚐-✅✈-✒✔✖✝✡✨✳✴❄❇❌❎❓-❕❗❣-❧➕-➗➡➰➿⤴⤵⬅-⬇⬛⬜⭐⭕〰〽㊗㊙"
    "\U0001f000-\U0001f0ff\U0001f10d-\U0001f10f\U0001f12f\U0001f16c-\U0001f171\U0001f17e\U0001f17f\U0001f18e"
    "\U0001f191-\U0001f19a\U0001f1ad-\U0001f1e5\U0001f201-\U0001f20f\U0001f21a\U0001f22f\U0001f232-\U0001f23a"
    "\U0001f23c-\U0001f23f\U0001f249-\U0001f3fa\U0001f400-\U0001f53d\U0001f546-\U0001f64f\U0001f680-\U0001f6ff"
    "\U0001f774-\U0001f77f\U0001f7d5-\U0001f7ff\U0001f80c-\U0001f80f\U0001f848-\U0001f84f\U0001f85a-\U0001f85f"
    "\U0001f888-\U0001f88f\U0001f8ae-\U0001f8ff\U0001f90c-\U0001f93a\U0001f93c-\U0001f945\U0001f947-\U0001fffd"
)
_ONE_PICTURE = rf"[{_PICTURE}]\ufe0f?[\U0001f3fb-\U0001f3ff]?\ufe0f?"
_EMOJI = rf"{_ONE_PICTURE}(?:\u200d{_ONE_PICTURE})*|[\U0001f1e6-\U0001f1ff]{{2}}|[0-9#*]\ufe0f?\u20e3"
_WORD = re.compile(
    rf"(?=[{_JOINER}]*[^\W_])(?:{_LETTER}|\d|[{_JOINER}])"
    rf"(?:{_LETTER}|\d|[{_JOINER}{_MARK}]"
    rf"|(?<=[^\W\d_])[{_BETWEEN_LETTERS}{_BETWEEN_EITHER}](?={_LETTER})"
    rf"|(?<=\d)[{_BETWEEN_NUMBERS}{_BETWEEN_EITHER}](?=\d))*"
    rf"|[{_IDEOGRAPHS}]|{_EMOJI}"
)
_ASCII_WORD = re.compile(r"\w+(?:(?:(?<=[a-z])[:'.](?=[a-z])|(?<=[0-9])[,;'.](?=[0-9]))\w+)*", re.ASCII)
"""The same for ASCII, several times as fast; it also finds runs of underscores."""
_POSSESSIVE = ("'s", "’s", "＇s")


def words(text: str) -> list[str]:
    """The words of a lower-case text, in order; one longer than 255 characters is cut into pieces of 255."""
    if text.isascii():
        found = _ASCII_WORD.findall(text)
        if "_" in text:
            found = [word for word in found if word.strip("_")]
    else:
        found = _WORD.findall(text)
    if max(map(len, found), default=0) <= MAX_WORD_LENGTH:
        return found
    starts = [(word, start) for word in found for start in range(0, len(word), MAX_WORD_LENGTH)]
    return [word[start : start + MAX_WORD_LENGTH] for word, start in starts]


def term(word: str) -> str | None:
    """The index term of a word, or None for a stop word."""
    if word.endswith(_POSSESSIVE):
        word = word[:-2]
    return None if word in STOP_WORDS else stem(word)


def terms(text: str) -> list[str]:
    """The index terms of a text, in order, repetitions included.

    Example: `terms("The Women's running-shoes") == ["women", "run", "shoe"]`.
    """
    return [found for found in map(term, words(text.lower())) if found is not None]
