"""The critic: what it estimates, what it learns, and that its gradients are those of its loss."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hgpo.config import CriticSettings, TrainingSettings
from hgpo.policies.weights import Adapter, add_adapter
from hgpo.rollout.records import to_step_batch
from hgpo.training import trainer as trainer_module
from hgpo.training.batching import Sample, ValueTarget
from hgpo.training.critic import Critic
from hgpo.training.losses import explained_variance, value_loss
from hgpo.training.update import SharedCritic, Trained, make_optimizer, update_policy
from hgpo.training.value_model import ReturnScale, ValueModel, prompt_sample
from step_records import step_record
from tiny_models import random_prompts, tiny_model, tiny_samples

TRAINING = TrainingSettings(mini_batch_size=16, weight_decay=0.0, share_prefixes=False)


def random_head(model: ValueModel, seed: int = 0) -> ValueModel:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        model.head.weight.copy_(torch.randn(model.head.weight.shape, generator=generator))
        model.head.bias.fill_(0.25)
    return model


def critic(layers=None, *, shared=False, training=TRAINING, gamma=0.9, target_lambda=1.0, **settings) -> Critic:
    model = ValueModel(layers or tiny_model().model, shared=shared)
    return Critic(model, CriticSettings(shared=shared, **settings), training, gamma=gamma, target_lambda=target_lambda)


def chain_steps(length: int, encoder, won: tuple[bool, ...]) -> list:
    """Trajectories through the states a, b, c, …; the last step is paid 1 where the trajectory is won."""
    states = [f"go to {chr(ord('a') + place)} 1" for place in range(length)]
    ids = encoder.encode_prompts(states)
    return [
        step_record(
            trajectory=str(number),
            step=place,
            observation=states[place],
            reward=float(wins and place == length - 1),
            prompt_ids=ids[place],
        )
        for number, wins in enumerate(won)
        for place in range(length)
    ]


@pytest.mark.slow
def test_the_values_of_a_chain_are_learned() -> None:
    """A trajectory of five states that is won every other time: V = 0.9^(4 - t) / 2."""
    language_model = tiny_model()
    steps = chain_steps(5, language_model.encoder, (True, False))
    learner = critic(language_model.model, learning_rate=3e-3, value_clip=None)
    rng = np.random.default_rng(0)
    for _ in range(150):
        batch = to_step_batch(steps, learner.estimate(steps))
        targets, figures = learner.targets(batch)
        learner.train([step.prompt_ids for step in steps], targets, rng)
    expected = np.tile(0.5 * 0.9 ** np.arange(4, -1, -1), 2)
    np.testing.assert_allclose(learner.estimate(steps).value_N, expected, atol=0.02)
    assert 0.0 < figures["explained_variance"] < 0.1  # what the state explains of a fair draw's variance
    assert figures["value_mean"] == pytest.approx(expected.mean(), abs=0.02)


@pytest.mark.slow
def test_a_state_in_which_the_time_limit_cut_an_episode_counts_with_its_value() -> None:
    language_model = tiny_model()
    cut, won = language_model.encoder.encode_prompts(["take apple", "go to fridge"])
    steps = [
        step_record(trajectory="cut", prompt_ids=cut, next_prompt_ids=won, truncated=True),
        step_record(trajectory="won", prompt_ids=won, reward=1.0),
    ]
    learner = critic(language_model.model, learning_rate=3e-3, value_clip=None)
    rng = np.random.default_rng(0)
    for _ in range(300):
        values = learner.estimate(steps)
        targets, _ = learner.targets(to_step_batch(steps, values))
        learner.train([cut, won], targets, rng)
    found = learner.estimate(steps)
    np.testing.assert_allclose(found.value_N, [0.9, 1.0], atol=0.02)
    assert found.bootstrap_N == pytest.approx([found.value_N[1], 0.0], abs=1e-6)


@pytest.mark.parametrize("share_prefixes", [False, True])
@pytest.mark.parametrize("max_tokens", [200, *(pytest.param(most, marks=pytest.mark.slow) for most in (1, 10_000))])
def test_a_value_is_the_heads_of_the_prompts_last_token(share_prefixes: bool, max_tokens: int) -> None:
    language_model = tiny_model()
    training = TRAINING.model_copy(update={"micro_batch_tokens": max_tokens, "share_prefixes": share_prefixes})
    learner = critic(language_model.model, training=training)
    model = random_head(learner.model)
    model.scale = ReturnScale(mean=2.0, std=3.0, empty=False)
    prompts = language_model.encoder.encode_prompts([*random_prompts(12), *random_prompts(3)])
    for ids, value in zip(prompts, learner.values(prompts), strict=True):
        with torch.no_grad():
            hidden = language_model.model.model(torch.tensor([ids.tolist()])).last_hidden_state[0, -1]
            expected = 3.0 * float(model.head(hidden)) + 2.0
        assert value == pytest.approx(expected, abs=1e-4)


def test_new_statistics_change_no_value() -> None:
    language_model = tiny_model()
    learner = critic(language_model.model)
    model = random_head(learner.model)
    prompts = language_model.encoder.encode_prompts(random_prompts(5))
    model.rescale(np.array([1.0, 5.0, 9.0]))
    before = learner.values(prompts)
    model.rescale(np.array([-40.0, 20.0]))
    assert model.scale.std > 4
    np.testing.assert_allclose(learner.values(prompts), before, rtol=1e-5, atol=1e-5)


def test_targets_are_in_units_of_the_statistics_that_they_have_updated() -> None:
    """b is cut by a time limit after its second step; gamma .9, lambda .5."""
    language_model = tiny_model()
    ids = language_model.encoder.encode_prompts(["take a", "take b", "take c", "take d"])
    steps = [
        step_record(trajectory="a", prompt_ids=ids[0], reward=1.0),
        step_record(trajectory="b", prompt_ids=ids[1], penalty=0.1),
        step_record(trajectory="b", step=1, prompt_ids=ids[2], next_prompt_ids=ids[3], truncated=True),
    ]
    learner = critic(language_model.model, target_lambda=0.5)
    random_head(learner.model)
    values = learner.estimate(steps)
    after_b = learner.values([ids[3]])[0]
    assert values.bootstrap_N == pytest.approx([0.0, 0.0, after_b], abs=1e-6)
    last = 0.9 * after_b
    expected = np.array([1.0, 0.9 * (0.5 * values.value_N[2] + 0.5 * last), last])
    targets, figures = learner.targets(to_step_batch(steps, values))
    scale = ReturnScale().updated(expected)
    assert (learner.model.scale.mean, learner.model.scale.std) == pytest.approx((scale.mean, scale.std), abs=1e-6)
    assert [one.target for one in targets] == pytest.approx(scale.normalised(expected), abs=1e-5)
    assert [one.old for one in targets] == pytest.approx(scale.normalised(values.value_N), abs=1e-5)
    assert figures["value_mean"] == pytest.approx(values.value_N.mean())
    assert figures["value_target_mean"] == pytest.approx(expected.mean(), abs=1e-6)
    assert figures["explained_variance"] == pytest.approx(explained_variance(expected, values.value_N), abs=1e-5)


def test_head_and_statistics_are_read_back(tmp_path: Path) -> None:
    written, read = (ValueModel(tiny_model().model, shared=True) for _ in range(2))
    random_head(written).rescale(np.array([1.0, 5.0]))
    written.save(tmp_path)
    read.load_head(tmp_path)
    assert read.scale == written.scale
    assert torch.equal(read.head.weight, written.head.weight)
    assert torch.equal(read.head.bias, written.head.bias)


def test_statistics_of_the_targets() -> None:
    first = ReturnScale().updated(np.array([1.0, 3.0]))
    assert (first.mean, first.std) == (2.0, 1.0)
    second = first.updated(np.array([12.0, 12.0]))
    assert second.mean == pytest.approx(3.0)
    assert second.std**2 == pytest.approx(0.9 * 5 + 0.1 * 144 - 9)
    assert ReturnScale().updated(np.zeros(3)).std == 1e-4
    assert ReturnScale().updated(np.full(6, 0.7)).std == 1e-4  # by rounding, the variance is below 0
    np.testing.assert_allclose(second.restored(second.normalised(np.array([3.0, 5.0]))), [3.0, 5.0], rtol=1e-6)


def test_value_loss_by_hand() -> None:
    value, target, old = torch.tensor([[1.0, 1.0, 0.1], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    loss, clipped = value_loss(value, target, old, clip=0.5)
    assert loss.tolist() == pytest.approx([0.5, (0.5 - 2) ** 2 / 2, 0.005])  # the larger of both errors
    assert clipped.tolist() == [False, True, False]
    assert value_loss(value, target, old, clip=None)[0].tolist() == pytest.approx([0.5, 0.5, 0.005])


def test_values_within_the_clip_do_not_count_as_clipped() -> None:
    value, target, old = torch.randn(3, 1_000, generator=torch.Generator().manual_seed(0))
    loss, clipped = value_loss(value, target, old, clip=100.0)
    assert not clipped.any()
    assert torch.equal(loss, value_loss(value, target, old, clip=None)[0])


def test_explained_variance() -> None:
    target = np.array([0.0, 2.0])
    assert explained_variance(target, target + 1) == 1.0
    assert explained_variance(target, np.array([7.0, 7.0])) == 0.0
    assert explained_variance(target, -target) == -3.0
    assert explained_variance(np.ones(2), target) == 0.0


def gradient_samples(count: int = 6) -> list[Sample]:
    rng = np.random.default_rng(1)
    return [
        replace(sample, value=ValueTarget(float(target), float(old)))
        for sample, target, old in zip(tiny_samples(count), *rng.normal(size=(2, count)), strict=True)
    ]


@pytest.mark.parametrize("share_prefixes", [False, True])
@pytest.mark.parametrize("adapter", [False, True])
def test_the_gradient_is_that_of_the_loss(share_prefixes: bool, adapter: bool) -> None:
    """Against central differences along a random direction; the norms compute in float32."""
    layers = tiny_model().model.double()
    if adapter:
        layers = add_adapter(layers, Adapter(2, 4.0), seed=0).double()
    training = TRAINING.model_copy(update={"share_prefixes": share_prefixes})
    learner = critic(layers, training=training, value_clip=None)
    model = random_head(learner.model).double()
    samples = [replace(prompt_sample(one.prompt_ids), value=one.value) for one in gradient_samples()]
    width = 200 if share_prefixes else None
    for part in (samples[::2], samples[1::2]):
        learner._loss(part, len(samples), width)["loss"].backward()
    trained = model.trained_parameters()
    gradients = [parameter.grad for parameter in trained]
    generator = torch.Generator().manual_seed(0)
    ways = [torch.randn(parameter.shape, generator=generator, dtype=torch.float64) for parameter in trained]
    slope = sum(
        float((gradient.double() * way).sum())
        for gradient, way in zip(gradients, ways, strict=True)
        if gradient is not None
    )

    def loss_at(distance: float) -> float:
        with torch.no_grad():
            for parameter, way in zip(trained, ways, strict=True):
                parameter.add_(distance * way.to(parameter.dtype))
            loss = learner._loss(samples, len(samples), width)["loss"]
            for parameter, way in zip(trained, ways, strict=True):
                parameter.sub_(distance * way.to(parameter.dtype))
        return float(loss)

    assert slope == pytest.approx((loss_at(1e-3) - loss_at(-1e-3)) / 2e-3, rel=3e-3)


@pytest.mark.parametrize("share_prefixes", [False, True])
def test_a_shared_critic_adds_its_gradient_to_the_policys(share_prefixes: bool) -> None:
    """The gradient of the joint loss is the policy's plus loss_weight times that of a separate critic."""
    samples = gradient_samples()
    settings = TrainingSettings(
        kl_coefficient=0, learning_rate=1e-3, weight_decay=0, max_gradient_norm=1e9, share_prefixes=share_prefixes,
        micro_batch_tokens=80,
    )  # fmt: skip

    def joint(weight: float) -> dict[str, torch.Tensor]:
        layers = tiny_model().model
        head = random_head(ValueModel(layers, shared=True))
        shared = SharedCritic(head.normal_values, torch.optim.SGD(head.parameters(), lr=1.0), weight, None)
        trained = Trained(layers, torch.optim.SGD(layers.parameters(), lr=1.0), critic=shared)
        update_policy(trained, samples, settings, np.random.default_rng(0))
        moved = {f"layers.{name}": value.detach() for name, value in layers.named_parameters()}
        return moved | {name: value.detach() for name, value in head.named_parameters()}

    alone = critic(value_clip=None)
    random_head(alone.model)
    prompts = [replace(prompt_sample(one.prompt_ids), value=one.value) for one in samples]
    alone._loss(prompts, len(prompts), None)["loss"].backward()
    gradient = {name: parameter.grad for name, parameter in alone.model.named_parameters()}
    policy_only, both = joint(1e-9), joint(0.5)
    for name, value in gradient.items():
        key = name if name.startswith("head.") else name.replace("own.", "layers.")
        torch.testing.assert_close(both[key] - policy_only[key], -0.5 * value, atol=2e-5, rtol=2e-3)


