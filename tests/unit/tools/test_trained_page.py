"""What the page of trained policies says of learning rates."""

from __future__ import annotations

from pathlib import Path

import pytest

import campaign_table
import trained_page

CAMPAIGN = trained_page.Campaign("quickstart", "Games", "valid_unseen")


def trial(estimator: str, rate: float, success: float, during: float, start: str = "a") -> campaign_table.RateTrial:
    return campaign_table.RateTrial(estimator, rate, "quickstart", start, success, during)


def trained(estimator: str, rate: str = "") -> campaign_table.Trained:
    return campaign_table.Trained(estimator, 0, "quickstart", "a", 0.3, 0.5, 0.4, 1.0, rate)


def test_the_rate_of_trainings_that_name_none_is_that_of_the_best_trial(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(campaign_table, "RATES", tmp_path / "rates.json")
    trials = [
        trial("grpo", 1e-3, 0.4, 0.4, "b"),
        trial("grpo", 5e-4, 0.5, 0.4, "b"),
        trial("hgpo paper", 5e-4, 0.6, 0.5),
    ]
    campaign_table.store_rate_trials(trials)
    line = trained_page.rates_line(CAMPAIGN, [trained("grpo"), trained("hgpo paper", "training.learning_rate=0.0005")])
    assert (
        "was chosen: grpo 0.0005*, hgpo paper 0.0005* (*: the lowest that was tried, so a lower one may be better)."
        in line
    )
    assert "Trials with 0.0005, 0.001 of grpo began with another start policy" in line
    assert "The rates differ" not in line


def test_different_rates_are_said_to_change_success_while_training() -> None:
    """GRPO: .50 - .45; HGPO: .42 - .44; GiGPO's trials have two starts and say nothing."""
    trials = [trial("grpo", 5e-4, 0.5, 0.45), trial("grpo", 1e-3, 0.4, 0.5), trial("hgpo paper", 5e-4, 0.5, 0.44)]
    trials += [
        trial("hgpo paper", 1e-3, 0.6, 0.42),
        trial("gigpo", 5e-4, 0.5, 0.1),
        trial("gigpo", 1e-3, 0.5, 0.9, "b"),
    ]
    assert "0.001 minus 0.0005 is -2.0 to +5.0 points" in trained_page.effect_of_rates(trials, {5e-4, 1e-3})
    assert trained_page.effect_of_rates(trials, {5e-4}) == ""
