"""Sentences of README.md and docs/choosing.md state the stored figures and claim significance only where it is."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import campaign_table
import choosing_tables
import trained_page
from paired import sign_flip_p_value

ROOT = Path(__file__).parents[3]
README, CHOOSING = ROOT / "README.md", ROOT / "docs" / "choosing.md"
HOUSEHOLDS, ALFWORLD, SHOPS = choosing_tables.POOLS, choosing_tables.ALFWORLD, choosing_tables.SHOPS
TEXT, G2PO_KEY = "observation", "published_g2po"
HGPO, GIGPO, NESTED_TD = f"hgpo paper / {TEXT}", f"gigpo / {TEXT}", f"nested_td / {G2PO_KEY}"
NAMES = choosing_tables.TRAINED
tables = cache(campaign_table.tables)
FIRST, *OTHERS = (campaign for campaign in trained_page.CAMPAIGNS if campaign.row)
[OF_ALFWORLD] = (campaign for campaign in OTHERS if campaign.settings.startswith("alfworld-tiny"))


def words(page: Path) -> str:
    return " ".join(page.read_text(encoding="utf-8").split())


def stored(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((ROOT / "benchmarks" / name).read_text(encoding="utf-8"))
    return rows


COSINES = {
    (row["pool"], row["estimator"], row["key"]): row["figures"]["same tasks"]
    for row in stored("gradients.json")
    if row["rollouts"] == choosing_tables.ROLLOUTS
}


def shown(figures: list[float]) -> str:
    """A mean with its interval, as the page writes it."""
    mean, low, high = (f"{figure:.2f}".replace("0.", ".", 1).replace("-", "−") for figure in figures)
    return f"{mean} ({low} to {high})"


def minus(pool: str, estimator: str, reference: str) -> str:
    """The cosine of `estimator` with the text minus that of a reference row."""
    return shown(COSINES[pool, estimator, TEXT][reference])


def behind_nested_td(estimator: str) -> str:
    """NestedTD with G2PO's key minus `estimator` with its best key, on ALFWorld."""
    keys = [key for pool, name, key in COSINES if (pool, name) == (ALFWORLD, estimator)]
    best = max(keys, key=lambda key: COSINES[ALFWORLD, estimator, key][""][0])
    mean, low, high = COSINES[ALFWORLD, estimator, best][NESTED_TD]
    return shown([-mean, -high, -low])


def gradient_sentences() -> list[str]:
    first, last = (minus(pool, "nested_td", HGPO) for pool in (HOUSEHOLDS[0], HOUSEHOLDS[-1]))
    no_std, no_history = (
        ", ".join(minus(pool, name, HGPO) for pool in HOUSEHOLDS) for name in ("hgpo paper, no std", "hgpo level 0")
    )
    return [
        f"NestedTD − HGPO, both with the text: {first} at the start, {last} at the end, in shops "
        f"{minus(SHOPS, 'nested_td', HGPO)}.",
        f"HGPO without std − with it (text): {no_std}; ALFWorld {minus(ALFWORLD, 'hgpo paper, no std', HGPO)}.",
        f"NestedTD − each, best keys: G2PO {behind_nested_td('g2po')}, GiGPO {behind_nested_td('gigpo')}, HGPO "
        f"{behind_nested_td('hgpo paper').rstrip(')')}",
        f"GraphGPO (exact state) {behind_nested_td('graphgpo')}. HGPO − GiGPO (text): "
        f"{minus(ALFWORLD, 'hgpo paper', GIGPO)}, on `valid_seen` {minus('alfworld-seen', 'hgpo paper', GIGPO)}.",
        f"HGPO without history − HGPO (text, household): {no_history}; ALFWorld "
        f"{minus(ALFWORLD, 'hgpo level 0', HGPO)}, shops {minus(SHOPS, 'hgpo level 0', HGPO)}.",
    ]


@pytest.mark.parametrize("sentence", gradient_sentences())
def test_sentences_about_gradients_state_the_stored_figures(sentence: str) -> None:
    assert sentence in words(CHOOSING)


def test_sentences_about_single_steps_state_the_stored_figures() -> None:
    rows = [row for row in stored("step_errors.json") if row["estimate"] == "level 2" and row["size"] == 8]
    changes = {
        (row["pool"], row["key"], row["of"] == "all steps"): shown(row["squared bias minus level 0"]) for row in rows
    }
    text, key = (changes["quickstart-start", state, True] for state in (TEXT, G2PO_KEY))
    shops, with_others = (changes[SHOPS, TEXT, all_steps] for all_steps in (True, False))
    assert (
        f"household, text 1.08, {text}; household, G2PO's key .32, +{key}; shops .49, {shops}, steps whose history "
        f"other rollouts share .38, {with_others}."
    ) in words(CHOOSING)


