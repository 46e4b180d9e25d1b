"""Memory that runs out, on a CPU: hooks raise what CUDA raises where a batch has more tokens than are allowed."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from hgpo.config import TrainingSettings, WarmStartSettings
from hgpo.policies.weights import Adapter, add_adapter
from hgpo.training.log_probs import SampleTooLongError, response_log_probs, times_lowered, within_memory
from hgpo.training.update import Sampling, Trained, make_optimizer, update_policy
from hgpo.training.warm_start import WarmStart
from tiny_models import tiny_model, tiny_samples

WHOLE = 10_000
SETTINGS = TrainingSettings(learning_rate=1e-4, mini_batch_size=10, kl_coefficient=0.0, micro_batch_tokens=WHOLE)
SAMPLES = [replace(sample, prompt_ids=sample.prompt_ids[:5]) for sample in tiny_samples(20, longest=8)]


def tokens_of(layer_input):
    return layer_input.shape[0] * layer_input.shape[1]


def fails_forward(model, limit):
    """Memory runs out on the way into the last layer."""
    seen = []

    def check(layer, positional):
        seen.append(tokens_of(positional[0]))
        if seen[-1] > limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nmore")

    model.model.layers[-1].register_forward_pre_hook(check)
    return seen


def fails_backward(model, limit):
    """Memory runs out once the gradient is through the last layer; how many parameters have one by then is noted."""
    gradients = []

    def check(layer, positional):
        def fail(gradient):
            gradients.append(sum(parameter.grad is not None for parameter in model.parameters()))
            if tokens_of(gradient) > limit:
                raise torch.OutOfMemoryError("CUDA out of memory.")

        if positional[0].requires_grad:
            positional[0].register_hook(fail)

    model.model.layers[-1].register_forward_pre_hook(check)
    return gradients


def trained(settings, prepare=lambda model: None, samples=SAMPLES):
    model = tiny_model().model
    noted = prepare(model)
    optimizer = make_optimizer(model, settings)
    metrics = update_policy(Trained(model, optimizer), samples, settings, np.random.default_rng(0), Sampling())
    return {name: value.detach() for name, value in model.named_parameters()}, metrics, noted


def assert_same(parameters, expected, tolerance):
    assert parameters.keys() == expected.keys()
    for name, value in parameters.items():
        torch.testing.assert_close(value, expected[name], atol=tolerance, rtol=0, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("recompute_layers", [False, True])
@pytest.mark.parametrize("fails", [fails_forward, fails_backward])
def test_the_update_is_the_one_of_the_smaller_micro_batches(fails, recompute_layers, caplog):
    settings = SETTINGS.model_copy(update={"gradient_checkpointing": recompute_layers})
    parameters, metrics, noted = trained(settings, lambda model: fails(model, limit=60))
    if fails is fails_backward:
        assert max(noted) > 0  # a failed pass had left gradients behind
    [*lines] = caplog.messages
    assert metrics.pop("out_of_memory") == len(lines) >= 1
    limit = int(lines[-1].rpartition("=")[2])
    assert limit < 120
    assert lines[-1].endswith(f"continuing with {limit}: set training.micro_batch_tokens={limit}")
    # The first of two mini-batches found the limit, and was begun anew.
    small, small_metrics, _ = trained(settings.model_copy(update={"micro_batch_tokens": limit}))
    assert_same(parameters, small, 0)
    assert metrics == small_metrics
    whole, whole_metrics, _ = trained(settings)
    assert_same(parameters, whole, 1e-6)
    assert metrics == pytest.approx(whole_metrics, rel=1e-3, abs=1e-5)


@pytest.mark.slow
def test_gradients_of_earlier_micro_batches_count_once():
    """The first micro-batches fit and a later one does not: the longest is not always the one with most tokens."""
    settings = SETTINGS.model_copy(update={"micro_batch_tokens": 48})
    calls = 0

    def fails_once(model):
        def check(layer, positional):
            nonlocal calls
            calls += 1
            if calls == 3:
                raise torch.OutOfMemoryError

        model.model.layers[-1].register_forward_pre_hook(check)

    parameters, metrics, _ = trained(settings, fails_once)
    assert metrics["out_of_memory"] == 1
    assert_same(parameters, trained(settings)[0], 1e-6)


def test_the_smaller_limit_stays_for_the_model():
    model = tiny_model().model
    seen = fails_forward(model, limit=60)
    optimizer, rng = make_optimizer(model, SETTINGS), np.random.default_rng(0)
    rows = [update_policy(Trained(model, optimizer), SAMPLES, SETTINGS, rng) for _ in range(2)]
    assert "out_of_memory" in rows[0]
    assert "out_of_memory" not in rows[1]
    tried = len(seen)
    response_log_probs(model, SAMPLES)
    assert max(seen[tried:]) <= 60


def test_a_sample_that_does_not_fit_by_itself_is_an_error_that_says_what_helps():
    with pytest.raises(SampleTooLongError, match=r"a single sample of \d+ tokens .*gradient_checkpointing = true"):
        trained(SETTINGS, lambda model: fails_forward(model, limit=5))


def test_a_sample_that_does_not_fit_ends_the_search_for_a_smaller_limit_in_shared_rows():
    """A shared row is at least as wide as the longest sample, so from there on a smaller limit would change nothing."""
    longest = replace(SAMPLES[0], prompt_ids=np.resize(SAMPLES[0].prompt_ids, 60))
    widths = []

    def never_fits(batches, width):
        widths.append(width)
        assert len(widths) < 30
        raise torch.OutOfMemoryError

    with pytest.raises(SampleTooLongError):
        within_memory(tiny_model().model, [*SAMPLES, longest], WHOLE, never_fits, share_prefixes=True)
    assert widths[0] is not None
    assert widths[-1] is None


def test_other_errors_pass():
    def broken(batches, width):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    model = tiny_model().model
    with pytest.raises(RuntimeError, match="illegal memory access"):
        within_memory(model, SAMPLES, WHOLE, broken)
    assert times_lowered(model) == 0


@pytest.mark.slow
def test_reference_scores_take_smaller_batches_too():
    model, reference = tiny_model().model, tiny_model(seed=1).model
    expected = response_log_probs(reference, SAMPLES)
    fails_forward(reference, limit=60)
    settings = SETTINGS.model_copy(update={"kl_coefficient": 0.1})
    metrics = update_policy(
        Trained(model, make_optimizer(model, settings), reference), SAMPLES, settings, np.random.default_rng(0)
    )
    assert metrics["out_of_memory"] == times_lowered(model, reference, reference) == times_lowered(reference) > 0
    for found, wanted in zip(response_log_probs(reference, SAMPLES), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_the_next_attempt_finds_the_random_numbers_of_the_first():
    drawn = []

    def work(batches, width):
        drawn.append(torch.rand(3))
        if len(drawn) == 1:
            raise torch.OutOfMemoryError

    within_memory(tiny_model().model, SAMPLES, WHOLE, work)
    assert torch.equal(*drawn)
    assert not torch.equal(drawn[1], torch.rand(3))  # and what comes after draws on


@pytest.mark.slow
def test_an_adapters_dropout_is_drawn_as_if_nothing_had_failed(caplog):
    pytest.importorskip("peft")

    def adapted(limit, tokens):
        model = tiny_model().model
        if limit:
            fails_forward(model, limit)
        model = add_adapter(model, Adapter(rank=4, alpha=8, dropout=0.5), seed=0)
        settings = SETTINGS.model_copy(update={"micro_batch_tokens": tokens, "kl_coefficient": 0.1})
        optimizer = make_optimizer(model, settings)
        metrics = update_policy(Trained(model, optimizer, model), SAMPLES, settings, np.random.default_rng(0))
        return {name: value.detach() for name, value in model.named_parameters()}, metrics

    parameters, metrics = adapted(60, WHOLE)
    assert metrics.pop("out_of_memory") == len(caplog.messages)
    limit = int(caplog.messages[-1].rpartition("=")[2])
    undisturbed, expected = adapted(None, limit)
    assert metrics == expected
    assert_same(parameters, undisturbed, 0)
    other, _ = adapted(None, limit // 2)
    assert any(not torch.equal(value, other[name]) for name, value in parameters.items())


@pytest.mark.slow
def test_the_warm_start_goes_on_too(caplog):
    def started(limit, **changes):
        language_model = copy.deepcopy(tiny_model())
        if limit:
            fails_forward(language_model.model, limit)
        settings = WarmStartSettings(batch_size=6, max_updates=3, evaluate_every=3, **changes)
        pairs = [(f"take {letter}", f"go to {letter} 1") for letter in "abcdefghijkl"]
        WarmStart(language_model, settings, np.random.default_rng(0)).run(pairs, lambda: 0.4)
        return dict(language_model.model.named_parameters())

    parameters = started(40)
    limit = int(caplog.messages[-1].rpartition("set warm_start.micro_batch_tokens=")[2])
    assert_same(parameters, started(None, micro_batch_tokens=limit), 0)
    assert_same(parameters, started(None), 1e-3)
