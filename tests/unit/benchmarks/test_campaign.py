"""The campaign's table: only seeds that are whole and began alike, differences paired, and what they allow to say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import campaign
import campaign_table
from hgpo.config import load_config
from hgpo.evaluation.result_files import read_evaluation
from hgpo.runs.folder import RunDirectory
from paired import Difference

NONE = "no significant difference"


def trained(estimator: str, seed: int, after: float, during: float = 0.5, start: str = "one") -> campaign_table.Trained:
    return campaign_table.Trained(estimator, seed, "quickstart", start, 0.3, after, during, 1.0)


def test_differences_are_paired_by_seed() -> None:
    done = [trained("gigpo", seed, 0.5 + 0.1 * seed) for seed in range(4)]
    done += [trained("atd", seed, 0.52 + 0.1 * seed) for seed in range(4)]
    reference, atd = campaign_table.rows(done)
    assert reference.is_reference
    lead = atd.leads["gigpo"]
    assert lead.difference.mean == pytest.approx(2)
    # every pair differs by as much, however far the seeds are apart
    assert lead.difference.half == pytest.approx(0, abs=1e-9)
    assert lead.significant
    assert reference.leads["atd"].difference.mean == pytest.approx(-2)


def test_the_interval_is_students() -> None:
    done = [trained("gigpo", seed, 0.5) for seed in range(4)]
    done += [trained("atd", seed, 0.5 + lead) for seed, lead in enumerate((0.0, 0.02, 0.04, 0.06))]
    atd = campaign_table.rows(done)[1]
    lead = atd.leads["gigpo"]
    assert lead.difference.mean == pytest.approx(3)
    assert lead.difference.half == pytest.approx(3.182 * 2.582 / 2, rel=1e-3)  # t(3) = 3.182, std 2.582, 4 seeds
    assert not lead.significant
    assert str(lead) == "+3.0 ± 4.1 n.s."
    assert campaign_table.claim(atd) == "No significant difference to gigpo."


def test_what_one_pair_would_show_can_be_chance_among_many() -> None:
    """+3 points in three of four seeds, +.5 in one: significant as the only pair, not as one of three."""
    leads = (0.03, 0.03, 0.03, 0.005)
    done = [trained("gigpo", seed, 0.5) for seed in range(4)]
    done += [trained("atd", seed, 0.5 + lead) for seed, lead in enumerate(leads)]
    assert campaign_table.rows(done)[1].leads["gigpo"].significant
    others = [trained("grpo", seed, 0.5 + change) for seed, change in enumerate((-0.2, 0.2, -0.2, 0.21))]
    rows = {row.estimator: row for row in campaign_table.rows(done + others)}
    lead = rows["atd"].leads["gigpo"]
    assert lead.difference.p_value < 0.05 < lead.adjusted == pytest.approx(3 * lead.difference.p_value)
    assert campaign_table.claim(rows["atd"]) == "No significant difference to gigpo."


def test_a_seed_counts_when_all_have_finished_it_from_one_start() -> None:
    done = [trained(name, seed, 0.5) for name in ("gigpo", "atd") for seed in range(5)]
    assert campaign_table.rows(done)[0].seeds == 5
    assert campaign_table.rows(done[:-1])[0].seeds == 4
    assert campaign_table.rows([*done[:-1], trained("atd", 4, 0.5, start="another")])[0].seeds == 4
    assert campaign_table.rows(done[:-3]) == []  # two seeds say nothing
    assert campaign_table.rows([one for one in done if one.estimator == "atd"]) == []  # nothing to compare with


def test_without_the_usual_reference_the_first_estimator_is_it() -> None:
    done = [trained(name, seed, after) for name, after in (("hgpo paper", 0.4), ("ppo", 0.5)) for seed in range(3)]
    hgpo, ppo = campaign_table.rows(done)
    assert (hgpo.estimator, ppo.reference) == ("hgpo paper", "hgpo paper")
    assert ppo.leads["hgpo paper"].difference.mean == pytest.approx(10)
    assert campaign_table.claim(hgpo) == "Reference."
    assert campaign_table.claim(ppo) == "Better than hgpo paper on held-out tasks."
    assert "− hgpo paper" in campaign_table.as_markdown([hgpo, ppo])


@pytest.mark.parametrize(
    ("lead", "during", "says"),
    [
        ((5.0, 2.0), (0.0, 1.0), "Better than gigpo on held-out tasks."),
        ((-5.0, 2.0), (0.0, 1.0), "Worse than gigpo on held-out tasks."),
        (
            (1.0, 2.0),
            (2.0, 1.0),
            "Wins more often than gigpo while training; no significant difference on held-out tasks.",
        ),
        (
            (1.0, 2.0),
            (-2.0, 1.0),
            "Wins less often than gigpo while training; no significant difference on held-out tasks.",
        ),
        ((1.0, 2.0), (0.5, 1.0), "No significant difference to gigpo."),
    ],
)
def test_a_claim_is_what_the_intervals_allow(lead: tuple[float, float], during: tuple[float, float], says: str) -> None:
    found = [
        {"gigpo": campaign_table.Lead(Difference(mean, half, 0.0, 0.0), 0.04 if abs(mean) > half else 0.06)}
        for mean, half in (lead, during)
    ]
    assert campaign_table.claim(campaign_table.Row("atd", 10, 50.0, 50.0, *found)) == says


def test_trainings_of_other_settings_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_table, "STORED", tmp_path / "campaign.json")
    campaign_table.store([trained("gigpo", 0, 0.5)])
    assert campaign_table.stored() == [trained("gigpo", 0, 0.5)]
    assert len(json.loads(campaign_table.STORED.read_text())) == 1
    campaign_table.store([trained("gigpo", 0, 0.5), replace(trained("gigpo", 1, 0.5), settings="quickstart x=1")])
    assert set(campaign_table.tables()) == {"quickstart", "quickstart x=1"}


def test_the_rate_with_the_highest_success_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_table, "RATES", tmp_path / "rates.json")
    assert campaign_table.chosen_rate("gigpo", "quickstart") == ()
    tried = [(1e-3, 0.5, 0.4), (5e-4, 0.6, 0.3), (2.5e-4, 0.6, 0.5)]
    trials = [campaign_table.RateTrial("gigpo", rate, "quickstart", "a", *success) for rate, *success in tried]
    campaign_table.store_rate_trials([*trials, replace(trials[0], settings="quickstart x=1")])
    assert len(campaign_table.rate_trials()) == 4
    assert campaign_table.chosen_rate("gigpo", "quickstart") == ("training.learning_rate=0.00025",)
    assert campaign_table.chosen_rate("gigpo", "quickstart x=1") == ("training.learning_rate=0.001",)
    assert campaign_table.chosen_rate("ppo", "quickstart") == ()


def test_a_campaign_of_too_few_trainings_says_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign_table, "STORED", tmp_path / "campaign.json")
    campaign_table.store([trained("gigpo", seed, 0.5) for seed in range(2)])
    assert campaign_table.tables() == {"quickstart": []}
    campaign.show()
    assert "quickstart: 2 trainings of gigpo" in capsys.readouterr().out


def test_every_recipe_has_a_table_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_table, "STORED", tmp_path / "campaign.json")
    household = [trained(name, seed, 0.5) for name in ("gigpo", "atd") for seed in range(4)]
    shops = [replace(one, settings="webshop-tiny training.updates=3", after=0.25) for one in household if one.seed < 3]
    campaign_table.store([*shops, *household])
    assert {name: table[0].seeds for name, table in campaign_table.tables().items()} == {
        "quickstart": 4,
        "webshop-tiny training.updates=3": 3,
    }
    assert "| atd | 25.0 |" in campaign_table.as_markdown(campaign_table.tables()["webshop-tiny training.updates=3"])
    assert len(campaign.Campaign(tmp_path, "alfworld-tiny", []).done) == len(household) + len(shops)


@pytest.mark.parametrize("recipe", ["quickstart", "webshop-tiny", "alfworld-tiny"])
def test_every_contender_is_a_recipe_that_loads(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", ".")
    environment = load_config(Path(recipe)).environment.name
    for name in campaign_table.ESTIMATORS:
        load_config(Path(recipe), list(campaign_table.settings_of(name, environment)))


def test_only_household_games_have_the_published_state_key_of_g2po() -> None:
    key = "rollout.state=published_g2po"
    assert key in campaign_table.settings_of("g2po", "alfworld")
    assert key not in campaign_table.settings_of("g2po", "webshop")
    assert campaign_table.settings_of("gigpo", "alfworld") == campaign_table.ESTIMATORS["gigpo"]


def test_a_state_key_for_all_trainings_wins_over_that_of_a_row(tmp_path: Path) -> None:
    text = campaign.Campaign(tmp_path, "quickstart", ["rollout.state=observation"])
    assert load_config(Path("quickstart"), text.row_settings("g2po")).rollout.state == "observation"
    own = campaign.Campaign(tmp_path, "quickstart", [])
    assert load_config(Path("quickstart"), own.row_settings("g2po")).rollout.state == "published_g2po"


def test_trainings_from_another_start_are_not_added_to_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_table, "STORED", tmp_path / "campaign.json")
    campaign_table.store([trained("gigpo", 0, 0.5, start="one")])
    begun = campaign.Campaign(tmp_path, "quickstart", [])
    begun.refuse_another_start("one", {0, 1})
    with pytest.raises(SystemExit, match=r"gigpo with seed 0 began from weights one.* would begin from two.*--start"):
        begun.refuse_another_start("two", {0, 1})
    begun.refuse_another_start("two", {1, 2})  # other seeds
    campaign.Campaign(tmp_path, "quickstart", ["rollout.state=observation"]).refuse_another_start("two", {0, 1})


def test_a_stored_start_policy_is_the_one_that_its_trainings_name() -> None:
    folder = Path(campaign.__file__).parent / "starts" / "alfworld-tiny"
    assert campaign.weights_of(folder) == "fe0def6567f7"


def test_a_model_makes_the_start_and_is_no_setting_of_the_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: list[str] = []
    monkeypatch.setattr(campaign, "train", lambda *given: options.extend(given[-1]) or RunDirectory(tmp_path))
    begun = campaign.Campaign(tmp_path, "smollm2", [], model=tmp_path / "model.gguf")
    begun._start()
    assert f"policy.model={tmp_path / 'model.gguf'}" in options
    assert begun.settings == "smollm2"


@pytest.mark.slow
def test_the_start_is_evaluated_once_as_a_training_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign_table, "STORED", tmp_path / "campaign.json")
    short = ["training.updates=1", "rollout.tasks_per_update=2", "rollout.group_size=2", "evaluation.games=32"]
    short += ["environment.options.train_games=100"]  # each training generates them; the recipe has 16,000
    start = Path(campaign.__file__).parent / "starts" / "alfworld-tiny"
    begun = campaign.Campaign(tmp_path, "quickstart", short, start)
    begun.run(range(1), ["gigpo", "grpo"], at_once=1)
    options = [*short, "run.threads=1", f"policy.model={start}", "warm_start.enabled=false", "run.seed=5"]
    whole = campaign.train(tmp_path, "whole", Path("quickstart"), options)
    before = read_evaluation(whole.evaluation("before")).evaluation.success.mean
    stored = campaign_table.stored()
    assert before > 0
    assert [one.before for one in stored] == [pytest.approx(before, abs=1e-6)] * 2
    assert not (begun.folder / "gigpo-0" / "evaluations" / "before.json").exists()
    monkeypatch.setattr(campaign, "train", None)  # a campaign that is continued evaluates the start no more
    assert campaign.Campaign(tmp_path, "quickstart", short)._success_of_start(start) == stored[0].before
