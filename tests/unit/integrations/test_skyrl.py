"""Advantages of SkyRL's steps: on carriers of its batches' shape, and in its own registry and trainer."""

import sys
from types import SimpleNamespace

import pytest
import torch

from hgpo.integrations.attempts import StepAdvantages, Turn
from hgpo.integrations.skyrl import placeholder, register, step_advantages, step_trainer

PAD = 0


class Batch(dict):
    """Tensors by name, and `metadata`: what a TrainingInputBatch offers."""

    def to(self, device):
        return self


def batch(pad=1):
    """Two attempts at x, one at y; a row a step, padded on the left. The second prompt holds the first step."""
    steps = [
        ("x", [1, 1], [7], 0.0, False),
        ("x", [1, 1, 7, 2], [8, 8], 1.0, True),
        ("x", [1, 1], [6, 6], 0.0, False),
        ("x", [1, 1, 6, 6, 2], [8], 0.0, True),
        ("y", [3], [7], 5.0, True),
    ]
    rows = [[PAD] * (7 - len(p) - len(r)) + p + r for _, p, r, *_ in steps]
    masks = [[0] * (2 - len(r)) + [1] * len(r) for _, _, r, *_ in steps]
    rewards = [[0.0, reward] for *_, reward, _ in steps]
    data = Batch(
        sequences=torch.tensor(rows + [rows[0]] * pad),
        attention_mask=torch.tensor([[int(token != PAD) for token in row] for row in rows + [rows[0]] * pad]),
        response_mask=torch.tensor(masks + [masks[0]] * pad),
        rewards=torch.tensor(rewards + [[0.0, 0.0]] * pad),
        values=None,
    )
    data.metadata = {
        "uids": [uid for uid, *_ in steps] + [f"pad{place}" for place in range(pad)],
        "is_last_step": [last for *_, last in steps] + [True] * pad,
        "pad_size": pad,
        "avg_response_length": 1.0,
    }
    return data


def expected(estimate):
    attempts = [[Turn("a"), Turn("b", reward=1.0)], [Turn("a"), Turn("b")], [Turn("c", reward=5.0)]]
    return [float(value) for values in estimate(attempts, ["x", "x", "y"]) for value in values]


@pytest.mark.parametrize("estimator", ["hgpo", "gigpo"])
def test_each_row_has_the_advantage_of_its_step(estimator):
    estimate = StepAdvantages(estimator)
    values = expected(estimate)
    assert len({round(value, 6) for value in values}) > 2
    found = step_advantages(batch(), estimate)
    spread = [[values[0]] * 1, [values[1]] * 2, [values[2]] * 2, [values[3]], [values[4]]]
    assert found.shape == (6, 2)
    for row, wanted in enumerate(spread):
        assert found[row].tolist() == pytest.approx([0.0] * (2 - len(wanted)) + wanted)
    assert found[5].tolist() == [0.0, 0.0]


def test_what_is_no_whole_trajectory_is_refused():
    cut = batch(pad=0)
    cut.metadata["is_last_step"][-1] = False
    with pytest.raises(ValueError, match="a trajectory is cut off"):
        step_advantages(cut, StepAdvantages())
    mixed = batch()
    mixed.metadata["uids"][1] = "z"
    with pytest.raises(ValueError, match="rows 0 to 1 are one trajectory and have the uids"):
        step_advantages(mixed, StepAdvantages())


def test_no_other_trainer_can_use_the_name():
    with pytest.raises(RuntimeError, match="get_trainer"):
        placeholder(torch.zeros(1, 2), torch.ones(1, 2))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="SkyRL needs Python 3.12")
def test_skyrls_own_trainer_and_registry_take_it():
    reason = "SkyRL is not installed: pip install 'skyrl[skyrl-train]' (Python 3.12)"
    ppo_utils = pytest.importorskip("skyrl.backends.skyrl_train.utils.ppo_utils", reason=reason)
    trainer_module = pytest.importorskip("skyrl.train.trainer", reason=reason)
    from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch

    register()
    try:
        assert "hgpo" in ppo_utils.AdvantageEstimatorRegistry.list_available()
        estimate = StepAdvantages()
        trainer = object.__new__(step_trainer(estimate, trainer_module.RayPPOTrainer))
        algorithm = SimpleNamespace(advantage_estimator="hgpo", gamma=1.0, lambd=1.0, grpo_norm_by_std=True)
        trainer.cfg = SimpleNamespace(
            generator=SimpleNamespace(step_wise_trajectories=True), trainer=SimpleNamespace(algorithm=algorithm)
        )
        trainer.all_metrics = {}
        shape = batch()
        data = TrainingInputBatch({name: value for name, value in shape.items() if value is not None})
        data["values"] = None
        data.metadata = shape.metadata
        done = trainer.compute_advantages_and_returns(data)
        assert torch.equal(done["advantages"], step_advantages(shape, estimate))
        real = done["advantages"][:5][shape["response_mask"][:5].bool()]
        assert trainer.all_metrics["loss/avg_raw_advantages_abs"] == pytest.approx(real.abs().mean().item())
        trainer.cfg.generator.step_wise_trajectories = False
        with pytest.raises(ValueError, match="step_wise_trajectories=true"):
            trainer.compute_advantages_and_returns(data)
    finally:
        ppo_utils.AdvantageEstimatorRegistry.unregister("hgpo")
