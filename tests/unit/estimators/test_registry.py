from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from hgpo import estimators
from hgpo.estimators import Advantages, compute_advantages, get, names, parse_options, register
from hgpo.steps import StepBatch

BATCH = StepBatch.from_columns(group=[0], trajectory=[0], step=[0], observation=[0], reward=[3.0])


@dataclasses.dataclass(frozen=True)
class ScaledOptions:
    scale: float = 2.0


def scaled(batch: StepBatch, gamma: float, options: ScaledOptions) -> Advantages:
    return Advantages(values=batch.reward * options.scale, returns=batch.reward.copy())


def test_names() -> None:
    assert names() == (
        "dr_grpo", "g2po", "gae", "gigpo", "graphgpo", "grpo", "hgpo", "mixed_effects", "reinforce", "rloo",
    )  # fmt: skip
    assert get("hgpo").keywords[:2] == ("preset", "history_length")
    assert get("grpo").keywords == ("mode", "count")


def test_an_estimator_can_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimators.ESTIMATORS, "_parts", dict(estimators.ESTIMATORS._parts))
    register("scaled", scaled, ScaledOptions)
    assert compute_advantages(BATCH, "scaled", scale=3.0).values.tolist() == [9.0]
    with pytest.raises(ValueError, match="'scaled' is already registered"):
        register("scaled", scaled, ScaledOptions)
    with pytest.raises(ValueError, match="must be a dataclass"):
        register("other", scaled, dict)


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown estimator 'ppo'; known: dr_grpo, g2po, gae, gigpo, graphgpo"):
        compute_advantages(BATCH, "ppo")


def test_unknown_options_list_the_valid_ones() -> None:
    with pytest.raises(ValueError, match="unknown option 'alpha' for estimator 'hgpo'; valid: preset, history_length"):
        parse_options("hgpo", alpha=1.0)


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
