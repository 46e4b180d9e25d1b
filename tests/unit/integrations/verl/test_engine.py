"""Losses, importance correction and repairs in verl's training engine. Runs where verl is installed."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from hgpo.config import Config, LossAggregation, TrainingSettings
from hgpo.integrations.verl.config import mapped_settings
from hgpo.policies.weights import restore_rotary
from hgpo.training.losses import (
    LOSSES,
    Clip,
    ResponseTokens,
    importance_weights,
    sampler_mismatch,
    token_weights,
    weighted_mean,
)
from hgpo.training.update import set_learning_rate

pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")

from tensordict import TensorDict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from transformers import Qwen2Config, Qwen2ForCausalLM
from verl.models.transformers.monkey_patch import patch_forward_with_backends
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.utils import fsdp_utils
from verl.workers.config import ActorConfig
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

from hgpo.integrations.verl import engine
from hgpo.integrations.verl.engine import corrected

LENGTHS = torch.tensor([5, 1, 3, 4, 2, 5])
VERLS: dict[LossAggregation, str] = {
    "token-mean": "token-mean",
    "sequence-mean": "seq-mean-token-mean",
    "constant": "seq-mean-token-sum-norm",
}
"""Our name of an aggregation -> verl's own, which is right where no row is padding."""


def drawn(generator: torch.Generator) -> torch.Tensor:
    return -torch.rand(len(LENGTHS), int(LENGTHS.max()), generator=generator) * 2


