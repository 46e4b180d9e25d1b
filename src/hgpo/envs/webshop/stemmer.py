"""The Porter stemmer as Lucene has it: Porter's own later version of his algorithm (1980).

Own code because no small library has this variant: the Snowball project's "porter" follows the paper to the letter, so
it lacks the author's later changes (`-bli` and `-logi` endings, words of one or two letters left alone), and an
index must stem as Lucene does to rank as it does. nltk's `MARTIN_EXTENSIONS` stems alike
(docs/decisions/008-webshop-search.md).
"""

from __future__ import annotations

import re

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
    """Steps 2 to 4: the longest ending that fits is replaced if enough of the word stays before it."""
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
    """How many times a vowel is followed by a consonant."""
    return len(_MEASURE.findall(_shape(word)))


def _has_vowel(word: str) -> bool:
    return "v" in _shape(word)


def _double_consonant(word: str) -> bool:
    return len(word) >= 2 and word[-1] == word[-2] and _shape(word)[-1] == "c"


def _short_end(word: str) -> bool:
    """Consonant, vowel, consonant other than w, x, y: an e was there before."""
    return _shape(word)[-3:] == "cvc" and word[-1] not in "wxy"
