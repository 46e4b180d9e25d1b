"""From text to index terms, as in Lucene's English analysis: words, no possessives, no stop words, stems.

The stemmer is Porter's algorithm (1980) with his later changes, as in Lucene. No small library has this variant: the
"porter" of Snowball lacks the later changes (`-bli` and `-logi` endings, words of one or two letters unchanged), on
which the ranking depends. nltk's `MARTIN_EXTENSIONS` gives the same stems (docs/decisions/008-webshop-search.md).

Words follow Unicode's word boundaries (UAX #29) as in Lucene's standard tokenizer: `8"` is `8`, `3.5` and `size:small`
are one word, `t-shirt` is two. Each ideograph, kana syllable and emoji is a word. Exceptions are Thai and letters that
are newer than Lucene's Unicode version.
"""

from __future__ import annotations

import re
import unicodedata

_STEP_2 = (
    "ational:ate tional:tion enci:ence anci:ance izer:ize bli:ble alli:al entli:ent eli:e ousli:ous ization:ize "
    "ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al iviti:ive biliti:ble logi:log"
)
_STEP_3 = "icate:ic ative: alize:al iciti:ic ical:ic ful: ness:"
_STEP_4 = "al: ance: ence: er: ic: able: ible: ant: ement: ment: ent: ion: ou: ism: ate: iti: ous: ive: ize:"


def _by_length(rules: str) -> list[tuple[str, str]]:
    pairs = [(ending, new) for ending, _, new in (rule.partition(":") for rule in rules.split())]
    return sorted(pairs, key=lambda pair: -len(pair[0]))


_RULES_2, _RULES_3, _RULES_4 = _by_length(_STEP_2), _by_length(_STEP_3), _by_length(_STEP_4)
_MEASURE = re.compile("vc")


def stem(word: str) -> str:
    """The stem of a lower-case word.

    Example: `stem("relational") == "relat"`, `stem("possibly") == "possibl"`, `stem("us") == "us"`.
    """
    if len(word) <= 2:
        return word
    word = _plural(word)
    word = _past(word)
    if word.endswith("y") and _has_vowel(word[:-1]):
        word = word[:-1] + "i"
    word = _replace(word, _RULES_2, 0)
    word = _replace(word, _RULES_3, 0)
    word = _replace(word, _RULES_4, 1)
    return _tidy(word)


def _plural(word: str) -> str:
    """Step 1a: caresses -> caress, ponies -> poni, cats -> cat."""
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    """Step 1b: agreed -> agree, plastered -> plaster, hopping -> hop, filing -> file."""
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        if word.endswith(ending) and _has_vowel(word[: -len(ending)]):
            word = word[: -len(ending)]
            break
    else:
        return word
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if _double_consonant(word):
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _short_end(word) else word


def _replace(word: str, rules: list[tuple[str, str]], least: int) -> str:
    """Steps 2 to 4: replace the longest matching ending if the measure of the rest is above `least`."""
    for ending, new in rules:
        if word.endswith(ending):
            rest = word[: -len(ending)]
            if ending == "ion" and not rest.endswith(("s", "t")):
                return word
            return rest + new if _measure(rest) > least else word
    return word


def _tidy(word: str) -> str:
    """Step 5: probate -> probat, rate stays, controll -> control."""
    if word.endswith("e"):
        measure = _measure(word)  # a final e adds nothing to it
        if measure > 1 or (measure == 1 and not _short_end(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word


def _shape(word: str) -> str:
    """`c` or `v` for each letter; a y is a vowel after a consonant."""
    shape = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(word: str) -> int:
    """The number of vowels that are followed by a consonant."""
    return len(_MEASURE.findall(_shape(word)))


def _has_vowel(word: str) -> bool:
    return "v" in _shape(word)


def _double_consonant(word: str) -> bool:
    return len(word) >= 2 and word[-1] == word[-2] and _shape(word)[-1] == "c"


def _short_end(word: str) -> bool:
    """Consonant, vowel, consonant other than w, x, y: the word ended in e before stemming."""
    return _shape(word)[-3:] == "cvc" and word[-1] not in "wxy"


MAX_WORD_LENGTH = 255
_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was
will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Lucene's 33 English stop words."""

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
"""The pattern for ASCII, several times as fast; it also matches runs of underscores."""
_POSSESSIVE = ("'s", "’s", "＇s")


def words(text: str) -> list[str]:
    """The words of a lower-case text, in order; words over 255 characters are split into pieces of 255."""
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
    """The index term of a word; None for a stop word."""
    if word.endswith(_POSSESSIVE):
        word = word[:-2]
    return None if word in STOP_WORDS else stem(word)


def terms(text: str) -> list[str]:
    """The index terms of a text, in order, repetitions included.

    Example: `terms("The Women's running-shoes") == ["women", "run", "shoe"]`.
    """
    return [found for found in map(term, words(text.lower())) if found is not None]
