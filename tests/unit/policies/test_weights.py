"""Handing weights over: names and values are those of the plain model, adapters added in."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
import torch

from hgpo.policies.tiny import build_model
from hgpo.policies.weights import merged_weights


def _adapted(model: Any, **options: Any) -> Any:
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    settings = {"r": 4, "lora_alpha": 16, "target_modules": "all-linear", "init_lora_weights": False, **options}
    return peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **settings))


def _state(model: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_a_plain_module_gives_its_parameters_and_tied_ones_once() -> None:
    model = build_model(40)

    weights = dict(merged_weights(model))

    assert weights.keys() == model.state_dict().keys() - {"lm_head.weight"}
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in weights.items())
    assert weights["model.embed_tokens.weight"].data_ptr() == model.model.embed_tokens.weight.data_ptr()
    assert not any(tensor.requires_grad for tensor in weights.values())


@pytest.mark.parametrize("targets", ["all-linear", ["q_proj", "down_proj"]])
def test_an_adapter_is_merged_as_peft_merges_it(targets: Any) -> None:
    adapted = _adapted(build_model(40), target_modules=targets)

    weights = dict(merged_weights(adapted))

    expected = copy.deepcopy(adapted).merge_and_unload().state_dict()
    assert weights.keys() == expected.keys() - {"lm_head.weight"}
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-7)
    plain = build_model(40).state_dict()
    changed = {name for name, tensor in weights.items() if not torch.equal(tensor, plain[name])}
    assert changed == {name for name in plain if any(f"{t}.weight" in name for t in _names(targets))}


def _names(targets: Any) -> list[str]:
    return ["_proj"] if targets == "all-linear" else targets


def test_merging_leaves_base_and_adapter_as_they_are_and_rounds_nothing() -> None:
    adapted = _adapted(build_model(40).to(torch.bfloat16))
    before = _state(adapted)

    weights = dict(merged_weights(adapted))

    assert all(torch.equal(tensor, before[name]) for name, tensor in adapted.state_dict().items())
    layer = adapted.get_base_model().model.layers[0].mlp.up_proj
    exact = layer.base_layer.weight.float() + layer.get_delta_weight("default")
    assert torch.equal(weights["model.layers.0.mlp.up_proj.weight"], exact)
    assert weights["model.norm.weight"].dtype == torch.bfloat16


def test_peft_is_not_imported_for_a_plain_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "peft", raising=False)
    assert len(dict(merged_weights(build_model(40)))) > 20
    assert "peft" not in sys.modules
