"""The campaign's table: only seeds that are whole and began alike, differences paired, and what they allow to say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import campaign
from hgpo.config import load_config


def trained(estimator: str, seed: int, after: float, during: float = 0.5, start: str = "one") -> campaign.Trained:
    return campaign.Trained(estimator, seed, "quickstart", start, 0.3, after, during, 1.0)


def test_differences_are_paired_by_seed() -> None:
    done = [trained("gigpo", seed, 0.5 + 0.1 * seed) for seed in range(4)]
    done += [trained("atd", seed, 0.52 + 0.1 * seed) for seed in range(4)]
    reference, atd = campaign.rows(done)
    assert (reference.estimator, reference.lead, reference.half) == ("gigpo", 0, 0)
    assert atd.lead == pytest.approx(2)
    assert atd.half == pytest.approx(0, abs=1e-9)  # every pair differs by as much, however far the seeds are apart
    assert atd.told_apart


def test_the_interval_is_students() -> None:
    done = [trained("gigpo", seed, 0.5) for seed in range(4)]
    done += [trained("atd", seed, 0.5 + lead) for seed, lead in enumerate((0.0, 0.02, 0.04, 0.06))]
    atd = campaign.rows(done)[1]
    assert atd.lead == pytest.approx(3)
    assert atd.half == pytest.approx(3.182 * 2.582 / 2, rel=2e-3)  # t(3) = 3.182, std 2.582, 4 seeds
    assert not atd.told_apart
    assert campaign.claim(atd) == "Not told apart from gigpo."


def test_a_seed_counts_when_all_have_finished_it_from_one_start() -> None:
    done = [trained(name, seed, 0.5) for name in ("gigpo", "atd") for seed in range(5)]
    assert campaign.rows(done)[0].seeds == 5
    assert campaign.rows(done[:-1])[0].seeds == 4
    assert campaign.rows([*done[:-1], trained("atd", 4, 0.5, start="another")])[0].seeds == 4
    assert campaign.rows(done[:-3]) == []  # two seeds say nothing


@pytest.mark.parametrize(
    ("lead", "during", "says"),
    [
        ((5.0, 2.0), (0.0, 1.0), "Better than gigpo on held-out games."),
        ((-5.0, 2.0), (0.0, 1.0), "Worse than gigpo on held-out games."),
        ((1.0, 2.0), (2.0, 1.0), "Wins more often than gigpo while it trains; held-out games do not tell them apart."),
        ((1.0, 2.0), (-2.0, 1.0), "Wins less often than gigpo while it trains; held-out games do not tell them apart."),
        ((1.0, 2.0), (0.5, 1.0), "Not told apart from gigpo."),
    ],
)
def test_a_claim_is_what_the_intervals_allow(lead: tuple[float, float], during: tuple[float, float], says: str) -> None:
    assert campaign.claim(campaign.Row("atd", 10, 50.0, 50.0, *lead, *during)) == says


def test_trainings_of_other_settings_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "STORED", tmp_path / "campaign.json")
    campaign.store([trained("gigpo", 0, 0.5)])
    assert campaign.stored() == [trained("gigpo", 0, 0.5)]
    assert len(json.loads(campaign.STORED.read_text())) == 1
    with pytest.raises(SystemExit, match="move it away"):
        campaign.Campaign(tmp_path, "quickstart", ["training.updates=3"])
    assert len(campaign.Campaign(tmp_path, "quickstart", []).done) == 1


def test_a_campaign_of_too_few_trainings_says_how_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "STORED", tmp_path / "campaign.json")
    monkeypatch.setattr(campaign, "PAGE", tmp_path / "choosing.md")
    campaign.store([trained("gigpo", seed, 0.5) for seed in range(3)])
    campaign.PAGE.write_text("<!-- campaign -->\n")
    assert "3 trainings of 1 estimators" in str(campaign.write_page(check=False))
    with pytest.raises(SystemExit, match="3 trainings of 1 estimators"):
        campaign.show()


def test_a_page_without_a_place_for_the_table_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "STORED", tmp_path / "campaign.json")
    monkeypatch.setattr(campaign, "PAGE", tmp_path / "choosing.md")
    campaign.store([trained(name, seed, 0.5) for name in ("gigpo", "atd") for seed in range(4)])
    campaign.PAGE.write_text("# Choosing\n")
    assert "choosing.md has no line" in str(campaign.write_page(check=False))
    campaign.PAGE.write_text("# Choosing\n<!-- campaign -->\nEnd.\n")
    assert "does not show" in str(campaign.write_page(check=True))
    assert campaign.write_page(check=False) == 0
    assert "| atd | 50.0 | +0.0 ± 0.0 |" in campaign.PAGE.read_text()
    assert campaign.write_page(check=True) == 0


def test_every_contender_is_a_recipe_that_loads() -> None:
    for settings in campaign.ESTIMATORS.values():
        load_config(Path("quickstart"), list(settings))


def test_the_page_shows_the_trainings_that_are_stored() -> None:
    if campaign.rows(campaign.stored()):
        assert campaign.write_page(check=True) == 0
