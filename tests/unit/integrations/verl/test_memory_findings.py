from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from hgpo.integrations.verl.memory_findings import fits, fitting_changes, memory_finding
from hgpo.integrations.verl.rank_memory import RankSettings, Sizes
from hgpo.training.memory_plan import outline_of_model
from qwen_sizes import QWEN

GB = 10**9
PUBLISHED = RankSettings(
    ranks=4,
    tensor_parallel=1,
    vllm_share=0.6,
    max_model_len=4_608,
    micro_batch_tokens=32_768,
    lora_rank=0,
    weight_bytes=4,
    number_bytes=2,
    fused=True,
    offload_parameters=False,
    offload_moments=False,
    recompute_layers=True,
    keeps_gradients_whole=False,
    bucket=2**31,
)
"""The published 7B recipe on four GPUs."""
LARGE, MIDDLE = QWEN["Qwen/Qwen2.5-7B-Instruct"], QWEN["Qwen/Qwen2.5-1.5B-Instruct"]


def test_what_fits_needs_no_remedy() -> None:
    found = memory_finding(LARGE, PUBLISHED, 80 * GB)
    assert (found.remedy, found.fatal) == ("", False)
    assert "in the phase 'rollout' (vLLM 44.7" in found.found


def test_whole_logits_do_not_fit_and_fused_kernels_are_the_remedy() -> None:
    found = memory_finding(LARGE, replace(PUBLISHED, fused=False), 80 * GB)
    assert found.fatal
    assert "logits 4" in found.found
    assert found.remedy == "this would fit: verl.overrides.actor_rollout_ref.model.use_fused_kernels=true"


@pytest.mark.parametrize(
    ("sizes", "settings", "gpu"),
    [
        (LARGE, replace(PUBLISHED, ranks=1), 80 * GB),
        (LARGE, replace(PUBLISHED, ranks=2, fused=False), 80 * GB),
        (MIDDLE, replace(PUBLISHED, ranks=1), 24 * GB),
        (MIDDLE, replace(PUBLISHED, ranks=1, vllm_share=0.1), 24 * GB),
        (LARGE, replace(PUBLISHED, vllm_share=0.95), 80 * GB),
    ],
)
def test_every_change_that_is_named_is_needed(sizes: Sizes, settings: RankSettings, gpu: int) -> None:
    assert not fits(sizes, settings, gpu)
    changes = fitting_changes(sizes, settings, gpu)
    assert changes
    values = {attribute: value for _, attribute, value in changes}
    assert fits(sizes, replace(settings, **values), gpu)
    for attribute in values:
        others = {name: value for name, value in values.items() if name != attribute}
        assert not fits(sizes, replace(settings, **others), gpu), attribute


def test_nothing_makes_7b_fit_a_small_gpu() -> None:
    found = memory_finding(LARGE, replace(PUBLISHED, ranks=1), 24 * GB)
    assert found.fatal
    assert "more or larger GPUs" in found.remedy


def test_a_share_that_cannot_hold_the_weights_is_said() -> None:
    found = memory_finding(LARGE, replace(PUBLISHED, vllm_share=0.15), 80 * GB)
    assert "has no room beside its weights of 14.2" in found.found
    assert "gpu_memory_utilization=0.5" in found.remedy


@pytest.mark.parametrize("name", list(QWEN))
def test_the_sizes_are_those_of_the_architecture(name: str) -> None:
    expected = QWEN[name].shape
    with torch.device("meta"):
        model = Qwen2ForCausalLM(
            Qwen2Config(
                hidden_size=expected.hidden_size,
                num_hidden_layers=expected.layers,
                num_attention_heads=expected.heads,
                num_key_value_heads=expected.key_value_heads,
                intermediate_size=expected.intermediate_size,
                vocab_size=expected.vocabulary,
                tie_word_embeddings="7B" not in name,
            )
        )
    outline = outline_of_model(model)
    assert Sizes(outline.shape, outline.parameters) == QWEN[name]
