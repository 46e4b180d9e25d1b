"""The search index of a shop, in a few flat arrays that processes share, and `TextArray` for its terms."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hgpo.envs.base import MadeOnAccess
from hgpo.envs.webshop.analysis import term, terms, words


def memory_map(path: Path) -> NDArray[Any]:
    """A `.npy` file as a memory-mapped array.

    It is a plain view, since slicing the subclass for mapped arrays is several times as slow.

    Raises:
        ValueError: the file is not a `.npy` file, or is truncated.
        OSError: the file cannot be read.
    """
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray)  # type: ignore[no-any-return]
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path.name}: {error}") from error


def is_partition(start_N1: NDArray[Any], values_V: NDArray[Any]) -> bool:
    """Whether `start_N1` (int64) divides the 1-D array `values_V` into N consecutive slices."""
    if start_N1.dtype != np.int64 or start_N1.ndim != 1 or values_V.ndim != 1 or not len(start_N1):
        return False
    return bool(start_N1[0] == 0 and start_N1[-1] == len(values_V) and np.all(np.diff(start_N1) >= 0))


def _encoded(text: str) -> bytes:
    """UTF-8, also of half a surrogate pair, which JSON can escape."""
    return text.encode("utf-8", "surrogatepass")


class TextArray(MadeOnAccess[str]):
    """A sequence of texts without one Python object per text.

    Example: `TextArray.of(["apple", "pear"])[1] == "pear"`; `find` needs texts sorted by their UTF-8 bytes.
    """

    def __init__(self, content: NDArray[np.uint8], start_N1: NDArray[np.int64]) -> None:
        super().__init__(len(start_N1) - 1)
        self._content = content
        self._start_N1 = start_N1

    @classmethod
    def of(cls, texts: Iterable[str]) -> TextArray:
        """Texts in memory."""
        encoded = list(map(_encoded, texts))
        start_N1 = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=start_N1[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), start_N1)

    def save(self, path: Path) -> None:
        """Write `<path>.npy` (all bytes) and `<path>_start.npy`."""
        np.save(path.with_name(f"{path.name}.npy"), self._content, allow_pickle=False)
        np.save(path.with_name(f"{path.name}_start.npy"), self._start_N1, allow_pickle=False)

    @classmethod
    def open(cls, path: Path) -> TextArray:
        """Map what `save` wrote.

        Raises:
            ValueError: a file is not an array, or the starts do not divide the bytes.
        """
        content, start_N1 = (memory_map(path.with_name(f"{path.name}{end}.npy")) for end in ("", "_start"))
        if content.dtype != np.uint8 or not is_partition(start_N1, content):
            raise ValueError(f"{path.name}_start.npy does not divide {path.name}.npy")
        return cls(content, start_N1)

    def find(self, text: str) -> int | None:
        """The position of a text, by binary search, or None."""
        wanted = _encoded(text)
        number = bisect_left(range(len(self)), wanted, key=self._bytes)
        return number if number < len(self) and self._bytes(number) == wanted else None

    def _element(self, number: int) -> str:
        return self._bytes(number).decode("utf-8", "surrogatepass")

    def _bytes(self, number: int) -> bytes:
        return self._content[self._start_N1[number] : self._start_N1[number + 1]].tobytes()


# Array names end in their axes: P documents, T terms (sorted), H postings (term by term, documents ascending).
#
# A posting's share of a document's score is `w - w / (1 + f·n)`, with the query's weight `w = idf·count` for the
# term, the frequency `f` of the term in the document and `n = 1 / (k1·(1 - b + b·length/average))`. `length` is rounded
# down to one byte as in Lucene. The index stores `1 + f·n`, the only part that depends on the document. Arithmetic is
# float32 as in Lucene; sums are float64. Documents of equal score are ordered by id, as in the official searcher.


K1, B = 0.9, 0.4
MAX_QUERY_TERMS = 1024
"""Lucene rejects a query with more different terms; this index ignores the terms after the first 1,024."""
_FREQUENT = 4096  # postings; adding up fewer is cheap


class SearchIndex:
    """An inverted index with BM25 ranking as in Lucene. `save` and `open` use memory-mapped files.

    Example: `SearchIndex.build(["b", "a"], ["blue mug", "red mug"]).search("mugs", 50)` is `[1, 0]`: positions of
    documents, best first; equal scores in the order of the ids.
    """

    def __init__(
        self,
        vocabulary: TextArray,
        term_start_T1: NDArray[np.int64],
        document_H: NDArray[np.int32],
        saturation_H: NDArray[np.float32],
        rank_P: NDArray[np.int32],
    ) -> None:
        self.vocabulary = vocabulary
        self._term_start_T1 = term_start_T1
        self._document_H = document_H
        self._saturation_H = saturation_H
        self._rank_P = rank_P
        self._cached_search = lru_cache(maxsize=4096)(self._search)

    @classmethod
    def build(cls, ids: Sequence[str], texts: Iterable[str]) -> SearchIndex:
        """Index one text per id. Fewer or more texts than ids is a `ValueError`."""
        vocabulary, key_H, frequency_H, length_P = _count(texts)
        if len(length_P) != len(ids):
            raise ValueError(f"{len(ids)} ids but {len(length_P)} texts")
        ordered = sorted(vocabulary, key=str.encode)
        position = np.empty(len(ordered), np.int64)
        position[np.array([vocabulary[word] for word in ordered], np.int64)] = np.arange(len(ordered))
        term_H = position[key_H >> 32]
        order_H = np.argsort(term_H, kind="stable")  # the documents of a term stay in ascending order
        document_H, frequency_H = (key_H[order_H] & 0xFFFFFFFF).astype(np.int32), frequency_H[order_H]
        term_start_T1 = np.zeros(len(ordered) + 1, np.int64)
        np.cumsum(np.bincount(term_H, minlength=len(ordered)), out=term_start_T1[1:])
        inverse_P = _inverse_norms(length_P)
        saturation_H = np.float32(1) + frequency_H.astype(np.float32) * inverse_P[document_H]
        rank_P = np.empty(len(ids), np.int32)
        rank_P[sorted(range(len(ids)), key=lambda number: _encoded(ids[number]))] = np.arange(len(ids))
        return cls(TextArray.of(ordered), term_start_T1, document_H, saturation_H, rank_P)

    def search(self, query: str, limit: int) -> list[int]:
        """Positions of the `limit` best documents with a term of the query, best first."""
        return list(self._cached_search(query, limit))

    def save(self, folder: Path) -> None:
        """Write the arrays as `.npy` files to an existing folder."""
        self.vocabulary.save(folder / "terms")
        for name, array in self._arrays().items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)

    @classmethod
    def open(cls, folder: Path, documents: int) -> SearchIndex:
        """Map the files of `save` for an index of `documents` documents; processes share the memory.

        Raises:
            ValueError: A file is no array, or the arrays do not fit each other.
        """
        names = ("term_start", "document", "saturation", "rank")
        start, document, saturation, rank = (memory_map(folder / f"{name}.npy") for name in names)
        vocabulary = TextArray.open(folder / "terms")
        if (
            [array.dtype.str for array in (document, saturation, rank)] != ["<i4", "<f4", "<i4"]
            or len(start) != len(vocabulary) + 1
            or not is_partition(start, document)
            or saturation.shape != document.shape
            or rank.shape != (documents,)
            or (document.size and not 0 <= document.min() <= document.max() < documents)
        ):
            raise ValueError(f"{', '.join(f'{name}.npy' for name in names)} do not form one search index")
        return cls(vocabulary, start, document, saturation, rank)

    def _search(self, query: str, limit: int) -> tuple[int, ...]:
        """Add the scores of rare terms first.

        Once the remaining terms cannot bring any other document among the best, they are looked up only for the
        documents that can still be among the best.
        """
        score_P = np.zeros(len(self._rank_P))
        weighted = sorted(self._weighted(query), key=lambda pair: pair[1].stop - pair[1].start)
        left = float(sum(weight for weight, _ in weighted))
        for number, (weight, postings) in enumerate(weighted):
            length = postings.stop - postings.start
            least = _least_of_best(score_P, limit) - left if length > _FREQUENT else 0.0
            if least > 0:
                document_N = np.flatnonzero(score_P >= least)
                if len(document_N) < length // 8:
                    score_N = self._look_up(document_N, score_P[document_N], weighted[number:])
                    return self._best(document_N, score_N, limit)
            self._add(score_P, weight, postings)
            left -= float(weight)
        document_N = np.flatnonzero(score_P >= max(_least_of_best(score_P, limit), np.finfo(np.float64).tiny))
        return self._best(document_N, score_P[document_N], limit)

    def _best(self, document_N: NDArray[np.int64], score_N: NDArray[np.float64], limit: int) -> tuple[int, ...]:
        rounded_N = score_N.astype(np.float32)
        if len(rounded_N) > limit:
            kept_N = rounded_N >= np.partition(rounded_N, -limit)[-limit]
            document_N, rounded_N = document_N[kept_N], rounded_N[kept_N]
        order_N = np.lexsort((self._rank_P[document_N], -rounded_N))
        return tuple(document_N[order_N[:limit]].tolist())

    def _add(self, score_P: NDArray[np.float64], weight: np.float32, postings: slice) -> None:
        share_H = weight - weight / self._saturation_H[postings]
        np.add.at(score_P, self._document_H[postings], share_H.astype(np.float64))

    def _look_up(
        self, document_N: NDArray[np.int64], score_N: NDArray[np.float64], weighted: Sequence[tuple[np.float32, slice]]
    ) -> NDArray[np.float64]:
        wanted_N = document_N.astype(np.int32)
        for weight, postings in weighted:
            document_H, saturation_H = self._document_H[postings], self._saturation_H[postings]
            place_N = np.minimum(np.searchsorted(document_H, wanted_N), len(document_H) - 1)
            share_N = weight - weight / saturation_H[place_N]
            score_N = score_N + np.where(document_H[place_N] == wanted_N, share_N, 0)
        return score_N

    def _weighted(self, query: str) -> list[tuple[np.float32, slice]]:
        """The weight and the postings of each known term of a query."""
        found = []
        for word, count in islice(Counter(terms(query)).items(), MAX_QUERY_TERMS):
            number = self.vocabulary.find(word)
            if number is not None:
                start, stop = int(self._term_start_T1[number]), int(self._term_start_T1[number + 1])
                documents = stop - start
                rarity = np.float32(math.log(1 + (len(self._rank_P) - documents + 0.5) / (documents + 0.5)))
                found.append((np.float32(count) * rarity, slice(start, stop)))
        return found

    def _arrays(self) -> dict[str, NDArray[np.generic]]:
        return {
            "term_start": self._term_start_T1,
            "document": self._document_H,
            "saturation": self._saturation_H,
            "rank": self._rank_P,
        }

    def __reduce__(self) -> tuple[object, ...]:
        return SearchIndex, (self.vocabulary, *self._arrays().values())


def _least_of_best(score_P: NDArray[np.float64], limit: int) -> float:
    """The `limit`-th highest score, lowered slightly to keep scores that are equal in float32; 0 if there are fewer.

    The same value of a sample is a lower bound; it reduces the number of candidates.
    """
    sample = score_P[:: max(1, len(score_P) // (limit * 64))]
    least = np.partition(sample, -limit)[-limit] if len(sample) >= limit else 0.0
    score_N = score_P[score_P >= least] if least > 0 else score_P[score_P > 0]
    return float(np.partition(score_N, -limit)[-limit]) * (1 - 1e-6) if len(score_N) >= limit else 0.0


class _TermNumbers(dict[str, int]):
    """Word -> number of its term, -1 for a stop word; every word is analysed once."""

    def __init__(self) -> None:
        self.terms: dict[str, int] = {}

    def __missing__(self, word: str) -> int:
        found = term(word)
        number = -1 if found is None else self.terms.setdefault(found, len(self.terms))
        self[word] = number
        return number


def _count(texts: Iterable[str]) -> tuple[dict[str, int], NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Terms in order of first appearance; sorted (term·2^32 + document) and frequencies; words per document."""
    numbers = _TermNumbers()
    lengths: list[int] = []
    keys = [np.empty(0, np.int64)]
    for text in texts:
        found = np.fromiter(map(numbers.__getitem__, words(text.lower())), np.int64)
        found = found[found >= 0]
        keys.append((found << 32) | len(lengths))
        lengths.append(len(found))
    key_H, frequency_H = np.unique(np.concatenate(keys), return_counts=True)
    return numbers.terms, key_H, frequency_H.astype(np.int32), np.array(lengths, np.int64)


def _inverse_norms(length_P: NDArray[np.int64]) -> NDArray[np.float32]:
    """1 / (k1·(1 - b + b·length/average)) per document, with lengths rounded down to one byte."""
    total = int(length_P.sum())
    average = np.float32(total / len(length_P)) if total else np.float32(1)
    lengths = np.array([_decoded(code) for code in range(256)], np.float32)
    inverse = np.float32(1) / (np.float32(K1) * ((np.float32(1) - np.float32(B)) + np.float32(B) * lengths / average))
    code_P = np.searchsorted(lengths, length_P, side="right") - 1
    return inverse[code_P]


def _decoded(code: int) -> int:
    """The length that a byte encodes: exact up to 39, then four significant bits (Lucene's SmallFloat)."""
    exact = 24
    if code < exact:
        return code
    bits, shift = (code - exact) & 0x07, (code - exact) >> 3
    return exact + (bits if shift == 0 else (bits | 0x08) << (shift - 1))