def test_before_the_policy_moves_the_head_of_a_shared_critic_is_trained_alone() -> None:
    layers = tiny_model().model
    before = copy.deepcopy(layers.state_dict())
    learner = critic(layers, shared=True, learning_rate=1e-2, pretrain_updates=2)
    assert [learner.trains_alone(update) for update in (1, 2, 3)] == [True, True, False]
    samples = gradient_samples()
    figures = learner.train(
        [one.prompt_ids for one in samples], [one.value for one in samples], np.random.default_rng(0)
    )
    assert figures["critic_gradient_norm"] > 0
    assert torch.count_nonzero(learner.model.head.weight) > 0
    assert all(parameter.grad is None for parameter in layers.parameters())
    for name, value in layers.state_dict().items():
        torch.testing.assert_close(value, before[name], atol=0, rtol=0)


def test_what_is_not_finite_is_not_learned() -> None:
    learner = critic(learning_rate=1e-2)
    sample = gradient_samples(1)[0]
    before = copy.deepcopy(learner.model.state_dict())
    with pytest.raises(FloatingPointError, match=r"the loss is nan.*critic\.learning_rate"):
        learner.train([sample.prompt_ids], [ValueTarget(float("nan"), 0.0)], np.random.default_rng(0))
    for name, value in learner.model.state_dict().items():
        torch.testing.assert_close(value, before[name], atol=0, rtol=0)


