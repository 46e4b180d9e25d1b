"""Adapters on the embeddings and on the output layer, tied to each other or not: merged weights compute the same."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from hgpo.policies.loading import load_model
from hgpo.policies.weights import (
    Adapter,
    add_adapter,
    base_model,
    load_adapter,
    merge_adapter,
    merged_weights,
    save_adapter,
    shares_head,
    untie,
)
from hgpo.training.batching import Sample
from hgpo.training.log_probs import response_log_probs

VOCABULARY = 40
IDS = torch.randint(0, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(0))
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen2": {},
    "llama": {},
    "mistral": {},
    "gemma3_text": {"head_dim": 8, "layer_types": ["sliding_attention", "full_attention"]},
    "phi": {},  # its output layer has a bias
    "phi3": {},
    "gpt2": {},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
}
EMBEDDINGS = {"gpt2": "wte"}
TARGETS = ["the output layer", "the embeddings", "both", "both and the layers"]

QUICK = {("qwen2", targets) for targets in TARGETS} | {(family, TARGETS[-1]) for family in ("gemma3_text", "gpt2")}
"""Each kind alone for one family, and the adapters on all three for two that differ from it."""
EVERY_PAIR = [
    pytest.param(*pair, marks=[] if pair in QUICK else pytest.mark.slow)
    for pair in itertools.product(FAMILIES, TARGETS)
]
LAST_TARGETS = [*(pytest.param(targets, marks=pytest.mark.slow) for targets in TARGETS[:-1]), TARGETS[-1]]
UNTIED = pytest.param(False, marks=pytest.mark.slow)

pytestmark = pytest.mark.filterwarnings("ignore:.*tie_word_embeddings:UserWarning")  # peft's, on merging by hand


def build(family: str, *, tied: bool) -> Any:
    options = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
        "initializer_range": 0.3,
        "bos_token_id": None,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "tie_word_embeddings": tied,
        **({} if family == "gpt2" else {"intermediate_size": 32, "num_key_value_heads": 2}),
        **FAMILIES[family],
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **options)).eval()


def adapted(family: str, targets: str, *, tied: bool = True) -> Any:
    """A model with an adapter that has moved away from its start."""
    embeddings = EMBEDDINGS.get(family, "embed_tokens")
    layers = {"gpt2": "c_fc", "phi3": "down_proj", "phi": "q_proj"}.get(family, "q_proj")
    names = {"the output layer": ["lm_head"], "the embeddings": [embeddings], "both": ["lm_head", embeddings]}
    names["both and the layers"] = [*names["both"], layers]
    model = add_adapter(build(family, tied=tied), Adapter(2, 4, targets=names[targets]), seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    return model(input_ids=IDS).logits


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("family", "targets"), EVERY_PAIR)
@pytest.mark.parametrize("tied", [True, UNTIED], ids=["tied", "not tied: right before"])
def test_a_merged_model_computes_what_the_adapter_computed(
    tmp_path: Path, family: str, targets: str, tied: bool
) -> None:
    model = adapted(family, targets, tied=tied)
    assert not shares_head(model)
    expected = logits(model)
    assert (expected - logits(build(family, tied=tied))).abs().max() > 0.1
    merged = merge_adapter(model)
    assert_same(logits(merged), expected)
    merged.save_pretrained(tmp_path)
    assert_same(logits(load_model(tmp_path, device="cpu", dtype="float32")), expected)


@pytest.mark.parametrize(("family", "targets"), EVERY_PAIR)
def test_weights_for_a_sampler_compute_it_in_a_model_with_separate_weights(family: str, targets: str) -> None:
    model = adapted(family, targets)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    config = copy.deepcopy(base_model(model).config)
    untie(config)
    copied = AutoModelForCausalLM.from_config(config).eval()
    weights = dict(merged_weights(model))
    assert copied.load_state_dict(weights, strict=False).unexpected_keys == []
    assert_same(logits(copied), logits(model))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    plain = build(family, tied=True)
    assert "lm_head.weight" not in dict(merged_weights(plain))
    assert shares_head(plain)
    assert shares_head(add_adapter(plain, Adapter(2, 4), seed=0))


@pytest.mark.parametrize("targets", LAST_TARGETS)
@pytest.mark.parametrize("tied", [True, UNTIED], ids=["tied", "not tied"])
def test_saved_and_loaded_it_computes_the_same_which_was_right_before(tmp_path: Path, targets: str, tied: bool) -> None:
    model = adapted("qwen2", targets, tied=tied)
    save_adapter(model, tmp_path)
    assert_same(logits(load_adapter(build("qwen2", tied=tied), tmp_path)), logits(model))


@pytest.mark.parametrize("targets", LAST_TARGETS)
def test_log_probs_of_training_include_it_which_was_right_before(targets: str) -> None:
    model = adapted("qwen2", targets)
    prompt, response = np.arange(3, 9, dtype=np.int32), np.arange(20, 26, dtype=np.int32)
    [found] = response_log_probs(model, [Sample(prompt, response, np.zeros(6, np.float32), 0.0)], max_logits=80)
    ids = torch.from_numpy(np.concatenate([prompt, response])).long()[None]
    with torch.no_grad():
        expected = model(input_ids=ids).logits[0, 5:-1].log_softmax(-1)
    np.testing.assert_allclose(found, expected[range(6), response].numpy(), atol=1e-5)
