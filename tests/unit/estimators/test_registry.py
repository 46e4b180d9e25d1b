from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hgpo.columns import ColumnError
from hgpo.estimators import ESTIMATORS, Advantages, Estimator, compute_advantages, names, parse_options, register
from hgpo.steps import StepBatch

BATCH = StepBatch.from_columns(group=[0], trajectory=[0], step=[0], observation=[0], reward=[3.0])


@dataclasses.dataclass(frozen=True)
class ScaledOptions:
    scale: float = 2.0


def scaled(batch: StepBatch, gamma: float, options: ScaledOptions) -> Advantages:
    return Advantages(values=batch.reward * options.scale, returns=batch.reward.copy())


# Everything an estimator may need. Two tasks, so that leave-one-out has others; c is longer than one step of history.
COLUMNS: dict[str, Any] = {
    "group": [0] * 5 + [1],
    "trajectory": ["a", "a", "b", "c", "c", "d"],
    "step": [0, 1, 0, 0, 1, 0],
    "observation": ["hall", "kitchen", "hall", "hall", "attic", "hall"],
    "reward": [0.0, 1.0, 0.0, 0.0, 2.0, 1.0],
    "action": ["go"] * 6,
    "prompt": ["p"] * 6,
    "value": [0.5] * 6,
    "response_log_prob": [-0.5] * 6,
    "embedding": [[0.0], [1.0], [0.0], [0.0], [0.9], [0.0]],
}

CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in names()),
    ("gigpo", {"similarity_threshold": 0.9}),
    ("hgpo", {"history_length": 0}),
    ("hgpo", {"history_length": 4, "early": "drop", "base_group": True}),
    ("hgpo", {"context": "observation_action", "history_length": 0}),
    ("hgpo", {"context": "observation_action"}),
    ("hgpo", {"context": "prompt", "history_length": 3}),
    ("hgpo", {"weight_type": "pooled"}),
    ("nested_td", {"history_length": 2}),
    ("nested_td", {"action_power": 0.0}),
    ("nested_td", {"action_power": 0.0, "history_length": 0}),
    ("mixed_effects", {"context": "observation_action"}),
    ("hgpo", {"match_threshold": 0.5, "match_own_trajectory": False}),
    ("hgpo", {"match_threshold": 0.5, "match_by": "embedding", "context": "observation_action"}),
    ("gigpo", {"match_threshold": 0.5, "match_by": "embedding", "baseline": "critic"}),
    ("nested_td", {"match_threshold": 0.5, "match_by": "embedding"}),
]


@pytest.mark.parametrize("name", names())
def test_every_name_stands_for_its_estimator(name: str) -> None:
    entry = ESTIMATORS.get(name)
    assert entry.name == name
    assert entry.label
    assert entry.options().__class__ is entry.options


def test_keywords() -> None:
    assert ESTIMATORS.get("hgpo").keywords[:2] == ("preset", "history_length")
    assert ESTIMATORS.get("grpo").keywords == ("mode", "count")


@pytest.mark.parametrize(("name", "options"), CASES)
def test_an_estimator_needs_the_columns_it_says_and_no_others(name: str, options: dict[str, Any]) -> None:
    needs = ESTIMATORS.get(name).needs(parse_options(name, **options))
    spare = {"action", "prompt", "value", "response_log_prob", "embedding"} - set(needs)
    compute_advantages(StepBatch.from_columns(**{key: COLUMNS[key] for key in COLUMNS.keys() - spare}), name, **options)
    for column in needs:
        without = StepBatch.from_columns(**{key: COLUMNS[key] for key in COLUMNS.keys() - {column}})
        with pytest.raises(
            ValueError, match=f"estimator '{name}' .*needs the column {column}, which the batch does not"
        ):
            compute_advantages(without, name, **options)


def test_a_missing_column_is_said_with_the_options_that_ask_for_it() -> None:
    with pytest.raises(ValueError, match="estimator 'hgpo' with context='prompt' needs the column prompt"):
        compute_advantages(BATCH, "hgpo", context="prompt")
    some = {key: COLUMNS[key] for key in COLUMNS if key not in ("action", "response_log_prob")}
    said = r"needs the columns action, response_log_prob, .* have; action_power=0 needs no response_log_prob"
    with pytest.raises(ValueError, match=said):
        compute_advantages(StepBatch.from_columns(**some), "nested_td")
    with pytest.raises(ValueError, match=r"estimator 'gae' .*needs the column value"):
        compute_advantages(BATCH, "gae")