def test_an_untied_output_layer_is_not_trained() -> None:
    layers = tiny_model().model
    layers.lm_head.weight = torch.nn.Parameter(layers.lm_head.weight.detach().clone())
    model = ValueModel(layers, shared=False)
    assert all(parameter is not layers.lm_head.weight for parameter in model.trained_parameters())
    assert len(model.trained_parameters()) == len(list(tiny_model().model.parameters())) + 2


def test_make_optimizer_leaves_a_shared_head_to_the_critic() -> None:
    layers = tiny_model().model
    learner = critic(layers, shared=True)
    ours = {id(parameter) for group in learner.optimizer.param_groups for parameter in group["params"]}
    theirs = {id(parameter) for group in make_optimizer(layers, TRAINING).param_groups for parameter in group["params"]}
    assert ours == {id(learner.model.head.weight), id(learner.model.head.bias)}
    assert not ours & theirs


def test_the_critics_optimizer_has_its_own_rate_and_the_decay_of_the_policys() -> None:
    training = TRAINING.model_copy(update={"learning_rate": 0.5, "weight_decay": 0.3})
    [group] = critic(training=training, learning_rate=0.25).optimizer.param_groups
    assert (group["lr"], group["weight_decay"]) == (0.25, 0.3)


def test_neither_policy_nor_head_moves_if_the_heads_gradient_is_not_finite() -> None:
    layers = tiny_model().model
    head = ValueModel(layers, shared=True)
    head.head.weight.register_hook(lambda gradient: gradient * float("inf"))
    before = copy.deepcopy(layers.state_dict())
    shared = SharedCritic(head.normal_values, torch.optim.SGD(head.parameters(), lr=1.0), 0.5, None)
    trained = Trained(layers, torch.optim.SGD(layers.parameters(), lr=1.0), critic=shared)
    with pytest.raises(FloatingPointError, match="gradient norm"):
        update_policy(trained, gradient_samples(), TrainingSettings(kl_coefficient=0), np.random.default_rng(0))
    assert all(torch.equal(value, before[name]) for name, value in layers.state_dict().items())
    assert torch.count_nonzero(head.head.weight) == 0


def test_a_critics_time_counts_as_time_of_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0]

    def stage(seconds: int, result: object = None):
        def run(*_: object) -> object:
            clock[0] += seconds
            return result

        return run

    collected = SimpleNamespace(steps=[], replaced=[], resampled_groups=0, tasks_drawn=1)
    trainer = SimpleNamespace(
        state=SimpleNamespace(update=0, tasks_drawn=0),
        collector=SimpleNamespace(collect=stage(1, collected), settings=SimpleNamespace(state="observation")),
        policy=SimpleNamespace(take_weights=stage(0)),
        critic=SimpleNamespace(estimate=stage(10)),
        estimator=stage(100),
        _train=stage(1000),
        run=None,
        store_every=0,
        model=SimpleNamespace(device=torch.device("cpu")),
    )
    monkeypatch.setattr(trainer_module, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr(trainer_module, "to_step_batch", lambda *_: None)
    monkeypatch.setattr(trainer_module, "update_row", lambda **row: row)
    row = trainer_module.Trainer.one_update(trainer)
    assert (row["seconds_collect"], row["seconds_advantages"], row["seconds_update"]) == (1, 100, 1010)
