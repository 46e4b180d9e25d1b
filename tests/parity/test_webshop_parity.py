"""Sessions recorded from the published simulator are repeated to the letter, and searches as its Lucene answered."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hgpo.envs.webshop import Catalog, WebShopEnv
from hgpo.envs.webshop.nouns import blank_nouns

FILES = Path(__file__).parents[3] / "shared" / "webshop"
DATA = Path(__file__).parent / "data"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FILES.is_dir(), reason=f"the official catalogue is not here: {FILES}"),
]


def test_prices_and_goals_are_drawn_as_recorded() -> None:
    catalog, record = _catalog(), _record()
    assert {product.asin: price for product, price in zip(catalog.products, catalog.prices, strict=True)} == record[
        "prices"
    ]
    assert len(catalog.goals) == record["n_goals"] == 6910
    for session in record["sessions"]:
        goal, recorded = catalog.goals[session["goal_index"]], session["goal"]
        assert goal.asin == recorded["asin"]
        assert goal.instruction == recorded["instruction_text"]
        assert goal.options == recorded["goal_options"]
        assert list(goal.attributes) == recorded["attributes"]
        assert goal.price_upper == recorded["price_upper"]
        assert goal.weight == pytest.approx(recorded["weight"], rel=1e-12)


def test_every_step_of_the_recorded_sessions() -> None:
    environment = WebShopEnv(_catalog())
    compared = 0
    for number, session in enumerate(_record()["sessions"]):
        for step in session["steps"]:
            if step["action"] is None:
                observation, info = environment.reset(goal=session["goal_index"])
                reward, done = 0.0, False
            else:
                observation, reward, done, _, info = environment.step(step["action"])
            where = f"session {number}, {step['action']!r}"
            assert observation == step["observation"], where
            assert reward == pytest.approx(step["reward"], abs=1e-6), where
            assert done == step["done"], where
            if step["available"] is not None:
                assert info["available_actions"] == step["available"], where
            compared += 1
    assert compared == 876


def test_the_fifty_best_are_lucenes_for_every_query() -> None:
    """1,353 queries: those of the sessions, every instruction, every product's title and search phrase."""
    catalog = _catalog()
    recorded = dict(line.split() for line in (DATA / "webshop_searches.txt").read_text().splitlines())
    sessions = _record()["sessions"]
    queries = {step["action"][7:-1].lower() for s in sessions for step in s["steps"] if _is_search(step["action"])}
    queries |= {session["goal"]["instruction_text"].lower() for session in sessions}
    queries |= {product.title.lower() for product in catalog.products} | {p.query for p in catalog.products}
    different = [query for query in queries if recorded.get(_digest(query)) != _digest(_found(catalog, query))]
    assert len(queries) == len(recorded) == 1353
    assert not different, f"{len(different)} queries differ; first: {different[0]!r}"


def test_titles_have_the_nouns_that_spacys_blank_pipeline_leaves() -> None:
    recorded = (DATA / "webshop_nouns.txt").read_text().split()
    titles = [product.title for product in _catalog().products]
    found = [_digest(" ".join(blank_nouns(title))) for title in titles]
    different = [title for title, one, other in zip(titles, found, recorded, strict=True) if one != other]
    assert not different


def test_a_saved_catalogue_answers_the_same(tmp_path: Path) -> None:
    catalog = _catalog()
    catalog.save(tmp_path / "kept")
    kept = Catalog.open(tmp_path / "kept")
    assert list(kept.products) == list(catalog.products)
    assert list(kept.goals) == list(catalog.goals)
    assert list(kept.prices) == list(catalog.prices)
    for goal in catalog.goals[:50]:
        assert kept.index.search(goal.instruction, 50) == catalog.index.search(goal.instruction, 50)


def _found(catalog: Catalog, query: str) -> str:
    return " ".join(catalog.products[number].asin for number in catalog.index.search(query, 50))


def _is_search(action: str | None) -> bool:
    return action is not None and action.startswith("search[") and action != "search[]"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def _catalog() -> Catalog:
    return Catalog.load(FILES / "items_shuffle_1000.json", FILES / "items_ins_v2_1000.json", seed=1234)


@cache
def _record() -> Any:
    return json.loads((FILES / "official_traces_text.json").read_text())
