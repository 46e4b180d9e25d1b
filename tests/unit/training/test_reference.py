"""What the divergence is measured from."""

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from hgpo.policies.loading import load_model
from hgpo.policies.weights import Adapter, add_adapter, base_model, restore_rotary
from hgpo.training.batching import Sample
from hgpo.training.log_probs import response_log_probs
from hgpo.training.start_policy import reference_model
from tiny_models import tiny_model


def test_a_model_that_is_trained_in_place_is_copied_and_frozen():
    start = tiny_model()
    reference = reference_model(start, start)
    assert reference is not start.model
    assert not any(parameter.requires_grad for parameter in reference.parameters())
    assert all(parameter.requires_grad for parameter in start.model.parameters())
    assert reference.dtype == torch.float32


def test_it_is_held_as_it_computes():
    start, restored = tiny_model(), tiny_model()
    reference = reference_model(start, restored, "bfloat16")
    assert reference is start.model
    assert reference.dtype == torch.bfloat16
    assert restored.model.dtype == torch.float32


def test_a_model_with_an_adapter_is_its_own():
    start = tiny_model()
    trained = start.changed(lambda model: add_adapter(model, Adapter(2, 4), seed=0))
    assert reference_model(start, trained) is trained.model


FAMILIES = {
    "qwen2": {},
    "llama": {},
    "llama3 scaling": {
        "model_type": "llama",
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500_000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 1024,
        },
    },
    "mistral": {"sliding_window": 1024},
    "qwen3": {"head_dim": 32},
    "gemma3_text": {
        "head_dim": 32,
        "sliding_window": 1024,
        "layer_types": ["sliding_attention", "full_attention"],
        "query_pre_attn_scalar": 32,
    },
    "phi3": {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1},
    "olmo2": {},
}
QUICK_AND_SLOW = [
    pytest.param(family, marks=[] if family in ("qwen2", "llama3 scaling", "gemma3_text") else pytest.mark.slow)
    for family in FAMILIES
]
PROMPT, RESPONSE, VOCABULARY = 3_400, 100, 160


def rotary_model(family):
    options = {
        "vocab_size": VOCABULARY,
        "hidden_size": 128,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 8_192,
        "initializer_range": 0.1,
        **FAMILIES[family],
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = AutoConfig.for_model(options.pop("model_type", family), **options)
        return AutoModelForCausalLM.from_config(config).eval()


def frequencies(model):
    return {name: buffer.clone() for name, buffer in model.named_buffers() if name.endswith("inv_freq")}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_start_policy_does_not_diverge_from_itself_at_3500_tokens(family):
    start = tiny_model()
    start.__dict__["model"] = rotary_model(family)
    rng = np.random.default_rng(0)
    prompt, response = (rng.integers(3, VOCABULARY, size).astype(np.int32) for size in (PROMPT, RESPONSE))
    samples = [Sample(prompt, response, np.zeros(RESPONSE, np.float32), 0.0)]
    models = start.model, reference_model(start, start, "bfloat16")
    own, reference = (response_log_probs(model, samples, precision="bfloat16")[0] for model in models)
    difference = reference - own
    k3 = float((np.exp(difference) - difference - 1).mean())
    assert k3 < 1e-3


def reference_of_a_copy(start, folder):
    return reference_model(start, start, "bfloat16")


def reference_itself(start, folder):
    return reference_model(start, tiny_model(), "bfloat16")


def cast_as_a_whole(start, folder):
    model = start.model.to(torch.bfloat16)
    restore_rotary(model)
    return model


def loaded(start, folder):
    start.model.save_pretrained(folder)
    return load_model(folder, device="cpu", dtype="bfloat16")


def with_an_adapter(start, folder):
    return base_model(add_adapter(loaded(start, folder), Adapter(2, 4), seed=0))


def recomputing_layers(start, folder):
    model = loaded(start, folder)
    model.gradient_checkpointing_enable()
    return model


def in_float32_again(start, folder):
    return loaded(start, folder).float()


QUICK_WAYS = (reference_of_a_copy, cast_as_a_whole, loaded)
SLOW_WAYS = (reference_itself, with_an_adapter, recomputing_layers, in_float32_again)


@pytest.mark.parametrize("family", QUICK_AND_SLOW)
@pytest.mark.parametrize("way", [*QUICK_WAYS, *(pytest.param(way, marks=pytest.mark.slow) for way in SLOW_WAYS)])
def test_every_copy_in_bfloat16_keeps_the_frequencies_of_rotary_embeddings(family, way, tmp_path):
    start = tiny_model()
    start.__dict__["model"] = rotary_model(family)  # as loaded; its vocabulary is not the tokenizer's
    expected = frequencies(start.model)
    model = way(start, tmp_path)
    found = frequencies(model)
    assert expected
    assert model.dtype == (torch.float32 if way is in_float32_again else torch.bfloat16)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
