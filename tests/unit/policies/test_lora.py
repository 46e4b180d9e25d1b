"""Adapters: what is trained, what the model is without them, and which weights they belong to."""

import copy
import json
import sys

import numpy as np
import pytest
import torch
from peft import get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from hgpo.policies.loading import IncompleteModelError, load_model
from hgpo.policies.weights import (
    BASE_FILE,
    WEIGHTS_FILE,
    Adapter,
    WrongBaseError,
    adapter_dropout,
    adapter_off,
    add_adapter,
    fingerprint,
    has_adapter,
    load_adapter,
    merge_adapter,
    merged_weights,
    save_adapter,
    set_adapter,
)
from tiny_models import tiny_model

IDS = torch.tensor([[3, 5, 7, 9, 11]])


def adapted(*, rank=2, trained=True, seed=0, **options):
    """A tiny model with an adapter; `trained`: one that has moved away from its start."""
    model = add_adapter(tiny_model().model, Adapter(rank, 2 * rank, **options), seed=seed)
    if trained:
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in trainable(model).values():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


def trainable(model):
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


@torch.no_grad()
def logits(model):
    return model(input_ids=IDS).logits


def test_a_new_adapter_changes_nothing_and_is_all_that_is_trained():
    plain = logits(tiny_model().model)
    model = adapted(trained=False)
    assert has_adapter(model)
    assert torch.equal(logits(model), plain)
    assert {name.split(".")[-3] for name in trainable(model)} == {"lora_A", "lora_B"}


