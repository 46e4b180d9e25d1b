from __future__ import annotations

from typing import Any

import pytest

from hgpo.config import Config, ConfigError, read_config

MODEL = 'policy.model="some/model"'


def recomputes(**sections: Any) -> bool:
    policy = {"model": "some/model", **sections.pop("policy", {})}
    return Config.model_validate({"policy": policy, **sections}).recomputes_log_probs


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({}, False),
        ({"policy": {"device": "cuda"}}, False),
        ({"policy": {"backend": "some.module:SERVER"}}, True),
        ({"run": {"engine": "verl"}}, True),
        ({"run": {"engine": "verl"}, "policy": {"device": "cuda"}}, True),
        ({"run": {"engine": "verl"}, "policy": {"device": "cpu"}}, False),
        ({"run": {"engine": "verl"}, "policy": {"device": "cpu"}, "verl": {"mode": "colocate_async"}}, True),
    ],
)
def test_log_probs_are_recomputed_where_sampler_and_trainer_can_differ(
    sections: dict[str, Any], expected: bool
) -> None:
    assert recomputes(**sections) is expected
    for said in (True, False):
        assert recomputes(**sections, training={"recompute_log_probs": said}) is said


@pytest.mark.parametrize(("written", "value"), [("true", True), ("false", False), ("True", True), ("auto", "auto")])
def test_recompute_log_probs_is_written_as_it_is_meant(written: str, value: object) -> None:
    assert read_config(None, [MODEL, f"training.recompute_log_probs={written}"]).training.recompute_log_probs == value


def test_what_it_cannot_be_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"training\.recompute_log_probs: Input should be True, False or 'auto'"):
        read_config(None, [MODEL, "training.recompute_log_probs=sometimes"])
    with pytest.raises(ConfigError, match=r"training\.importance_cap"):
        read_config(None, [MODEL, "training.importance_cap=0.5"])
    with pytest.raises(ConfigError, match=r"verl\.rollout: Input should be 'vllm', 'sglang' or 'vllm-cpu'"):
        read_config(None, [MODEL, "verl.rollout=sgl"])
    with pytest.raises(ConfigError, match=r"policy\.lora\.dropout = 0\.1 is used only by the engine 'built-in'"):
        read_config(None, [MODEL, "run.engine=verl", "policy.lora.rank=4", "policy.lora.dropout=0.1"])
