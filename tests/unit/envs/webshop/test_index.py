from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.envs.webshop.index import MAX_QUERY_TERMS, SearchIndex, TextArray, _decoded

WORDS = ["mug", "blue", "lamp", "wool", "soap"]


def scores_of(index: SearchIndex, query: str) -> np.ndarray:
    """The score of every document, 0 without a common term."""
    score_P = np.zeros(len(index._rank_P))
    for weight, postings in index._weighted(query):
        index._add(score_P, weight, postings)
    return score_P.astype(np.float32)


def test_scores_by_hand() -> None:
    """Two documents of lengths 1 and 3, average 2. "mug" is in both: idf = ln(1 + .5 / 2.5)."""
    index = SearchIndex.build(["a", "b"], ["mug", "mug blue mug"])
    idf = math.log(1 + 0.5 / 2.5)

    def share(frequency: int, length: int) -> float:
        return idf * frequency / (frequency + 0.9 * (0.6 + 0.4 * length / 2))

    assert scores_of(index, "mugs") == pytest.approx([share(1, 1), share(2, 3)], rel=1e-6)
    assert scores_of(index, "mug the mug")[0] == pytest.approx(2 * share(1, 1), rel=1e-6)
    assert index.search("mug", 50) == [1, 0]
    assert index.search("mug", 1) == [1]


def test_lengths_are_rounded_down() -> None:
    """Lucene stores 41 words as 40 and 43 as 42; the average is exact."""
    lengths = (40, 41, 42, 43)
    index = SearchIndex.build(list("abcd"), ["mug " + "lamp " * (length - 1) for length in lengths])
    score_P = scores_of(index, "mug")
    assert (score_P[0], score_P[2]) == (score_P[1], score_P[3])
    share = math.log(1 + 0.5 / 4.5) / (1 + 0.9 * (0.6 + 0.4 * 40 / 41.5))
    assert score_P[0] == pytest.approx(share, rel=1e-6)
    assert score_P[0] > score_P[2]


def test_equal_scores_are_in_the_order_of_ids() -> None:
    ids = ["b", "a", "c", "B"]
    assert SearchIndex.build(ids, ["mug"] * 4).search("mug", 3) == [3, 1, 0]


def test_lengths_are_kept_in_a_byte() -> None:
    assert [_decoded(code) for code in (0, 1, 23, 24, 39, 40, 41, 47, 48, 255)] == [
        0, 1, 23, 24, 39, 40, 42, 54, 56, 2013265944,
    ]  # fmt: skip


@pytest.mark.parametrize("query", ["", "   ", "the of and", "unheard", "\n\t!?"])
def test_queries_without_a_known_word_find_nothing(query: str) -> None:
    assert SearchIndex.build(["a"], ["mug"]).search(query, 50) == []


def test_ten_thousand_words() -> None:
    index = SearchIndex.build(["a", "b"], ["mug", "lamp"])
    assert index.search(" ".join(["mug"] * 9999 + ["lamp"]), 50) == [0, 1]
    many = " ".join(f"w{number}" for number in range(MAX_QUERY_TERMS))
    assert index.search(f"mug {many} lamp", 50) == [0]  # only so many different terms count


def test_documents_without_words_are_never_found() -> None:
    index = SearchIndex.build(["a", "b"], ["", "the"])
    assert index.search("the mug", 50) == []


def test_texts_and_ids_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="2 ids but 1 texts"):
        SearchIndex.build(["a", "b"], ["mug"])


@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=6), min_size=1, max_size=40),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=5),
    st.integers(1, 5),
)
def test_the_best_are_those_of_a_plain_sort(documents: list[list[str]], query: list[str], limit: int) -> None:
    ids = [f"{(number * 7) % 41:02}" for number in range(len(documents))]
    index = SearchIndex.build(ids, map(" ".join, documents))
    scores = scores_of(index, " ".join(query))
    ranked = sorted(np.flatnonzero(scores), key=lambda number: (-scores[number], ids[number]))
    assert index.search(" ".join(query), limit) == ranked[:limit]


def test_a_long_list_is_cut_at_the_right_score() -> None:
    """More documents than the sample that bounds the least score looks at."""
    texts = [f"mug {'blue ' * (number % 7)}" for number in range(3000)]
    index = SearchIndex.build([f"{number:04}" for number in range(3000)], texts)
    scores = scores_of(index, "blue mug")
    assert index.search("blue mug", 5) == sorted(range(3000), key=lambda number: (-scores[number], number))[:5]


def test_frequent_terms_are_looked_up_only_where_they_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    words = np.array([f"w{number}" for number in range(200)])
    texts = [" ".join(words[np.minimum(rng.zipf(1.3, 12), 200) - 1]) for _ in range(2000)]
    ids = [f"{number:04}" for number in rng.permutation(2000)]
    index, exhaustive = SearchIndex.build(ids, texts), SearchIndex.build(ids, texts)
    queries = [" ".join(words[np.minimum(rng.zipf(1.2, 6), 200) - 1]) for _ in range(100)]
    expected = [exhaustive.search(query, 20) for query in queries]  # no term has 4,096 postings
    monkeypatch.setattr("hgpo.envs.webshop.index._FREQUENT", 1)
    assert [index.search(query, 20) for query in queries] == expected


def test_saved_and_mapped(tmp_path: Path) -> None:
    index = SearchIndex.build(["b", "a"], ["blue mug", "reading lamp ünï"])
    index.save(tmp_path)
    mapped = SearchIndex.open(tmp_path, documents=2)
    assert isinstance(mapped._document_H.base, np.memmap)
    assert mapped.search("lamp mug ünï", 5) == index.search("lamp mug ünï", 5)
    assert list(mapped.vocabulary) == sorted(["blue", "mug", "read", "lamp", "ünï"])


def test_text_array() -> None:
    texts = TextArray.of(["", "apple", "pear", "ß"])
    assert (len(texts), texts[-1], texts[1:3]) == (4, "ß", ["apple", "pear"])
    assert [texts.find(word) for word in ("pear", "ß", "", "pea", "z")] == [2, 3, 0, None, None]
    with pytest.raises(IndexError):
        texts[4]
    assert list(TextArray.of([])) == []