@pytest.mark.parametrize(("name", "options"), CASES)
def test_levels_are_numbered_by_their_place_and_named_by_the_estimator(name: str, options: dict[str, Any]) -> None:
    result = compute_advantages(StepBatch.from_columns(**COLUMNS), name, **options)
    named = ESTIMATORS.get(name).levels(parse_options(name, **options))
    assert tuple(level.name for level in result.levels) == named
    assert [level.k for level in result.terms] == [None] * (result.episode is not None) + list(range(len(named)))


def test_what_levels_are_called() -> None:
    def called(name: str, **options: Any) -> tuple[str, ...]:
        return ESTIMATORS.get(name).levels(parse_options(name, **options))

    assert called("gigpo") == ("same state",)
    assert called("gigpo", similarity_threshold=0.9) == ("similar state",)
    assert called("gigpo", match_threshold=0.9) == ("similar state (by text, at least 0.9)",)
    assert called("nested_td", match_threshold=0.9)[1] == "similar state (by text, at least 0.9) and 1 step before"
    assert called("g2po") == ("same node", "whole task")
    assert called("grpo") == ()
    assert called("hgpo", history_length=2) == (
        "same state",
        "same state and 1 step of history",
        "same state and 2 steps of history",
    )
    assert called("hgpo", history_length=1, context="observation_action")[1].endswith("history, actions included")


def test_an_estimator_can_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ESTIMATORS, "_parts", dict(ESTIMATORS._parts))
    register("scaled", scaled, ScaledOptions)
    assert compute_advantages(BATCH, "scaled", scale=3.0).values.tolist() == [9.0]
    with pytest.raises(ValueError, match="'scaled' is already registered"):
        register("scaled", scaled, ScaledOptions)
    with pytest.raises(ValueError, match="must be a dataclass"):
        register("other", scaled, dict)
    entry = ESTIMATORS.get("scaled")
    assert (entry.label, entry.needs(ScaledOptions()), entry.levels(ScaledOptions())) == ("scaled", (), ())


def test_another_packages_estimator_brings_its_own_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ESTIMATORS, "_parts", dict(ESTIMATORS._parts))

    def regrouped(batch: StepBatch, gamma: float, options: ScaledOptions) -> Advantages:
        return compute_advantages(batch, "gigpo", gamma)

    facts: dict[str, Any] = {"label": "Regrouped", "needs": lambda options: ("value",)}
    register("regrouped", regrouped, ScaledOptions, levels=lambda options: ("same colour",), **facts)
    assert ESTIMATORS.get("regrouped").label == "Regrouped"
    with pytest.raises(ValueError, match=r"'regrouped' with scale=3\.0 needs the column value"):
        compute_advantages(BATCH, "regrouped", scale=3.0)
    assert compute_advantages(StepBatch.from_columns(**COLUMNS), "regrouped").levels[0].name == "same colour"
    register("miscounted", regrouped, ScaledOptions, levels=lambda options: ("same colour", "same shape"))
    with pytest.raises(ValueError, match="'miscounted' returned 1 levels, but its `levels` names 2: same colour, same"):
        compute_advantages(BATCH, "miscounted")


def failing(batch: StepBatch) -> Advantages:
    raise KeyError("colour")


def leaving(batch: StepBatch) -> Advantages:
    raise SystemExit(3)


