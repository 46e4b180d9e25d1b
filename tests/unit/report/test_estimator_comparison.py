import pytest

from hgpo.report.estimator_comparison import NO_TRAINING, Training, level_estimator, report_estimators, whose_levels


def test_the_well_known_estimators_are_compared():
    keys = [shown.key for shown in report_estimators(NO_TRAINING)]
    assert keys == ["paper", "verl", "pooled", "gigpo", "grpo", "mixed", "prompt"]


@pytest.mark.parametrize(
    ("training", "key"),
    [
        (Training("hgpo", {"history_length": 2}), "paper"),
        (Training("hgpo", {"preset": "verl-agent", "history_length": 4}), "verl"),
        (Training("grpo", {"mode": "mean_norm"}), "grpo"),
        (Training("hgpo", {"history_length": 1, "missing": "renormalize"}), "trained"),
        (Training("rloo", {}), "trained"),
        (Training("reinforce", {}), "trained"),
    ],
)
def test_the_one_that_trained_comes_first_and_once(training, key):
    shown = report_estimators(training)
    assert shown[0].key == key
    assert shown[0].trained
    assert len({estimator.key for estimator in shown}) == len(shown) == (8 if key == "trained" else 7)
    assert level_estimator(shown).name == "hgpo"


@pytest.mark.parametrize(
    ("training", "label", "whose"),
    [
        (NO_TRAINING, "HGPO (paper)", "levels of HGPO (paper)"),
        (Training("gigpo"), "GiGPO", "levels of GiGPO"),
        (Training("gigpo", {"step_advantage_w": 0.5}), "GiGPO (as trained)", "levels of GiGPO (as trained)"),
        (Training("g2po"), "G2PO (as trained)", "levels of G2PO (as trained)"),
        (Training("hgpo", {"context": "prompt"}), "HGPO (equal prompts)", "levels of HGPO (equal prompts)"),
        (Training("grpo"), "GRPO", "step levels of HGPO (paper), because GRPO has none"),
        (
            Training("rloo"),
            "RLOO (as trained)",
            "step levels of HGPO (paper), because RLOO has none",
        ),
    ],
)
def test_whose_levels_are_followed(training, label, whose):
    shown = report_estimators(training)
    assert shown[0].label == label
    assert whose_levels(shown) == whose


def test_what_an_estimator_needs_and_compares_is_what_the_registry_says():
    shown = {estimator.key: estimator for estimator in report_estimators(NO_TRAINING)}
    assert {key: estimator.needs for key, estimator in shown.items() if estimator.needs} == {
        "mixed": ("action",),
        "prompt": ("prompt",),
    }
    assert shown["gigpo"].levels == ("same state",)
    assert report_estimators(Training("gae"))[0].needs == ("value",)


def test_all_share_history_length_and_mode():
    shown = report_estimators(Training("hgpo", {"history_length": 4, "mode": "mean_norm"}))
    assert {estimator.options.get("history_length", 4) for estimator in shown} == {4}
    assert {estimator.options["mode"] for estimator in shown} == {"mean_norm"}
