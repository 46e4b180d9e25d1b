import copy
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from hgpo.config import LossAggregation, TrainingSettings
from hgpo.training.log_probs import response_log_probs
from hgpo.training.losses import LOSSES
from hgpo.training.update import Sampling, Trained, make_optimizer, set_learning_rate, update_policy
from tiny_models import tiny_model, tiny_samples

SETTINGS = TrainingSettings(learning_rate=1e-3, mini_batch_size=10)
ON_POLICY = Sampling()


def train(samples, settings=SETTINGS, *, model=None, reference=None, seed=0, sampling=ON_POLICY):
    model = model or tiny_model().model
    reference = reference or copy.deepcopy(model)
    optimizer = make_optimizer(model, settings)
    metrics = update_policy(
        Trained(model, optimizer, reference), samples, settings, np.random.default_rng(seed), sampling
    )
    return model, metrics


def parameters(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def on_policy_samples(model, count=20):
    """Samples whose old log-probs are the model's own, so that every ratio starts at 1."""
    samples = tiny_samples(count)
    return [
        replace(sample, log_probs=log_probs)
        for sample, log_probs in zip(samples, response_log_probs(model, samples), strict=True)
    ]


def test_micro_batch_size_does_not_change_the_update():
    samples = [replace(sample, prompt_ids=sample.prompt_ids[:5]) for sample in tiny_samples(12, longest=8)]
    width = max(sample.token_count for sample in samples)
    # AdamW turns the sign of a gradient that is all rounding into a full step, hence the small learning rate.
    results = [
        train(samples, SETTINGS.model_copy(update={"micro_batch_tokens": tokens, "learning_rate": 1e-4}))
        for tokens in (1, 3 * width, 10_000)  # one sample at a time, three or more, all
    ]
    (reference_model, reference_metrics), *others = results
    for model, metrics in others:
        assert metrics == pytest.approx(reference_metrics, rel=1e-3, abs=1e-5)
        for name, value in parameters(model).items():
            torch.testing.assert_close(value, parameters(reference_model)[name], atol=1e-6, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", get_args(LossAggregation))
@pytest.mark.parametrize("loss", LOSSES)
def test_nor_does_it_with_any_loss_and_aggregation_under_correction(loss, aggregation):
    start = tiny_model().model
    sampling = Sampling(max_response_tokens=8, recompute_log_probs=True)
    results = []
    for tokens in (1, 60, 10_000):
        settings = SETTINGS.model_copy(
            update={
                "loss": loss,
                "loss_aggregation": aggregation,
                "loss_micro_batch_rows": 3,
                "micro_batch_tokens": tokens,
            }
        )
        model = copy.deepcopy(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # rounding stays rounding, unlike with AdamW
        samples, rng = tiny_samples(20, longest=8), np.random.default_rng(0)
        metrics = update_policy(Trained(model, optimizer, start), samples, settings, rng, sampling)
        results.append((parameters(model), metrics))
    (reference, reference_metrics), *others = results
    assert any(not torch.equal(value, parameters(start)[name]) for name, value in reference.items())
    for moved, metrics in others:
        assert metrics == pytest.approx(reference_metrics, rel=1e-4, abs=1e-5)
        for name, value in moved.items():
            torch.testing.assert_close(value, reference[name], atol=1e-6, rtol=0)


def test_first_step_by_hand():
    """One sample, plain SGD in place of AdamW: the parameters move along the gradient written out here."""
    model = tiny_model().model
    [sample] = on_policy_samples(model, 1)
    expected = copy.deepcopy(model)
    ids = torch.tensor([[*sample.prompt_ids, *sample.response_ids]], dtype=torch.int64)
    width = len(sample.response_ids)
    log_prob_TV = expected(input_ids=ids).logits[0, -width - 1 : -1].log_softmax(-1)
    log_prob_T = log_prob_TV[torch.arange(width), ids[0, -width:]]
    entropy = -(log_prob_TV.exp() * log_prob_TV).sum(-1).mean()
    # Ratio 1 and KL 0: both have the gradient of their first-order terms, -A · log_prob and nothing.
    (-sample.advantage * log_prob_T.mean() - 0.001 * entropy).backward()
    torch.nn.utils.clip_grad_norm_(expected.parameters(), 1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    update_policy(
        Trained(model, optimizer, copy.deepcopy(model)), [sample], TrainingSettings(), np.random.default_rng(0)
    )
    for name, parameter in expected.named_parameters():
        moved = parameter.detach() - 0.1 * parameter.grad
        torch.testing.assert_close(model.get_parameter(name), moved, atol=1e-5, rtol=0)


def test_likely_actions_become_likelier_and_others_rarer():
    model = tiny_model().model
    samples = on_policy_samples(model)
    before = response_log_probs(model, samples)
    settings = SETTINGS.model_copy(update={"learning_rate": 1e-4, "epochs": 3})
    train(samples, settings, model=model)
    after = response_log_probs(model, samples)
    gain = [float(np.mean(new - old)) * s.advantage for new, old, s in zip(after, before, samples, strict=True)]
    assert np.mean(gain) > 0


def test_metrics_at_the_start():
    model = tiny_model().model
    samples = on_policy_samples(model)
    settings = SETTINGS.model_copy(update={"mini_batch_size": 20})
    _, metrics = train(samples, settings, model=model)
    tokens = sum(len(sample.response_ids) for sample in samples)
    mean_advantage = sum(sample.advantage * len(sample.response_ids) for sample in samples) / tokens
    assert metrics["policy_loss"] == pytest.approx(-mean_advantage, abs=1e-4)
    assert metrics["kl"] == pytest.approx(0, abs=1e-6)
    assert metrics["approximate_kl"] == pytest.approx(0, abs=1e-4)
    assert metrics["clip_fraction"] == metrics["dual_clip_fraction"] == 0
    assert metrics["loss"] == pytest.approx(
        metrics["policy_loss"] - 0.001 * metrics["entropy"] + 0.01 * metrics["kl"], abs=1e-6
    )
    assert metrics["tokens"] == tokens


def test_mini_batches_are_equal_parts_and_epochs_repeat_them():
    settings = SETTINGS.model_copy(update={"mini_batch_size": 8, "epochs": 2})
    _, metrics = train(tiny_samples(20), settings)
    assert metrics["mini_batches"] == 6  # 7 + 7 + 6 samples, twice
    assert metrics["samples"] == 20


def test_the_generator_decides_the_order():
    samples = tiny_samples(20)
    one, same, other = (parameters(train(samples, seed=seed)[0]) for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_kl_pulls_back_to_the_reference():
    reference = tiny_model().model
    model = copy.deepcopy(reference)
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index)))
    samples = [replace(sample, advantage=0.0) for sample in on_policy_samples(model)]
    settings = SETTINGS.model_copy(
        update={"kl_coefficient": 1.0, "entropy_coefficient": 0.0, "epochs": 4, "weight_decay": 0.0}
    )
    _, first = train(
        samples, settings.model_copy(update={"epochs": 1}), model=copy.deepcopy(model), reference=reference
    )
    _, after = train(samples, settings, model=model, reference=reference)
    assert 0 < after["kl"] < first["kl"]


def test_without_kl_no_reference_is_needed():
    settings = SETTINGS.model_copy(update={"kl_coefficient": 0.0})
    model = tiny_model().model
    metrics = update_policy(
        Trained(model, make_optimizer(model, settings)), tiny_samples(5), settings, np.random.default_rng(0)
    )
    assert "kl" not in metrics
    with pytest.raises(ValueError, match="needs a reference model"):
        update_policy(
            Trained(model, make_optimizer(model, SETTINGS)), tiny_samples(5), SETTINGS, np.random.default_rng(0)
        )


def test_empty_responses_are_skipped_and_counted():
    samples = tiny_samples(6)
    empty = replace(samples[0], response_ids=samples[0].response_ids[:0], log_probs=samples[0].log_probs[:0])
    with_empty, metrics = train([empty, *samples[1:], empty])
    without, _ = train(samples[1:])
    assert metrics["empty_responses"] == 2
    assert metrics["samples"] == 5
    for name, value in parameters(with_empty).items():
        assert torch.equal(value, parameters(without)[name])
    with pytest.raises(ValueError, match="no sample"):
        train([empty])


def test_samples_that_teach_nothing_can_be_left_out():
    samples = tiny_samples(6)
    silent = [replace(sample, advantage=0.0) for sample in samples]
    settings = SETTINGS.model_copy(update={"skip_zero_advantage": True, "mini_batch_size": 12})
    model, metrics = train([*samples, *silent], settings)
    alone, _ = train(samples, settings)
    assert metrics["samples"] == 6
    for name, value in parameters(model).items():
        assert torch.equal(value, parameters(alone)[name])
    untouched = parameters(tiny_model().model)
    model, metrics = train(silent, settings)
    assert metrics == {"samples": 0, "tokens": 0, "empty_responses": 0, "mini_batches": 0}
    assert train(silent, settings, sampling=Sampling(recompute_log_probs=True))[1] == metrics
    for name, value in parameters(model).items():
        assert torch.equal(value, untouched[name])


def test_samples_that_are_left_out_for_their_advantage_count_for_the_number_of_steps():
    samples = tiny_samples(6)
    silent = [replace(sample, advantage=0.0) for sample in samples]
    settings = SETTINGS.model_copy(update={"skip_zero_advantage": True, "mini_batch_size": 4})
    assert train([*samples, *silent], settings)[1]["mini_batches"] == 3  # as with any advantages
    assert train([*samples[:2], *silent], settings)[1]["mini_batches"] == 2
    assert train([*samples[:1], *silent, *silent], settings)[1]["mini_batches"] == 1  # each has a sample


def test_cut_responses_can_be_left_out():
    samples = tiny_samples(6)
    cut = [replace(sample, cut=True) for sample in tiny_samples(4, seed=1)]
    settings = SETTINGS.model_copy(update={"skip_cut_responses": True})
    model, metrics = train([*samples, *cut], settings)
    assert metrics["samples"] == 6
    alone, _ = train(samples, settings)
    for name, value in parameters(model).items():
        assert torch.equal(value, parameters(alone)[name])
    assert train([*samples, *cut])[1]["samples"] == 10


def test_recomputed_log_probs_start_at_ratio_one():
    stale = [replace(sample, log_probs=sample.log_probs - 1) for sample in tiny_samples(10)]
    _, metrics = train(stale, sampling=Sampling(recompute_log_probs=True))
    assert metrics["approximate_kl"] == pytest.approx(0, abs=1e-4)


def test_the_policy_loss_is_corrected_for_the_sampler():
    """The sampler found every token e^gap times less likely: a weight of e^gap, at most the cap."""
    model = tiny_model().model
    samples = on_policy_samples(model, 10)
    gaps = [-0.5, 0.25, 3.0, 0.0, 1.0] * 2
    sampled = [
        replace(sample, log_probs=sample.log_probs - np.float32(gap)) for sample, gap in zip(samples, gaps, strict=True)
    ]
    lengths = np.array([len(sample.response_ids) for sample in samples])
    advantages = np.array([sample.advantage for sample in samples])
    weights = np.minimum(np.exp(gaps), 2.0)
    recomputed = Sampling(recompute_log_probs=True)
    _, metrics = train(sampled, model=copy.deepcopy(model), reference=model, sampling=recomputed)
    assert metrics["policy_loss"] == pytest.approx(-np.average(weights * advantages, weights=lengths), abs=1e-4)
    assert metrics["sampler_gap_mean"] == pytest.approx(np.average(np.abs(gaps), weights=lengths), abs=1e-5)
    assert metrics["sampler_gap_max"] == pytest.approx(3.0, abs=1e-4)
    assert metrics["sampler_clipped_share"] == pytest.approx(np.average(np.exp(gaps) > 2, weights=lengths))
    effective = (lengths @ weights) ** 2 / (lengths.sum() * (lengths @ weights**2))
    assert metrics["sampler_effective_sample_size"] == pytest.approx(effective, abs=1e-5)

    uncorrected = SETTINGS.model_copy(update={"importance_cap": None})
    _, metrics = train(sampled, uncorrected, model=copy.deepcopy(model), reference=model, sampling=recomputed)
    assert metrics["policy_loss"] == pytest.approx(-np.average(advantages, weights=lengths), abs=1e-4)
    assert not any(name.startswith("sampler_") for name in train(sampled)[1])


def test_each_loss_and_aggregation_is_the_one_that_is_chosen():
    model = tiny_model().model
    samples = on_policy_samples(model, 10)
    lengths = np.array([len(sample.response_ids) for sample in samples])
    advantages = np.array([sample.advantage for sample in samples])

    def policy_loss(**chosen):
        settings = SETTINGS.model_copy(update=chosen)
        sampling = Sampling(max_response_tokens=20)
        return train(samples, settings, model=copy.deepcopy(model), sampling=sampling)[1]["policy_loss"]

    # Every ratio is 1, so that PPO and GSPO start at the mean advantage and CISPO at that of A · log_prob.
    assert policy_loss(loss="gspo", loss_aggregation="sequence-mean") == pytest.approx(-advantages.mean(), abs=1e-4)
    assert policy_loss(loss_aggregation="constant") == pytest.approx(-(advantages @ lengths) / (10 * 20), abs=1e-4)
    order = np.random.default_rng(0).permutation(10)  # micro-batches follow the shuffled order
    parts = [np.average(advantages[rows], weights=lengths[rows]) for rows in (order[:4], order[4:8], order[8:])]
    per_micro_batch = policy_loss(loss_aggregation="micro-batch-token-mean", loss_micro_batch_rows=4)
    assert per_micro_batch == pytest.approx(-np.mean(parts), abs=1e-4)
    log_probs = np.array([sample.log_probs.sum() for sample in samples])
    assert policy_loss(loss="cispo") == pytest.approx(-(advantages @ log_probs) / lengths.sum(), abs=1e-3)


def test_temperature_is_that_of_sampling():
    model = tiny_model().model
    samples = tiny_samples(10)
    log_probs = response_log_probs(model, samples, temperature=0.5)
    samples = [replace(sample, log_probs=values) for sample, values in zip(samples, log_probs, strict=True)]
    _, metrics = train(samples, model=model, sampling=Sampling(temperature=0.5))
    assert metrics["approximate_kl"] == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_non_finite_numbers_leave_the_parameters_alone(what):
    model = tiny_model().model
    optimizer = make_optimizer(model, SETTINGS)
    reference = copy.deepcopy(model)
    if what == "loss":
        model.lm_head.weight.data[5, 0] = float("nan")
    else:
        model.model.norm.weight.register_hook(lambda gradient: gradient * float("inf"))
    before = parameters(model)
    with pytest.raises(FloatingPointError, match=f"{what}.*not changed"):
        update_policy(Trained(model, optimizer, reference), tiny_samples(10), SETTINGS, np.random.default_rng(0))
    torch.testing.assert_close(parameters(model), before, atol=0, rtol=0, equal_nan=True)
    assert not optimizer.state
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_optimizer_has_the_rate_and_the_decay_of_the_settings():
    optimizer = make_optimizer(tiny_model().model, TrainingSettings(learning_rate=0.5, weight_decay=0.3))
    assert [(group["lr"], group["weight_decay"]) for group in optimizer.param_groups] == [(0.5, 0.3)]


def test_dropout_is_off():
    model = tiny_model().model.train()
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    samples = tiny_samples(4)
    _, metrics = train(samples, model=model, reference=tiny_model().model)
    assert metrics["approximate_kl"] == pytest.approx(0, abs=1e-4)
    assert metrics["kl"] == pytest.approx(0, abs=1e-6)


def test_low_precision_weights_are_refused():
    with pytest.raises(ValueError, match="float32"):
        make_optimizer(tiny_model().model.to(torch.bfloat16), SETTINGS)


def test_autocast_trains_float32_weights():
    model, metrics = train(tiny_samples(10), sampling=Sampling(precision="bfloat16"))
    assert np.isfinite(metrics["loss"])
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_settings_reject_unknown_and_impossible_values():
    with pytest.raises(ValidationError):
        TrainingSettings(learning_rat=1e-6)
    with pytest.raises(ValidationError):
        TrainingSettings(clip_low=1.0)
    with pytest.raises(ValidationError):
        TrainingSettings(dual_clip=0.5)


def test_the_learning_rate_rises_over_the_first_updates_and_then_stays():
    settings = TrainingSettings(learning_rate=0.4, warmup_updates=3)
    optimizer = make_optimizer(tiny_model().model, settings)
    rates = []
    for update in range(1, 7):
        set_learning_rate(optimizer, settings, update)
        rates += [group["lr"] for group in optimizer.param_groups]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])
    set_learning_rate(optimizer, SETTINGS, 1)
    assert optimizer.param_groups[0]["lr"] == SETTINGS.learning_rate


@pytest.mark.parametrize("warmup", [0, 2])
def test_the_learning_rate_falls_along_half_a_cosine_as_in_the_scheduler_of_transformers(warmup):
    from transformers import get_cosine_schedule_with_warmup

    settings = TrainingSettings(learning_rate=0.4, warmup_updates=warmup, updates=10, learning_rate_schedule="cosine")
    optimizer = make_optimizer(tiny_model().model, settings)
    scheduler = get_cosine_schedule_with_warmup(make_optimizer(tiny_model().model, settings), warmup, 10)
    for update in range(1, 11):
        set_learning_rate(optimizer, settings, update)
        if update > warmup:
            assert optimizer.param_groups[0]["lr"] == pytest.approx(scheduler.get_last_lr()[0])
        scheduler.optimizer.step()
        scheduler.step()
    set_learning_rate(optimizer, settings, 11)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0, abs=1e-12)
