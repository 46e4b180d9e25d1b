import copy

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from hgpo.config import TrainingSettings, WarmStartSettings
from hgpo.policies.local import TransformersPolicy
from hgpo.training.warm_start import WarmStart, encode_demonstrations
from tiny_models import WORDS, generate, tiny_model

TRAINING = TrainingSettings(share_prefixes=False)
LETTERS = WORDS[:12]
DEMONSTRATIONS = [(f"take {letter}", f"go to {letter} 1") for letter in LETTERS]
SETTINGS = WarmStartSettings(
    learning_rate=3e-3,
    warmup_updates=2,
    batch_size=6,
    max_updates=200,
    evaluate_every=10,
    target_low=0.9,
    target_high=1.0,
)


def untrained():
    return tiny_model(initializer_range=0.08)


def accuracy_of(language_model):
    """Share of demonstrations the language_model repeats word for word."""

    def evaluate():
        responses = generate(
            TransformersPolicy(language_model), [prompt for prompt, _ in DEMONSTRATIONS], temperature=0
        )
        right = [r.finished and r.text == text for r, (_, text) in zip(responses, DEMONSTRATIONS, strict=True)]
        return float(np.mean(right))

    return evaluate


def run(language_model, settings=SETTINGS, evaluate=None, **callbacks):
    evaluate = evaluate or accuracy_of(language_model)
    return WarmStart(language_model, settings, np.random.default_rng(0)).run(DEMONSTRATIONS, evaluate, **callbacks)


def test_learns_the_demonstrations_and_stops_in_the_window():
    language_model = untrained()
    report = run(language_model)
    assert report.stopped == "target"
    assert report.success >= 0.9
    assert report.update == report.probes[-1].update < 200
    assert accuracy_of(language_model)() == report.success
    assert report.probes[-1].loss < report.probes[0].loss
    [response] = generate(TransformersPolicy(language_model), ["take c"], temperature=0)
    assert response.text == "go to c 1"


@pytest.mark.slow
def test_is_reproducible():
    reports, weights = [], []
    for _ in range(2):
        language_model = untrained()
        reports.append(run(language_model, SETTINGS.model_copy(update={"max_updates": 10})))
        weights.append(language_model.model.get_input_embeddings().weight)
    assert reports[0] == reports[1]
    assert torch.equal(*weights)


def test_budget_ends_the_training():
    taken = []
    report = run(
        untrained(), SETTINGS.model_copy(update={"max_updates": 5}), on_update=lambda update, loss: taken.append(update)
    )
    assert report.stopped == "budget"
    assert taken == [1, 2, 3, 4, 5]
    assert len(report.probes) == 1


def test_overshooting_rolls_back_and_takes_smaller_steps():
    language_model = untrained()
    seen = []

    def evaluate():
        seen.append(language_model.model.get_input_embeddings().weight.detach().clone())
        return [0.1, 0.8, 0.2, 0.4][len(seen) - 1]

    settings = SETTINGS.model_copy(update={"target_low": 0.35, "target_high": 0.5, "evaluate_every": 8})
    rollbacks, taken = [], []
    report = run(
        language_model,
        settings,
        evaluate,
        on_update=lambda update, loss: taken.append(update),
        on_rollback=lambda *said: rollbacks.append(said),
    )
    assert report.stopped == "target"
    assert [probe.update for probe in report.probes] == [8, 16, 12, 16]
    assert rollbacks == [(0.8, 8, 4)]
    assert report.update == 16
    assert taken == list(range(1, 25))
    assert torch.equal(language_model.model.get_input_embeddings().weight, seen[-1])


def test_a_window_no_step_hits_ends_with_the_closest_model():
    language_model = untrained()
    seen = []

    def evaluate():
        seen.append(language_model.model.get_input_embeddings().weight.detach().clone())
        return 0.1 if len(seen) == 1 else 0.6

    settings = SETTINGS.model_copy(update={"target_low": 0.35, "target_high": 0.5, "evaluate_every": 4})
    report = run(language_model, settings, evaluate)
    assert report.stopped == "overshoot"
    assert [probe.update for probe in report.probes] == [4, 8, 6, 5]
    assert report.success == 0.6
    assert torch.equal(language_model.model.get_input_embeddings().weight, seen[-1])