def test_the_seed_decides_its_first_numbers_and_nothing_else():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, again, other = (trainable(adapted(trained=False, seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_switched_off_it_is_the_model_it_began_as():
    plain, model = logits(tiny_model().model), adapted()
    assert not torch.allclose(logits(model), plain, atol=1e-3)
    with adapter_off(model):
        assert torch.equal(logits(model), plain)
    assert not torch.allclose(logits(model), plain, atol=1e-3)
    assert trainable(model)
    with adapter_off(tiny_model().model):
        pass


def test_targets_are_taken_and_unknown_ones_refused():
    names = trainable(adapted(targets=("q_proj",)))
    assert names
    assert all(".q_proj." in name for name in names)
    with pytest.raises(ValueError, match=r"policy\.lora\.targets = \['no_such'\]"):
        adapted(targets=("no_such",))


def test_beside_bfloat16_weights_it_is_float32():
    model = add_adapter(tiny_model().model.bfloat16(), Adapter(2, 4), seed=0)
    assert {parameter.dtype for parameter in trainable(model).values()} == {torch.float32}


def test_saved_and_loaded_it_computes_the_same(tmp_path):
    model = adapted()
    save_adapter(model, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
        BASE_FILE,
    }
    loaded = load_adapter(tiny_model().model, tmp_path)
    assert torch.equal(logits(loaded), logits(model))
    assert trainable(loaded).keys() == trainable(model).keys()


def test_experts_get_adapters_too(tmp_path):
    def experts():
        torch.manual_seed(0)
        sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        config = AutoConfig.for_model("mixtral", **sizes, num_key_value_heads=1, num_local_experts=2, vocab_size=20)
        return AutoModelForCausalLM.from_config(config).eval()

    plain, model = experts(), add_adapter(experts(), Adapter(2, 4), seed=0)
    with torch.no_grad():
        for parameter in trainable(model).values():
            parameter.add_(0.05)
    assert fingerprint(model) == fingerprint(plain)
    save_adapter(model, tmp_path)
    assert torch.equal(logits(load_adapter(experts(), tmp_path)), logits(model))
    before = plain.state_dict()
    merged = dict(merged_weights(model))
    assert merged.keys() == before.keys()
    assert {name for name in before if not torch.equal(merged[name], before[name])} >= {
        "model.layers.0.mlp.experts.gate_up_proj",
        "model.layers.0.mlp.experts.down_proj",
    }
    plain.load_state_dict(merged)
    torch.testing.assert_close(logits(plain), logits(model))


def test_it_is_refused_beside_other_weights(tmp_path):
    save_adapter(adapted(), tmp_path)
    with pytest.raises(WrongBaseError, match="was trained with other weights"):
        load_adapter(tiny_model(seed=1).model, tmp_path)
    (tmp_path / BASE_FILE).write_text("[]")
    with pytest.raises(ValueError, match=BASE_FILE):
        load_adapter(tiny_model().model, tmp_path)


def test_a_missing_or_surplus_weight_of_it_is_named(tmp_path):
    model = adapted()
    save_adapter(model, tmp_path)
    whole = load_file(tmp_path / WEIGHTS_FILE)
    [gone, *_] = sorted(whole)
    for weights, message in (
        ({name: weight for name, weight in whole.items() if name != gone}, f"lacks the weights {gone}"),
        ({**whole, "base_model.model.lm_head.lora_A.weight": torch.zeros(2, 32)}, "does not know: base_model.model.lm"),
    ):
        save_file(weights, tmp_path / WEIGHTS_FILE, metadata={"format": "pt"})
        with pytest.raises(IncompleteModelError, match=message):
            load_adapter(tiny_model().model, tmp_path)
        with pytest.raises(IncompleteModelError, match=message):
            set_adapter(model, weights)


def test_its_weights_can_be_replaced():
    model, other = adapted(), adapted(seed=1)
    set_adapter(other, get_peft_model_state_dict(model))
    assert torch.equal(logits(other), logits(model))


def test_the_fingerprint_is_of_the_base_whatever_holds_it():
    expected = fingerprint(tiny_model().model)
    assert fingerprint(tiny_model().model.bfloat16()) == expected
    assert fingerprint(adapted()) == expected
    changed = tiny_model().model
    with torch.no_grad():
        next(changed.parameters())[0, 0] += 0.1
    assert fingerprint(changed) != expected


def test_merged_it_is_a_plain_model_that_computes_the_same(tmp_path):
    model = adapted()
    expected = logits(model)
    merged = merge_adapter(model)
    merged.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert not has_adapter(loaded)
    torch.testing.assert_close(logits(loaded), expected, atol=1e-5, rtol=1e-5)
    plain = tiny_model().model
    assert merge_adapter(plain) is plain


def test_a_small_adapter_in_bfloat16_is_merged_without_rounding():
    model = adapted().bfloat16()
    with torch.no_grad():
        for parameter in trainable(model).values():
            parameter.mul_(0.1)
    expected = logits(copy.deepcopy(model).float())
    merged = merge_adapter(model)
    assert next(merged.parameters()).dtype == torch.float32
    torch.testing.assert_close(logits(merged), expected, atol=1e-5, rtol=1e-5)


def test_dropout_is_drawn_from_the_generator_and_in_the_block_alone():
    model, rng = adapted(dropout=0.5), np.random.default_rng(0)
    steady = logits(model)

    def dropped(generator):
        with adapter_dropout(model, generator):
            return logits(model)

    first, second = dropped(rng), dropped(rng)
    assert not torch.equal(first, steady)
    assert not torch.equal(first, second)
    assert torch.equal(dropped(np.random.default_rng(0)), first)
    assert torch.equal(logits(model), steady)


@pytest.mark.parametrize("model", [adapted(), tiny_model().model], ids=["no dropout", "no adapter"])
def test_without_dropout_nothing_is_drawn(model):
    rng = np.random.default_rng(0)
    state = copy.deepcopy(rng.bit_generator.state)
    with adapter_dropout(model, rng):
        assert not any(module.training for module in model.modules())
    assert rng.bit_generator.state == state


def test_an_adapter_is_no_model(tmp_path):
    save_adapter(adapted(), tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] in (None, "")
    with pytest.raises(ValueError, match="contains an adapter without its model"):
        load_model(tmp_path)


def test_what_to_install_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ValueError, match=r'pip install "hgpo\[lora\]"'):
        adapted()