@pytest.mark.parametrize("aggregation", VERLS)
@pytest.mark.parametrize("loss", LOSSES)
def test_value_and_gradient_are_verls(loss: Any, aggregation: Any) -> None:
    generator = torch.Generator().manual_seed(1)
    log_prob_BT, old_BT = drawn(generator), drawn(generator)
    advantage_B1 = torch.randn(len(LENGTHS), 1, generator=generator)
    weight_BT = drawn(generator).abs()
    mask_BT = torch.arange(log_prob_BT.shape[1]) < LENGTHS.unsqueeze(-1)

    ours_BT = log_prob_BT.clone().requires_grad_()
    policy = LOSSES[loss](ResponseTokens(ours_BT, old_BT, advantage_B1, mask_BT), Clip(0.1, 0.3, 1.5))
    shares = token_weights(LENGTHS.numpy(), aggregation, max_response_tokens=64, micro_batch_rows=2)
    share_B = torch.from_numpy(shares.weight_B).float()
    ours = weighted_mean(policy.loss_BT * weight_BT, mask_BT, share_B, shares.divisor)
    ours.backward()

    training = {"loss": loss, "clip_low": 0.1, "clip_high": 0.3, "dual_clip": 1.5}
    recipe = Config.model_validate(
        {"run": {"engine": "verl"}, "policy": {"model": "m", "max_response_tokens": 64}, "training": training}
    )
    mapped = mapped_settings(recipe, "m", recipe.run_directory)
    actor = {name.removeprefix("actor_rollout_ref.actor."): one.value for name, one in mapped.items()}
    known = ("clip_ratio", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c")
    settings = ActorConfig(
        strategy="fsdp2", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **{name: actor[name] for name in known}
    )
    settings.global_batch_info.update(
        dp_size=1, batch_num_tokens=int(LENGTHS.sum()), global_batch_size=len(LENGTHS), loss_scale_factor=64
    )
    theirs_BT = log_prob_BT.clone().requires_grad_()
    theirs, figures = get_policy_loss_fn(actor["policy_loss.loss_mode"])(
        old_log_prob=old_BT,
        log_prob=theirs_BT,
        advantages=advantage_B1.expand_as(old_BT),
        response_mask=mask_BT,
        loss_agg_mode=VERLS[aggregation],
        config=settings,
        rollout_is_weights=weight_BT,
    )
    theirs.backward()
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(ours_BT.grad, theirs_BT.grad)
    assert figures["actor/pg_clipfrac"] == pytest.approx(policy.clipped_BT[mask_BT].float().mean().item())


# ---- importance correction -------------------------------------------------------------------------------------------

# Two steps and a row of padding. Probabilities of the sampled tokens: the trainer's over the engine's.
TRAINER = [[0.3, 0.6, 0.5], [0.8]]
ENGINE = [[0.2, 0.1, 0.5], [0.4]]
WEIGHTS = [[1.5, 6.0, 1.0], [2.0]]  # their ratios, before the cap


def jagged(rows: list[list[float]], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.nested.as_nested_tensor([torch.tensor(row, dtype=dtype) for row in rows], layout=torch.jagged)


def batch() -> TensorDict:
    mask = [[1.0] * len(row) for row in TRAINER] + [[0.0]]
    columns = {
        "response_mask": jagged(mask, torch.int64),
        "old_log_probs": jagged([*(np.log(row).tolist() for row in TRAINER), [0.0]]),
        "rollout_log_probs": jagged([*(np.log(row).tolist() for row in ENGINE), [-5.0]]),
    }
    return TensorDict(columns, batch_size=3)


def settings(**training: Any) -> dict[str, Any]:
    recipe = Config.model_validate(
        {"run": {"engine": "verl"}, "policy": {"model": "m"}, "training": {"recompute_log_probs": True, **training}}
    )
    mapped = mapped_settings(recipe, "m", recipe.run_directory)
    prefix = "algorithm.rollout_correction."
    return {name.removeprefix(prefix): one.value for name, one in mapped.items() if name.startswith(prefix)}


@pytest.mark.parametrize("cap", [2.0, 3.0])
def test_the_weight_of_a_token_is_the_ratio_of_its_probabilities_and_at_most_the_cap(cap: float) -> None:
    columns, _ = corrected(batch(), settings(importance_cap=cap), cap)
    weights = columns["rollout_is_weights"].unbind()
    for found, expected, pair in zip(weights, WEIGHTS, zip(TRAINER, ENGINE, strict=True), strict=False):
        assert_allclose(found, np.minimum(expected, cap), rtol=1e-6)
        trainer_N, engine_N = (np.log(row).astype(np.float32) for row in pair)
        assert_allclose(found, importance_weights(trainer_N, engine_N, cap), rtol=1e-6)  # the built-in trainer's
    assert [row.tolist() for row in columns["response_mask"].unbind()] == [[1, 1, 1], [1], [0]]
    assert columns["response_mask"].dtype == torch.int64


def test_the_figures_are_the_built_in_trainers_of_the_steps_alone() -> None:
    _, figures = corrected(batch(), settings(importance_cap=2.0), 2.0)
    trainer_N, engine_N = (np.log(np.concatenate([np.array(row) for row in rows])) for rows in (TRAINER, ENGINE))
    expected = sampler_mismatch(trainer_N.astype(np.float32), engine_N.astype(np.float32), 2.0)
    assert {name: figures[name] for name in expected} == pytest.approx(expected)
    assert figures["sampler_gap_max"] == pytest.approx(np.log(6))
    assert figures["sampler_gap_mean"] == pytest.approx((np.log(1.5) + np.log(6) + 0 + np.log(2)) / 4)
    assert figures["sampler_effective_sample_size"] == pytest.approx(6.5**2 / (4 * (1.5**2 + 4 + 1 + 4)))
    assert figures["sampler_clipped_share"] == 0.25
    assert "rollout_corr/rollout_is_mean" in figures  # verl's own are there too


def test_without_a_cap_there_is_no_weight_and_the_gap_is_still_measured() -> None:
    columns, figures = corrected(batch(), settings(importance_cap="none"), None)
    assert set(columns) == {"response_mask"}
    assert figures["sampler_gap_max"] == pytest.approx(np.log(6))
    assert "sampler_clipped_share" not in figures


def test_tokens_that_verl_rejects_are_masked_and_counted_in_the_gap() -> None:
    rejecting = {**settings(), "rollout_rs": "token_k1", "rollout_rs_threshold": "0.5_4.0"}
    columns, figures = corrected(batch(), rejecting, 2.0)
    assert [row.tolist() for row in columns["response_mask"].unbind()] == [[1, 0, 1], [1], [0]]
    assert figures["sampler_gap_max"] == pytest.approx(np.log(6))


# ---- repairs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize("warmup", [0, 1, 4])
@pytest.mark.parametrize("trained", [range(1, 10), (3, 4, 7, 9)], ids=["all updates", "some updates"])
def test_the_learning_rates_are_the_built_in_trainers(schedule: Any, warmup: int, trained: Any) -> None:
    updates = 9
    training = TrainingSettings(
        updates=updates, learning_rate=0.5, learning_rate_schedule=schedule, warmup_updates=warmup
    )
    ours, theirs = (torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5) for _ in range(2))
    config = SimpleNamespace(
        total_training_steps=updates,
        lr_warmup_steps=warmup,
        lr_warmup_steps_ratio=0.0,
        lr_scheduler_type=schedule,
        min_lr_ratio=None,
        num_cycles=0.5,
        zero_indexed_step=True,
    )
    scheduler = FSDPEngine._build_lr_scheduler(SimpleNamespace(optimizer_config=config, rank=1), theirs)
    for update in trained:  # the others train the critic alone, or nothing
        set_learning_rate(ours, training, update)
        engine.follow_updates(scheduler, update)
        assert theirs.param_groups[0]["lr"] == pytest.approx(ours.param_groups[0]["lr"]), update
        assert theirs.param_groups[0]["lr"] > 0
        theirs.step()
        scheduler.step()


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
    restore_rotary(reference)
    torch.testing.assert_close(reference.model.rotary_emb(hidden, positions)[0], cosines, rtol=0, atol=0)
    assert reference.lm_head.weight.dtype == torch.bfloat16


def test_a_float32_model_is_left_alone() -> None:
    built = model(tied=True)
    before = built.model.rotary_emb.inv_freq
    restore_rotary(built)
    assert built.model.rotary_emb.inv_freq is before
