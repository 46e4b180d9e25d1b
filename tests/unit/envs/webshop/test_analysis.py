from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.envs.webshop.analysis import STOP_WORDS, stem, terms, words

STEMS = """
caresses:caress ponies:poni cats:cat feed:feed agreed:agre plastered:plaster bled:bled motoring:motor sing:sing
conflated:conflat troubled:troubl sized:size hopping:hop falling:fall hissing:hiss fizzed:fizz failing:fail
filing:file happy:happi sky:sky relational:relat conditional:condit rational:ration valenci:valenc digitizer:digit
conformabli:conform radicalli:radic differentli:differ vileli:vile analogousli:analog vietnamization:vietnam
predication:predic operator:oper feudalism:feudal decisiveness:decis hopefulness:hope formaliti:formal
sensitiviti:sensit sensibiliti:sensibl triplicate:triplic formative:form formalize:formal electriciti:electr
electrical:electr hopeful:hope goodness:good revival:reviv allowance:allow inference:infer airliner:airlin
adjustable:adjust defensible:defens irritant:irrit replacement:replac adjustment:adjust dependent:depend
adoption:adopt communism:commun activate:activ angulariti:angular homologous:homolog effective:effect
bowdlerize:bowdler probate:probat rate:rate cease:ceas controll:control roll:roll possibly:possibl
technology:technolog us:us as:as y:y
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The Women's running-shoes", "women run shoe"),
        ('16" x 3.5 in 1,000 oz.', "16 x 3.5 1,000 oz"),
        ("size:small t-shirt o'clock u.s.a", "size:smal t shirt o'clock u.s.a"),
        ("a_b __ _a1", "a_b _a1"),
        ("日本語 カタカナ", "日 本 語 カタカナ"),
        ("★ ok", "★ ok"),
        ("x² ½", "x"),
        ("to be or not to be", ""),
        ("", ""),
    ],
)
def test_terms(text: str, found: str) -> None:
    assert terms(text) == found.split()


def test_long_words_are_cut() -> None:
    assert [len(word) for word in words("z" * 600)] == [255, 255, 90]


def test_there_are_thirty_three_stop_words() -> None:
    assert len(STOP_WORDS) == 33


@pytest.mark.parametrize("pair", STEMS.split())
def test_stems(pair: str) -> None:
    """The examples of Porter's paper (1980), and at the end what his later version, Lucene's, does otherwise."""
    word, expected = pair.split(":")
    assert stem(word) == expected


@given(st.text(alphabet="ab_ 12:'.,;-", max_size=20))
def test_ascii_words_are_found_as_all_others(text: str) -> None:
    assert words(text) == words(text + " \u00e9")[:-1]


@given(st.text(max_size=40))
def test_any_text_is_taken(text: str) -> None:
    assert all(terms(text))


@given(st.from_regex(r"[a-z]{1,20}", fullmatch=True))
def test_stems_do_not_grow(word: str) -> None:
    assert 1 <= len(stem(word)) <= len(word) + 1
