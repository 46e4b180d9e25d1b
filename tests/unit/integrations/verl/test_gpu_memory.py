from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from hgpo.integrations.verl.machine import estimate_gpu_memory
from hgpo.runs.metrics import GIB
from hgpo.training.run_plan import ModelSummary
from qwen_sizes import QWEN

SMALL, LARGE = QWEN["Qwen/Qwen2.5-0.5B-Instruct"], QWEN["Qwen/Qwen2.5-7B-Instruct"]
GPU = 80 * 10**9


def composed(**changes: Any) -> dict[str, Any]:
    """Published settings of 7B on four GPUs."""
    model = {"lora_rank": 0, "use_fused_kernels": True, "enable_gradient_checkpointing": True}
    engine = {
        "model_dtype": "fp32",
        "mixed_precision": {"param_dtype": "bfloat16"},
        "param_offload": False,
        "optimizer_offload": False,
        "offload_policy": False,
    }
    rollout = {"gpu_memory_utilization": 0.6, "max_model_len": 4_608}
    trainer = {"nnodes": 1, "n_gpus_per_node": 4}
    tokens = {"ppo_max_token_len_per_gpu": 32_768}
    for table in (model, engine, rollout, trainer, tokens):
        table.update({name: changes[name] for name in changes if name in table})  # type: ignore[attr-defined]
    actor = {"fsdp_config": engine, **tokens}
    return {"trainer": trainer, "actor_rollout_ref": {"model": model, "actor": actor, "rollout": rollout}}


def update_of(**changes: Any) -> dict[str, float]:
    return estimate_gpu_memory(LARGE, composed(**changes), GPU)["the updates"]


def test_weights_gradients_and_moments_are_sharded() -> None:
    parts = update_of()
    assert parts["weights"] * GIB == 4 * LARGE.parameters // 4
    assert parts["optimiser"] * GIB == 12 * LARGE.parameters // 4
    assert update_of(n_gpus_per_node=8)["optimiser"] == parts["optimiser"] / 2


def test_adapters_alone_have_gradients_and_moments() -> None:
    assert update_of(lora_rank=64)["optimiser"] < 0.1 * update_of()["optimiser"]


def test_vllm_takes_its_share_of_the_gpu() -> None:
    parts = estimate_gpu_memory(SMALL, composed(gpu_memory_utilization=0.5), GPU)["sampling"]
    assert parts["vLLM"] * GIB == 40 * 10**9
    assert parts["weights and optimiser"] * GIB == 12 * SMALL.parameters // 4


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"ppo_max_token_len_per_gpu": 16_384}, "activations"),
        ({"optimizer_offload": True}, "optimiser"),
        ({"lora_rank": 64}, "gathered layers"),
    ],
)
def test_each_setting_saves_where_it_should(change: dict[str, Any], part: str) -> None:
    assert update_of(**change)[part] < 0.7 * update_of()[part]


@pytest.mark.parametrize(
    ("setting", "part"), [("use_fused_kernels", "logits"), ("enable_gradient_checkpointing", "activations")]
)
def test_what_saves_by_default(setting: str, part: str) -> None:
    assert update_of(**{setting: False})[part] > 5 * update_of()[part]


def test_offloaded_weights_make_room_for_vllm() -> None:
    parts = estimate_gpu_memory(LARGE, composed(param_offload=True, optimizer_offload=True), GPU)["sampling"]
    assert parts["weights and optimiser"] == 0


@pytest.mark.parametrize("name", list(QWEN))
def test_the_sizes_are_those_of_the_architecture(name: str) -> None:
    expected = QWEN[name]
    heads = {
        "Qwen/Qwen2.5-0.5B-Instruct": (14, 2),
        "Qwen/Qwen2.5-1.5B-Instruct": (12, 2),
        "Qwen/Qwen2.5-7B-Instruct": (28, 4),
    }
    with torch.device("meta"):
        model = Qwen2ForCausalLM(
            Qwen2Config(
                hidden_size=expected.hidden_size,
                num_hidden_layers=expected.layers,
                num_attention_heads=heads[name][0],
                num_key_value_heads=heads[name][1],
                intermediate_size=expected.intermediate_size,
                vocab_size=expected.vocabulary,
                tie_word_embeddings="7B" not in name,
            )
        )
    assert ModelSummary.of(model) == expected
