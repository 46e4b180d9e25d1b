from __future__ import annotations

import sys

import pytest

from hgpo.envs.webshop.nouns import STOP_WORDS, blank_nouns, noun_tagger


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("100-Pack of Women's T-Shirts, 8oz", "pack women t shirts oz"),
        ('The Warm Mug (Blue/Red) - 16" x 16"', "warm mug blue red x"),
        ("Dr. Smith Inc. Soap", "smith soap"),  # abbreviations are one token with their full stop
        ("Don't Cant wont", "nt wo nt"),  # run-together contractions are cut, their clitic stays alphabetic
        ("wood.Table www.shop.com", "wood table"),
        ("Café™ crème★mug", "café crème mug"),
        ("7pm 10am", "pm"),
        ("", ""),
        ("2021 !!! 3.5", ""),
    ],
)
def test_alphabetic_words_that_are_no_stop_words(title: str, words: str) -> None:
    assert blank_nouns(title) == tuple(words.split())


def test_repetitions_count() -> None:
    assert blank_nouns("mug mug Mug") == ("mug", "mug", "mug")


def test_the_stop_words_are_alphabetic() -> None:
    assert len(STOP_WORDS) == 305
    assert all(word.isalpha() for word in STOP_WORDS)


def test_unknown_taggers_and_missing_libraries_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nltk", "spacy:", ""):
        with pytest.raises(ValueError, match="choose 'blank' or 'spacy:MODEL'"):
            noun_tagger(name)
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(ValueError, match="needs spaCy: pip install spacy"):
        noun_tagger("spacy:en_core_web_sm")
