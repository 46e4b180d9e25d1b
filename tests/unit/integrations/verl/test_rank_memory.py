from __future__ import annotations

from dataclasses import replace
from typing import Any

from hgpo.integrations.verl.rank_memory import (
    ASLEEP,
    RankSettings,
    Sizes,
    estimate_rank,
    rank_settings,
    sequences_at_a_time,
    vllm_weight_bytes,
)
from hgpo.training.memory_estimate import ModelShape

GB = 10**9
SMALL = Sizes(ModelShape(100, 10, 10, 2, 10, 400, 1_000), 10 * 144_000 + 100_000)
"""A layer has 100 x (2 x 100 + 2 x 20 + 3 x 400) = 144,000 weights; the embeddings are tied, 1,000 x 100."""
PLAIN = RankSettings(
    ranks=1,
    tensor_parallel=1,
    vllm_share=0.5,
    max_model_len=100,
    micro_batch_tokens=900,
    lora_rank=0,
    weight_bytes=4,
    number_bytes=2,
    fused=True,
    offload_parameters=False,
    offload_moments=False,
    recompute_layers=True,
    keeps_gradients_whole=False,
    bucket=1_000,
)


def phases(settings: RankSettings, gpu: int = GB) -> dict[str, dict[str, int]]:
    return estimate_rank(SMALL, settings, gpu).phases


def test_sixteen_bytes_a_parameter_are_kept_for_training() -> None:
    update = phases(PLAIN)["update"]
    kept = sum(update[name] for name in ("weights", "gradients", "moments"))
    assert kept == 16 * SMALL.parameters
    assert update["asleep"] == ASLEEP


def test_ranks_share_what_is_kept_and_not_what_is_gathered() -> None:
    one, four = phases(PLAIN)["update"], phases(replace(PLAIN, ranks=4))["update"]
    for name in ("weights", "gradients", "moments"):
        assert four[name] == one[name] // 4
    for name in ("gathered layers", "activations", "logits"):
        assert four[name] == one[name]
    whole = phases(replace(PLAIN, ranks=4, keeps_gradients_whole=True))["update"]
    assert whole["gradients"] == one["gradients"]


def test_the_pass_by_hand() -> None:
    """1,000 tokens: two layers and the ends are gathered in bfloat16, and one layer's and the ends' gradients."""
    update = phases(PLAIN)["update"]
    assert update["gathered layers"] == 2 * (2 * 144_000 + 100_000) + 6 * (144_000 + 100_000)
    assert update["logits"] == 512 * 1_000 * 22
    inputs = 1_000 * 2 * 100
    assert update["activations"] >= 12 * inputs
    assert phases(replace(PLAIN, fused=False))["update"]["logits"] == 1_000 * 1_000 * 8


def test_adapters_are_all_that_is_trained() -> None:
    update = phases(replace(PLAIN, lora_rank=8))["update"]
    adapters = SMALL.shape.adapter_parameters(8)
    assert update["weights"] == 4 * (SMALL.parameters + adapters)
    assert update["gradients"] + update["moments"] == 12 * adapters
    assert update["gathered layers"] == 2 * (2 * 144_000 + 100_000)


def test_vllm_takes_its_share_whatever_it_needs() -> None:
    rollout = phases(PLAIN)["rollout"]
    assert rollout["vLLM"] == GB // 2
    assert "gradients" not in rollout


def test_what_is_offloaded_is_away_while_vllm_serves() -> None:
    settings = replace(PLAIN, offload_parameters=True, offload_moments=True)
    assert set(phases(settings)["rollout"]) == {"asleep", "vLLM"}
    assert phases(settings)["sync"]["weights"] == 4 * SMALL.parameters  # loaded to be handed over
    assert "moments" not in phases(settings)["update"]
    assert phases(settings)["optimiser"]["moments"] == 8 * SMALL.parameters


def test_cache_by_hand() -> None:
    """A token's keys and values take 2 x 2 bytes x 10 layers x 2 heads x 10 = 800 bytes, a sequence 80,000."""
    gpu = 16 * 10**6
    assert vllm_weight_bytes(SMALL, PLAIN) == 2 * SMALL.parameters == 3_080_000
    assert sequences_at_a_time(SMALL, PLAIN, gpu) == (7_000_000 - 3_080_000) // 80_000
    assert sequences_at_a_time(SMALL, replace(PLAIN, vllm_share=0.2), gpu) < 1
    assert vllm_weight_bytes(SMALL, replace(PLAIN, tensor_parallel=2)) == 1_540_000


def test_settings_are_read_from_verls_configuration() -> None:
    engine = {
        "model_dtype": "fp32",
        "mixed_precision": {"param_dtype": "bfloat16"},
        "param_offload": False,
        "optimizer_offload": True,
        "offload_policy": False,
        "use_no_sync_for_gradient_accumulation": False,
    }
    tree: dict[str, Any] = {
        "trainer": {"nnodes": 2, "n_gpus_per_node": 4},
        "actor_rollout_ref": {
            "model": {
                "lora_rank": 16,
                "lora": {"rank": 0},
                "use_fused_kernels": True,
                "enable_gradient_checkpointing": True,
            },
            "actor": {"fsdp_config": engine, "ppo_max_token_len_per_gpu": 32_768},
            "rollout": {
                "tensor_model_parallel_size": 2,
                "gpu_memory_utilization": 0.6,
                "max_model_len": 4_608,
                "checkpoint_engine": {"update_weights_bucket_megabytes": 2},
            },
        },
    }
    assert rank_settings(tree) == RankSettings(
        ranks=8,
        tensor_parallel=2,
        vllm_share=0.6,
        max_model_len=4_608,
        micro_batch_tokens=32_768,
        lora_rank=16,
        weight_bytes=4,
        number_bytes=2,
        fused=True,
        offload_parameters=False,
        offload_moments=True,
        recompute_layers=True,
        keeps_gradients_whole=False,
        bucket=2 * 2**20,
    )


def test_weights_in_bfloat16_take_half() -> None:
    assert phases(replace(PLAIN, weight_bytes=2))["update"]["weights"] == 2 * SMALL.parameters
