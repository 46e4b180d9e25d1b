from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from hgpo.training.memory_estimate import Limits, MemoryEstimate, ModelShape, Weights, estimate_memory, layer_bytes
from hgpo.training.memory_plan import outline_of_model

SMOL = ModelShape(576, 30, 9, 3, 64, 1536, 49_152)
SMOL_PARAMETERS = 134_515_008
LIMITS = Limits(448, 65, micro_batch_tokens=2048, max_logits=2**26, sampler_rows=8, sampler_tokens=2**18)
GIB = 2**30


ALL_TRAINED = Weights(SMOL_PARAMETERS)


def update_of(weights=ALL_TRAINED, limits=LIMITS):
    return estimate_memory(SMOL, weights, limits).phases["update"]


def test_weights_gradients_and_moments_are_float32() -> None:
    parts = update_of()
    assert parts["weights"] == parts["gradients"] == 4 * SMOL_PARAMETERS
    assert parts["optimiser"] == 8 * SMOL_PARAMETERS
    assert "reference" not in parts
    assert update_of(Weights(SMOL_PARAMETERS, reference_bytes=7))["reference"] == 7


def test_adapters_alone_have_gradients_and_moments() -> None:
    adapters = SMOL.adapter_parameters(16)
    parts = update_of(Weights(adapters, frozen=SMOL_PARAMETERS, frozen_bytes=2))
    assert parts["weights"] == 4 * adapters + 2 * SMOL_PARAMETERS
    assert (parts["gradients"], parts["optimiser"]) == (4 * adapters, 8 * adapters)


def test_adapter_parameters_are_those_of_peft() -> None:
    peft = pytest.importorskip("peft")
    model = LlamaForCausalLM(LlamaConfig(**SIZES, num_hidden_layers=2))
    shape = outline_of_model(model).shape
    trained = peft.get_peft_model(model, peft.LoraConfig(r=3, target_modules="all-linear", task_type="CAUSAL_LM"))
    assert shape.adapter_parameters(3) == sum(p.numel() for p in trained.parameters() if p.requires_grad)


def test_phases_follow_each_other_and_the_largest_counts() -> None:
    estimate = MemoryEstimate({"update": {"weights": 9, "gradients": 9}, "sampling": {"weights": 9, "sampler": 8}})
    assert (estimate.largest, estimate.total) == ("update", 18)


def test_the_process_is_in_every_phase() -> None:
    estimate = estimate_memory(SMOL, ALL_TRAINED, replace(LIMITS, warm_start_tokens=512), process=5)
    assert [parts["process"] for parts in estimate.phases.values()] == [5, 5, 5]


def test_the_key_value_cache_of_a_full_batch() -> None:
    cache = 2 * 30 * 3 * 64 * 4 * 8 * (448 + 65)  # keys and values, layers, heads, size, float32, rows, tokens
    sampler = estimate_memory(SMOL, ALL_TRAINED, LIMITS).phases["sampling"]["sampler"]
    assert cache < sampler < 1.5 * cache
    few = replace(LIMITS, sampler_tokens=2 * (448 + 65))
    assert estimate_memory(SMOL, ALL_TRAINED, few).phases["sampling"]["sampler"] < sampler / 3
    other = replace(LIMITS, sampler_rows=0)
    assert "sampler" not in estimate_memory(SMOL, ALL_TRAINED, other).phases["sampling"]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"micro_batch_tokens": 1024}, "activations"),
        ({"recompute_layers": True}, "activations"),
        ({"max_logits": 2**22}, "logits"),
        ({"entropy_gradient": False}, "logits"),
    ],
)
def test_each_setting_saves_where_it_should(change, part) -> None:
    assert update_of(limits=replace(LIMITS, **change))[part] < 0.85 * update_of()[part]


def test_a_sample_longer_than_a_micro_batch_counts_whole() -> None:
    short, none = (update_of(limits=replace(LIMITS, micro_batch_tokens=tokens)) for tokens in (256, 1))
    assert sum(none.values()) == pytest.approx(sum(short.values()), rel=0.05)