def test_the_first_step_has_a_share_of_the_rate():
    """AdamW's first step moves a weight by the rate, here a quarter of 0.004."""
    language_model = untrained()
    before = language_model.model.get_input_embeddings().weight.detach().clone()
    changed = {"learning_rate": 0.004, "warmup_updates": 3, "weight_decay": 0.0, "max_updates": 1}
    run(language_model, SETTINGS.model_copy(update=changed), evaluate=lambda: 0.0)
    moved = (language_model.model.get_input_embeddings().weight - before).abs().max().item()
    assert moved == pytest.approx(0.001, rel=1e-2)


def test_a_rollback_can_be_repeated():
    start = WarmStart(untrained(), SETTINGS, np.random.default_rng(0))
    samples = encode_demonstrations(tiny_model(), DEMONSTRATIONS[:6])
    start._train_batch(samples)
    snapshot = start._snapshot(0.0)
    parameters, moments = copy.deepcopy((snapshot.parameters, snapshot.moments))
    for _ in range(2):
        start._train_batch(samples)
        start._restore(snapshot)
        assert start._update == snapshot.update == 1
        for name, weight in start._trained.items():
            assert torch.equal(weight, parameters[name])
        for weight, expected in zip(start._trained.values(), moments, strict=True):
            assert all(torch.equal(start._optimizer.state[weight][key], value) for key, value in expected.items())


def test_micro_batches_change_nothing():
    weights = []
    for tokens in (1, 10_000):
        language_model = untrained()
        run(language_model, SETTINGS.model_copy(update={"max_updates": 2, "micro_batch_tokens": tokens}))
        weights.append(language_model.model.get_input_embeddings().weight)
    torch.testing.assert_close(*weights, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_the_arithmetic_is_the_policys():
    losses = []
    for precision in ("auto", "float32", "bfloat16"):
        language_model = tiny_model(initializer_range=0.08, precision=precision)
        losses.append(run(language_model, SETTINGS.model_copy(update={"max_updates": 2})).probes[0].loss)
    assert losses[0] == losses[1] != losses[2]  # auto is float32 on a CPU
    assert losses[2] == pytest.approx(losses[1], rel=0.05)


def test_demonstrations_end_with_the_end_token():
    language_model = tiny_model()
    [sample] = encode_demonstrations(language_model, [("take a", "go to a 1")])
    assert language_model.tokenizer.decode(sample.response_ids) == "go to a 1<|end|>"
    assert sample.prompt_ids.tolist() == language_model.encoder.encode_prompts(["take a"])[0].tolist()


def test_impossible_demonstrations_are_refused():
    language_model = tiny_model(max_response_tokens=4)
    with pytest.raises(ValueError, match="no demonstrations"):
        encode_demonstrations(language_model, [])
    with pytest.raises(
        ValueError, match=r"a demonstration takes 5 .*: set policy\.max_response_tokens \(4\) to at least 5"
    ):
        encode_demonstrations(language_model, [("take a", "go"), ("take a", "go to a 1")])


def test_settings_need_a_window():
    with pytest.raises(ValidationError, match="exceeds target_high"):
        WarmStartSettings(target_low=0.6, target_high=0.5)


def test_holds_no_more_than_the_training_may():
    def trained(passes):
        language_model = untrained()
        model, logits, calls = language_model.model, [], []
        model.lm_head.register_forward_hook(lambda head, given, found: logits.append(found.numel()))
        model.model.layers[0].register_forward_hook(lambda *_: calls.append(1))
        settings = SETTINGS.model_copy(update={"max_updates": 1})
        WarmStart(language_model, settings, np.random.default_rng(0), passes).run(DEMONSTRATIONS, lambda: 0.0)
        return dict(model.named_parameters()), max(logits), len(calls)

    plain, plain_logits, plain_calls = trained(TrainingSettings())
    sparing, logits, calls = trained(TrainingSettings(max_logits=200, gradient_checkpointing=True))
    assert logits <= 200 < plain_logits
    assert calls > plain_calls  # the layers were computed once more in the backward pass
    for name, value in sparing.items():
        torch.testing.assert_close(value, plain[name], atol=1e-3, rtol=0, msg=name)  # AdamW makes steps of rounding


def test_every_update_is_told_of():
    told = []
    language_model = untrained()
    settings = SETTINGS.model_copy(update={"max_updates": 20})
    report = WarmStart(language_model, settings, np.random.default_rng(0)).run(
        DEMONSTRATIONS, accuracy_of(language_model), lambda taken, loss: told.append((taken, loss))
    )
    assert [taken for taken, _ in told] == list(range(1, report.probes[-1].update + 1))
    assert np.mean([loss for _, loss in told[: report.probes[0].update]]) == pytest.approx(report.probes[0].loss)
