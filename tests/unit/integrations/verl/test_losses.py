"""What verl computes under the names this project gives it is this project's loss. Runs where verl is installed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hgpo.config import Config, TrainingSettings
from hgpo.integrations.verl.config import mapped_settings
from hgpo.training.losses import AGGREGATIONS, LOSSES, Clip, MiniBatchSize, ResponseTokens

pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")

from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.utils.metric import AggregationType, Metric, reduce_metrics
from verl.workers.config import ActorConfig

from hgpo.integrations.verl import engine  # noqa: F401, it makes them known by name
from hgpo.integrations.verl.metrics import TOKENS, by_token, update_metrics

LENGTHS = torch.tensor([5, 1, 3, 4, 2, 5])


def drawn(generator: torch.Generator) -> torch.Tensor:
    return -torch.rand(len(LENGTHS), int(LENGTHS.max()), generator=generator) * 2


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("loss", LOSSES)
def test_value_and_gradient_are_verls(loss: Any, aggregation: Any) -> None:
    generator = torch.Generator().manual_seed(1)
    log_prob_BT, old_BT = drawn(generator), drawn(generator)
    advantage_B1 = torch.randn(len(LENGTHS), 1, generator=generator)
    weight_BT = drawn(generator).abs()
    mask_BT = torch.arange(log_prob_BT.shape[1]) < LENGTHS.unsqueeze(-1)

    size = MiniBatchSize(tokens=int(LENGTHS.sum()), responses=len(LENGTHS), max_response_tokens=64)
    ours_BT = log_prob_BT.clone().requires_grad_()
    policy = LOSSES[loss](ResponseTokens(ours_BT, old_BT, advantage_B1, mask_BT), Clip(0.1, 0.3, 1.5))
    ours = AGGREGATIONS[aggregation](policy.loss_BT * weight_BT, mask_BT, size)
    ours.backward()

    training = {"loss": loss, "loss_aggregation": aggregation, "clip_low": 0.1, "clip_high": 0.3, "dual_clip": 1.5}
    recipe = Config.model_validate(
        {"run": {"engine": "verl"}, "policy": {"model": "m", "max_response_tokens": 64}, "training": training}
    )
    mapped = mapped_settings(recipe, "m", recipe.run_directory)
    actor = {name.removeprefix("actor_rollout_ref.actor."): one.value for name, one in mapped.items()}
    known = ("clip_ratio", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c", "loss_agg_mode", "loss_scale_factor")
    settings = ActorConfig(
        strategy="fsdp2", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **{name: actor[name] for name in known}
    )
    settings.global_batch_info.update(
        dp_size=1, batch_num_tokens=size.tokens, global_batch_size=size.responses, loss_scale_factor=64
    )
    theirs_BT = log_prob_BT.clone().requires_grad_()
    theirs, figures = get_policy_loss_fn(actor["policy_loss.loss_mode"])(
        old_log_prob=old_BT,
        log_prob=theirs_BT,
        advantages=advantage_B1.expand_as(old_BT),
        response_mask=mask_BT,
        loss_agg_mode=settings.loss_agg_mode,
        config=settings,
        rollout_is_weights=weight_BT,
    )
    theirs.backward()
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(ours_BT.grad, theirs_BT.grad)
    assert figures["actor/pg_clipfrac"] == pytest.approx(policy.clipped_BT[mask_BT].float().sum().item())
    assert figures[TOKENS] == size.tokens


def test_figures_are_means_over_tokens_however_verl_cuts_and_shares_a_mini_batch() -> None:
    """Two mini-batches on two ranks with two micro-batches each, put together by verl's own classes."""
    generator = torch.Generator().manual_seed(2)
    settings = ActorConfig(strategy="fsdp2", rollout_n=1, ppo_micro_batch_size_per_gpu=1)
    clipped, moved, lists = [], [], {}
    for _ in range(2):
        log_prob_BT, old_BT = drawn(generator), drawn(generator)
        advantage_BT = torch.randn(len(LENGTHS), 1, generator=generator).expand_as(old_BT)
        mask_BT = torch.arange(old_BT.shape[1]) < LENGTHS.unsqueeze(-1)
        of_ranks: list[dict[str, Metric]] = []
        for rank in ((range(1), range(1, 3)), (range(3, 5), range(5, 6))):
            metrics: dict[str, Metric] = {}
            for rows in rank:
                part = slice(rows.start, rows.stop)
                _, figures = get_policy_loss_fn("hgpo_vanilla")(
                    old_log_prob=old_BT[part],
                    log_prob=log_prob_BT[part],
                    advantages=advantage_BT[part],
                    response_mask=mask_BT[part],
                    loss_agg_mode="token-mean",
                    config=settings,
                    rollout_is_weights=None,
                )
                for name, figure in Metric.from_dict(figures, aggregation=AggregationType.MEAN).items():
                    metrics.setdefault(name, figure.init_list()).append(figure)
            of_ranks.append(metrics)
        for name in of_ranks[0]:
            lists.setdefault(name, []).append(Metric.aggregate_dp([metrics[name] for metrics in of_ranks]))
        policy = LOSSES["ppo"](
            ResponseTokens(log_prob_BT, old_BT, advantage_BT[:, :1], mask_BT), Clip(settings.clip_ratio, 0.2, 3.0)
        )
        clipped.append(policy.clipped_BT[mask_BT].float().mean().item())
        moved.append((old_BT - log_prob_BT)[mask_BT].mean().item())
    found = update_metrics(reduce_metrics(by_token(lists)), TrainingSettings())
    assert found["clip_fraction"] == pytest.approx(sum(clipped) / 2, rel=1e-5)
    assert found["approximate_kl"] == pytest.approx(sum(moved) / 2, rel=1e-4)
    assert TOKENS not in by_token(lists)