def test_where_passes_are_small_the_optimisers_step_is_the_peak() -> None:
    small = replace(LIMITS, prompt_tokens=8, response_tokens=8, micro_batch_tokens=16, accelerator=True)
    assert update_of(limits=small)["optimiser's step"] == 4 * SMOL_PARAMETERS


def test_a_warm_start_keeps_snapshots() -> None:
    estimate = estimate_memory(SMOL, ALL_TRAINED, replace(LIMITS, warm_start_tokens=16))
    assert estimate.phases["warm start"]["snapshots"] >= 2 * 12 * SMOL_PARAMETERS


SIZES = {
    "vocab_size": 1000,
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
}


def kept_for_backward(model, low: bool) -> tuple[int, int]:
    """Bytes that autograd keeps of a forward pass over rows of unequal length, weights left out; and its tokens."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        is_weight = tensor.untyped_storage().data_ptr() in weights or (tensor.dim() == 2 and tensor.shape[0] != 200)
        if not is_weight:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    ids, mask = torch.zeros((4, 50), dtype=torch.long), torch.ones((4, 50), dtype=torch.long)
    mask[1:, :7] = 0
    with saved_tensors_hooks(keep, lambda tensor: tensor), torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
        model(input_ids=ids, attention_mask=mask, use_cache=False)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values()), ids.numel()


@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize(
    ("config", "build"),
    [(LlamaConfig, LlamaForCausalLM), (Qwen2Config, Qwen2ForCausalLM), (Qwen3Config, Qwen3ForCausalLM)],
)
def test_a_layer_keeps_what_autograd_says(config, build, low) -> None:
    heads = {} if config is Qwen2Config else {"head_dim": 16}
    models = [build(config(**SIZES, **heads, num_hidden_layers=layers)).eval() for layers in (1, 2)]
    (one, tokens), (two, _) = (kept_for_backward(model, low) for model in models)
    limits = replace(LIMITS, low_precision=low)
    estimated = layer_bytes(outline_of_model(models[0]).shape, limits, 50)
    assert estimated == pytest.approx((two - one) / tokens, rel=0.02)


SMOL_SIZES = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "num_hidden_layers": 30,
    "vocab_size": 49_152,
    "tie_word_embeddings": True,
}
WIDE = {
    "hidden_size": 384,
    "intermediate_size": 1920,
    "num_attention_heads": 6,
    "num_key_value_heads": 1,
    "num_hidden_layers": 6,
    "vocab_size": 60_000,
    "tie_word_embeddings": False,
}
SMALL = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "num_hidden_layers": 12,
    "vocab_size": 8_000,
    "tie_word_embeddings": True,
}
CASES = {
    "SmolLM2-135M": ("llama", SMOL_SIZES, (448, 64), {"micro_batch_tokens": 1024}),
    "wide": (
        "qwen2",
        WIDE,
        (900, 100),
        {"micro_batch_tokens": 2000, "max_logits": 2**24, "kl_coefficient": 0, "entropy_coefficient": 0},
    ),
    "small": ("llama", SMALL, (224, 32), {"micro_batch_tokens": 4096, "max_logits": 2**22, "kl_coefficient": 0}),
}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read where Linux writes it")
@pytest.mark.parametrize("recompute_layers", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", CASES)
def test_whole_updates_take_what_was_estimated(case, precision, recompute_layers) -> None:
    kind, sizes, (prompt, response), settings = CASES[case]
    written = {
        "kind": kind,
        "sizes": sizes,
        "prompt": prompt,
        "response": response,
        "settings": {**settings, "precision": precision, "gradient_checkpointing": recompute_layers},
    }
    script = Path(__file__).parents[2] / "updates_memory.py"
    command = [sys.executable, str(script), json.dumps(written)]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    ratio = found["estimated"] / found["measured"]
    sys.stdout.write(f"{found['estimated'] / GIB:.2f} GiB for {found['measured'] / GIB:.2f} GiB\n")
    assert 0.9 <= ratio <= 1.4