def leads(campaign: trained_page.Campaign) -> list[tuple[str, campaign_table.Lead]]:
    """Every pair of the table with the better one first, as in "NestedTD − GRPO", largest lead first."""
    found = [
        (f"{NAMES[one]} − {NAMES[other]}", lead)
        for row in tables()[campaign.settings]
        for name, lead in row.leads.items()
        for one, other in [[each.removesuffix(campaign_table.OF_KEY) for each in (row.estimator, name)]]
        if lead.difference.mean > 0 and {one, other} <= NAMES.keys()
    ]
    return sorted(found, key=lambda pair: -pair[1].difference.mean)


@pytest.mark.parametrize(("page", "unit"), [(README, " points"), (CHOOSING, "")])
def test_exactly_the_significant_differences_in_success_are_called_so(page: Path, unit: str) -> None:
    (pair, lead), *others = ((pair, lead) for pair, lead in leads(FIRST) if lead.significant)
    named = [f"{pair} ({lead.difference}{unit})", *(f"{pair} ({lead.difference})" for pair, lead in others)]
    assert f"only {' and '.join(named)} are significant" in words(page)
    on_alfworld = {pair for pair, lead in leads(OF_ALFWORLD) if lead.significant}
    assert on_alfworld == {f"{name} − GraphGPO" for name in ("G2PO", "NestedTD", "HGPO", "GiGPO")}
    assert "on alfworld, graphgpo is significantly below all others" in words(page).lower()
    rest = [
        pair for campaign in OTHERS if campaign != OF_ALFWORLD for pair, lead in leads(campaign) if lead.significant
    ]
    assert not rest, "the pages say none"


def test_sentences_about_nested_td_state_the_stored_figures() -> None:
    row, on_alfworld = (
        next(row for row in tables()[campaign.settings] if row.estimator == "nested_td")
        for campaign in (FIRST, OF_ALFWORLD)
    )
    leads_during = [*row.leads_during.values(), *on_alfworld.leads_during.values()]
    assert all(lead.significant and lead.difference.mean > 0 for lead in leads_during), "the pages say so"
    g2po, hgpo = (on_alfworld.leads_during[name].difference for name in ("g2po", "hgpo paper"))
    assert f"ALFWorld: minus G2PO {g2po}, minus HGPO {hgpo} (GiGPO, GraphGPO: half)" in words(CHOOSING)
    assert f"NestedTD − G2PO is {on_alfworld.leads['g2po'].difference}".replace("-", "−") in words(CHOOSING)
    hgpo, graphgpo = (row.leads_during[name].difference for name in ("hgpo paper", "graphgpo"))
    said = f"minus HGPO {hgpo} points, minus GraphGPO {graphgpo} (others: half its learning rate)"
    assert said in words(CHOOSING)
    assert f"NestedTD − HGPO is {row.leads['hgpo paper'].difference}." in words(CHOOSING)


def test_the_exact_test_confirms_of_the_named_differences_the_first_only() -> None:
    """As both pages say; `trained_page.exact_lines` names all pairs."""
    here = [one for one in campaign_table.stored() if one.settings == FIRST.settings]
    [said] = trained_page.exact_lines(tables()[FIRST.settings], here)
    assert "held out, it confirms 1 of 2, not grpo − g2po (p = 0.15)" in said
    assert "while training, it confirms 18 of 19, not hgpo paper − hgpo mean_norm (p = 0.053)" in said
    assert "sign-flip test: only the first)" in words(README)
    assert "sign-flip test: only the first)" in words(CHOOSING)
    for page in (README, CHOOSING):
        assert "graphgpo is significantly below all others (t tests)" in words(page).lower()


@pytest.mark.parametrize("base_S", [[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
def test_the_sign_flip_test_counts_assignments(base_S: list[float]) -> None:
    value_S = np.array([1.0, 2.0, 3.0]) + base_S
    assert sign_flip_p_value(value_S, base_S) == 2 / 8
    assert sign_flip_p_value(base_S, base_S) == 1
    assert sign_flip_p_value([1.0, -1.0, 1.0, 1.0], np.zeros(4)) == 10 / 16
