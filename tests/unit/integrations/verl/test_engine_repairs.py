"""What verl's FSDP2 engine gets wrong, and that it is mended: one process, gloo, a small model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")

from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from transformers import Qwen2Config, Qwen2ForCausalLM
from verl.models.transformers.monkey_patch import patch_forward_with_backends
from verl.utils import fsdp_utils

from hgpo.integrations.verl import engine

POSITIONS = 4_000


def model(*, tied: bool) -> Any:
    torch.manual_seed(0)
    return Qwen2ForCausalLM(
        Qwen2Config(
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=128,
            intermediate_size=128,
            vocab_size=100,
            tie_word_embeddings=tied,
            rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        )
    )


@pytest.fixture
def one_rank(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A mesh of this process alone; the class of the model is what it was afterwards."""
    monkeypatch.setattr(Qwen2ForCausalLM, "forward", Qwen2ForCausalLM.forward)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def sharded(built: Any, mesh: Any) -> Any:
    precision = MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float32)
    fsdp_utils.apply_fsdp2(built, {"mesh": mesh, "mp_policy": precision, "reshard_after_forward": True}, {})
    return built


def log_probs_and_gradient(built: Any, fused: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Of a fixed sample; the gradient is the head's, of the sum of the log-probs."""
    ids = torch.arange(40).remainder(100)[None]
    labels = torch.roll(ids, -1, -1)
    if fused:
        found = built(input_ids=ids, use_cache=False, return_dict=True, temperature=1.0, shift_labels=labels).log_probs
    else:
        logits = built(input_ids=ids, use_cache=False).logits
        found = torch.log_softmax(logits, -1).gather(-1, labels[..., None])[..., 0]
    found.sum().backward()
    return found.detach(), built.lm_head.weight.grad.full_tensor()


@pytest.mark.parametrize("tied", [True, False])
def test_fused_kernels_give_the_plain_log_probs_and_gradients(one_rank: Any, tied: bool) -> None:
    plain = log_probs_and_gradient(sharded(model(tied=tied), one_rank), fused=False)
    built = model(tied=tied)
    patch_forward_with_backends(built, use_fused_kernels=True, fused_kernels_backend="torch")
    fused = log_probs_and_gradient(sharded(built, one_rank), fused=True)
    torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-5)


def test_without_the_repair_an_untied_head_is_not_gathered(one_rank: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsdp_utils, "_select_fsdp2_wrap_targets", engine._select_wrap_targets)
    built = model(tied=False)
    patch_forward_with_backends(built, use_fused_kernels=True, fused_kernels_backend="torch")
    with pytest.raises(RuntimeError, match=r"mixed torch\.Tensor and DTensor"):
        log_probs_and_gradient(sharded(built, one_rank), fused=True)


def test_packed_samples_do_not_see_each_other_without_flash_attention() -> None:
    """With `attn_implementation = "sdpa"`: verl hands over positions alone, and no mask."""
    built = model(tied=True)
    ids, positions = torch.arange(40)[None], torch.cat([torch.arange(15), torch.arange(25)])[None]
    packed = built(input_ids=ids, position_ids=positions, use_cache=False).logits[:, 15:]
    torch.testing.assert_close(packed, built(input_ids=ids[:, 15:], use_cache=False).logits, rtol=1e-4, atol=1e-5)


def test_a_bfloat16_reference_sees_the_positions_that_the_policy_sees() -> None:
    policy, reference = model(tied=True), model(tied=True)
    reference.to(torch.bfloat16)  # as verl does
    positions = torch.arange(POSITIONS)[None]
    hidden = torch.zeros(1, POSITIONS, 64)
    cosines, _ = policy.model.rotary_emb(hidden, positions)
    assert (reference.model.rotary_emb(hidden, positions)[0] - cosines).abs().max() > 1  # other positions altogether
    engine.restore_rotary(reference)
    torch.testing.assert_close(reference.model.rotary_emb(hidden, positions)[0], cosines, rtol=0, atol=0)
    assert reference.lm_head.weight.dtype == torch.bfloat16


def test_a_float32_model_is_left_alone() -> None:
    built = model(tied=True)
    before = built.model.rotary_emb.inv_freq
    engine.restore_rotary(built)
    assert built.model.rotary_emb.inv_freq is before