RETURNED: list[tuple[Callable[[StepBatch], Any], str]] = [
    (failing, r"'own': compute\(\) raised KeyError: 'colour' \(test_registry.py, line \d+\)"),
    (leaving, r"'own': compute\(\) raised SystemExit: 3 \(test_registry.py, line \d+\)"),
    (lambda batch: None, "'own' returned a value of type NoneType; it has to return `hgpo.Advantages` with values and"),
    (lambda batch: batch.reward, "'own' returned a value of type ndarray; .* each an array of 6 finite numbers"),
    (lambda batch: Advantages([0.0] * 6, batch.reward), "'own' returned values of type list"),  # type: ignore[arg-type]
    (lambda batch: Advantages(batch.reward[1:], batch.reward), r"values of type float64 and shape \(5,\)"),
    (lambda batch: Advantages(batch.reward, batch.reward[None]), r"returns of type float64 and shape \(1, 6\)"),
    (lambda batch: Advantages(batch.reward[:, None], batch.reward), r"values of type float64 and shape \(6, 1\)"),
    (lambda batch: Advantages(batch.reward > 0, batch.reward), "values of type bool and shape"),  # type: ignore[arg-type]
    (lambda batch: Advantages(np.where(batch.reward > 1, np.nan, 0.0), batch.reward), "not finite, first in row 4"),
]


@pytest.mark.parametrize(("compute", "message"), RETURNED)
def test_errors_and_results_of_own_estimators_are_named(compute: Callable[[StepBatch], Any], message: str) -> None:
    own = Estimator("own", lambda batch, gamma, options: compute(batch), ScaledOptions)
    with pytest.raises(ValueError, match=message):
        own.run(StepBatch.from_columns(**COLUMNS), 0.9, ScaledOptions())


@pytest.mark.parametrize("error", [ColumnError("prompt", 3, "missing"), MemoryError("16 GiB")])
def test_errors_of_a_row_and_of_memory_are_passed_on(error: Exception) -> None:
    def compute(batch: StepBatch, gamma: float, options: ScaledOptions) -> Advantages:
        raise error

    with pytest.raises(type(error)) as raised:
        Estimator("own", compute, ScaledOptions).run(BATCH, 0.9, ScaledOptions())
    assert raised.value is error


def test_an_estimator_that_needs_no_column_of_a_batch_is_named() -> None:
    own = Estimator("own", scaled, ScaledOptions, needs=lambda options: ("colour",))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="estimator 'own' needs the column colour, which the batch does not have"):
        own.run(BATCH, 0.9, ScaledOptions())


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown estimator 'ppo'; known: dr_grpo, g2po, gae, gigpo, graphgpo"):
        compute_advantages(BATCH, "ppo")


def test_unknown_options_list_the_valid_ones() -> None:
    with pytest.raises(ValueError, match="unknown option 'alpha' for estimator 'hgpo'; valid: preset, history_length"):
        parse_options("hgpo", alpha=1.0)
    with pytest.raises(ValueError, match=r"'hgpo'; did you mean history_length\? Valid: preset, history_length"):
        parse_options("hgpo", histroy_length=1)
    for name in ("estimator", "self"):
        with pytest.raises(ValueError, match=f"unknown option '{name}' for estimator 'hgpo'"):
            parse_options("hgpo", **{name: "gigpo"})


def test_the_batch_must_be_a_batch() -> None:
    with pytest.raises(TypeError, match=r"build one with StepBatch\.from_columns"):
        compute_advantages({"reward": [1.0]})  # type: ignore[arg-type]


def test_numpy_numbers_are_options() -> None:
    values = compute_advantages(
        BATCH, gamma=np.float32(0.5), history_length=np.int64(1), length_weight_alpha=np.float64(2)
    )
    assert values.values.tolist() == [0.0]


def test_importing_the_package_is_light() -> None:
    program = (
        "import sys, hgpo; before = set(sys.modules); hgpo.StepBatch; hgpo.compute_advantages; hgpo.estimators.names();"
        "heavy = {'torch', 'transformers', 'pandas', 'pyarrow', 'ray', 'vllm', 'pydantic'};"
        "assert 'numpy' not in before; assert not heavy & set(sys.modules), heavy & set(sys.modules);"
        "assert 'compute_advantages' in dir(hgpo); assert not hasattr(hgpo, 'no_such_part')"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.slow
def test_computing_leaves_the_module_path_alone() -> None:
    """A path may name a module of the working folder; the package's own names must not make others findable there."""
    program = (
        "import sys; path = [*sys.path]; import hgpo; hgpo.estimators.ESTIMATORS.get('gigpo'); assert sys.path == path"
    )
    subprocess.run([sys.executable, "-P", "-c", program], check=True)
