import pytest

from hgpo.report.comparison import Training, level_estimator, shown_estimators


def test_the_well_known_estimators_are_compared():
    keys = [shown.key for shown in shown_estimators(None)]
    assert keys == ["paper", "verl", "pooled", "gigpo", "grpo", "mixed", "prompt"]


@pytest.mark.parametrize(
    ("training", "key"),
    [
        (Training("hgpo", {"history_length": 2}), "paper"),
        (Training("hgpo", {"preset": "verl-agent", "history_length": 4}), "verl"),
        (Training("grpo", {"mode": "mean_norm"}), "grpo"),
        (Training("hgpo", {"history_length": 1, "missing": "renormalize"}), "trained"),
        (Training("rloo", {}), "trained"),
    ],
)
def test_the_one_that_trained_comes_first_and_once(training, key):
    shown = shown_estimators(training)
    assert shown[0].key == key
    assert shown[0].trained
    assert len({estimator.key for estimator in shown}) == len(shown) == (8 if key == "trained" else 7)
    assert level_estimator(shown).name == "hgpo"


def test_all_share_history_length_and_mode():
    shown = shown_estimators(Training("hgpo", {"history_length": 4, "mode": "mean_norm"}))
    assert {estimator.options.get("history_length", 4) for estimator in shown} == {4}
    assert {estimator.options["mode"] for estimator in shown} == {"mean_norm"}
