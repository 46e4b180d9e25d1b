"""How near libraries come to Lucene's search and to Porter's stemmer as Lucene has it, and what they cost.

python benchmarks/webshop_libraries.py FOLDER        with items_shuffle_1000.json and items_ins_v2_1000.json

Wants `pip install bm25s tantivy PyStemmer snowballstemmer nltk rapidfuzz thefuzz`; what is missing is left out. The
own index stands for Lucene here: `tests/parity/test_webshop_parity.py` holds it to the 50 best that Lucene gave for
each of the 1,353 queries, and its stems were compared with those of the same analyser.
"""

from __future__ import annotations

import argparse
import importlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hgpo.envs.webshop import Catalog
from hgpo.envs.webshop.analysis import STOP_WORDS, terms, words
from hgpo.envs.webshop.fuzzy import token_set_ratio
from hgpo.envs.webshop.index import K1, B, SearchIndex
from hgpo.envs.webshop.reward import MATCH_ABOVE, normalise_color
from hgpo.envs.webshop.stemmer import stem

BEST = 50
Search = Callable[[str], Sequence[int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sessions", type=Path, help="recorded sessions, for their queries")
    arguments = parser.parse_args()
    catalog = Catalog.load(*(arguments.folder / f"items_{name}_1000.json" for name in ("shuffle", "ins_v2")), seed=1234)
    report_stemmers(catalog)
    report_searches(catalog, read_queries(catalog, arguments.sessions or arguments.folder))
    report_ratios(catalog)


def read_queries(catalog: Catalog, path: Path) -> list[str]:
    """Titles, search phrases, and the queries and instructions of the recorded sessions."""
    found = {product.title.lower() for product in catalog.products} | {product.query for product in catalog.products}
    path = path / "official_traces_text.json" if path.is_dir() else path
    if path.is_file():
        for session in json.loads(path.read_text())["sessions"]:
            found.add(session["goal"]["instruction_text"].lower())
            actions = [step["action"] or "" for step in session["steps"]]
            found |= {action[7:-1].lower() for action in actions if action.startswith("search[") and action[7:-1]}
    return sorted(found)


def report_stemmers(catalog: Catalog) -> None:
    vocabulary = sorted({word for product in catalog.products for word in words(product.indexed_text)} - STOP_WORDS)
    own = [stem(word) for word in vocabulary]
    print(f"stemmer, of {len(vocabulary):,} distinct words | other stems | µs a word")
    for name, other in stemmers():
        started = time.process_time()
        stems = [other(word) for word in vocabulary]
        cost = 1e6 * (time.process_time() - started) / len(vocabulary)
        wrong = [word for word, one, two in zip(vocabulary, own, stems, strict=True) if one != two]
        print(f"{name} | {len(wrong)} | {cost:.1f} | e.g. {', '.join(wrong[:: max(1, len(wrong) // 5)][:5])}")


def stemmers() -> Iterator[tuple[str, Callable[[str], str]]]:
    yield "own", stem
    if porter := library("nltk.stem.porter"):
        for mode in ("MARTIN_EXTENSIONS", "ORIGINAL_ALGORITHM", "NLTK_EXTENSIONS"):
            yield f"nltk {mode}", porter.PorterStemmer(mode=mode).stem
    if stemmer := library("Stemmer"):
        yield "PyStemmer porter", stemmer.Stemmer("porter").stemWord
        yield "PyStemmer english", stemmer.Stemmer("english").stemWord
    if snowball := library("snowballstemmer"):
        yield "snowballstemmer porter", snowball.stemmer("porter").stemWord


def report_searches(catalog: Catalog, queries: Sequence[str]) -> None:
    texts = [product.indexed_text for product in catalog.products]
    ids = [product.asin for product in catalog.products]
    wanted: list[list[int]] = []
    print(f"search, {len(queries):,} queries | build CPU s | CPU ms a query | same {BEST} | as a set | same 10")
    for name, build in engines():
        started = time.process_time()
        search = build(ids, texts)
        built = time.process_time() - started
        started = time.process_time()
        found = [list(search(query)) for query in queries]
        cost = 1e3 * (time.process_time() - started) / len(queries)
        wanted = wanted or found  # the own comes first
        pairs = list(zip(wanted, found, strict=True))
        ordered, tens = sum(one == two for one, two in pairs), sum(one[:10] == two[:10] for one, two in pairs)
        sets = sum(set(one) == set(two) for one, two in pairs)
        print(f"{name} | {built:.2f} | {cost:.2f} | {ordered} | {sets} | {tens}")


def engines() -> Iterator[tuple[str, Callable[[list[str], list[str]], Search]]]:
    yield "own", own_engine
    if bm25s := library("bm25s"):
        yield "bm25s, own terms", lambda ids, texts: bm25s_engine(bm25s, ids, texts, terms)
        if stemmer := library("Stemmer"):
            yield (
                "bm25s, its tokenizer, PyStemmer porter",
                lambda ids, texts: bm25s_engine(bm25s, ids, texts, bm25s_terms(bm25s, stemmer.Stemmer("porter"))),
            )
    if tantivy := library("tantivy"):
        yield "tantivy, own terms, its k1 1.2 and b 0.75", lambda ids, texts: tantivy_engine(tantivy, ids, texts)


def library(name: str) -> Any:
    """A module, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def own_engine(ids: list[str], texts: list[str]) -> Search:
    index = SearchIndex.build(ids, texts)
    return lambda query: index.search(query, BEST)


def bm25s_terms(bm25s: Any, stemmer: Any) -> Callable[[str], list[str]]:
    options: dict[str, Any] = {"stopwords": sorted(STOP_WORDS), "stemmer": stemmer, "show_progress": False}
    return lambda text: list(bm25s.tokenize([text], return_ids=False, **options)[0])


def bm25s_engine(bm25s: Any, ids: list[str], texts: list[str], analyse: Callable[[str], list[str]]) -> Search:
    """Scores of every document; equal ones by id, and only documents that have a word of the query."""
    index = bm25s.BM25(k1=K1, b=B, method="lucene")
    index.index([analyse(text) for text in texts], show_progress=False)
    rank = np.argsort(np.argsort(np.array(ids)))

    def search(query: str) -> list[int]:
        tokens = [token for token in analyse(query) if token in index.vocab_dict]
        if not tokens:
            return []
        score = np.asarray(index.get_scores(tokens))
        order = np.lexsort((rank, -score))[:BEST]
        return [int(number) for number in order if score[number] > 0]

    return search


def tantivy_engine(tantivy: Any, ids: list[str], texts: list[str]) -> Search:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("text", tokenizer_name="whitespace")
    builder.add_integer_field("number", stored=True)
    index = tantivy.Index(builder.build(), path=tempfile.mkdtemp())
    writer = index.writer(num_threads=1)
    for number in sorted(range(len(ids)), key=ids.__getitem__):  # equal scores stay in this order
        writer.add_document(tantivy.Document(text=" ".join(terms(texts[number])), number=number))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def search(query: str) -> list[int]:
        parts = [(tantivy.Occur.Should, tantivy.Query.term_query(index.schema, "text", term)) for term in terms(query)]
        if not parts:
            return []
        hits = searcher.search(tantivy.Query.boolean_query(parts), BEST).hits
        return [searcher.doc(address)["number"][0] for _, address in hits]

    return search


def report_ratios(catalog: Catalog) -> None:
    """Each goal's attributes and options against those of a hundred products: hits of the reward that would differ."""
    wanted = sorted({text for goal in catalog.goals for text in goal.attributes})[:300]
    offered = sorted({text for product in catalog.products for text in product.attributes})[:1000]
    pairs = [(one, two) for one in offered for two in wanted]
    colors = sorted({value for product in catalog.products for value in product.options.get("color", ())})[:300]
    pairs += [(normalise_color(one), repr(("color", two))) for one in colors for two in colors]
    started = time.process_time()
    own = [token_set_ratio(one, two) for one, two in pairs]
    print(f"token_set_ratio, {len(pairs):,} pairs | own {1e6 * (time.process_time() - started) / len(pairs):.1f} µs")
    if thefuzz := library("thefuzz.fuzz"):
        report_ratio("thefuzz", thefuzz.token_set_ratio, pairs, own)
    if rapidfuzz := library("rapidfuzz.fuzz"):
        ratio, prepare = rapidfuzz.token_set_ratio, library("rapidfuzz.utils").default_process
        report_ratio("rapidfuzz", ratio, pairs, own)
        report_ratio(
            "rapidfuzz, its default_process, rounded",
            lambda one, two: round(ratio(one, two, processor=prepare)),
            pairs,
            own,
        )


def report_ratio(
    name: str, ratio: Callable[[str, str], float], pairs: Sequence[tuple[str, str]], own: list[int]
) -> None:
    started = time.process_time()
    other = [ratio(one, two) for one, two in pairs]
    cost = 1e6 * (time.process_time() - started) / len(pairs)
    values = sum(one != two for one, two in zip(own, other, strict=True))
    hits = sum((one > MATCH_ABOVE) != (two > MATCH_ABOVE) for one, two in zip(own, other, strict=True))
    print(f"{name} | other values {values} | other hits {hits} | {cost:.1f} µs")


if __name__ == "__main__":
    main()
