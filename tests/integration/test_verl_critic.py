"""verl's critic workers on two ranks, through Ray and TransferQueue, beside one model in plain PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hgpo.config import Config
from hgpo.estimators.gae import value_targets
from hgpo.rollout.records import StepRecord, to_step_batch
from hgpo.training.losses import value_loss
from hgpo.training.value_model import ReturnScale
from step_records import step_record
from tiny_models import tiny_model

pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")

import transfer_queue
from transformers import AutoConfig
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import TrainingWorkerConfig
from verl.workers.utils.losses import value_loss as verl_value_loss

from hgpo.integrations.verl.critic import PARTITION, CriticWorker, VerlCritic, load_value_model
from hgpo.integrations.verl.launch import compose
from verl_workers import RANKS, ray_and_queue, worker_group

pytestmark = pytest.mark.slow

STEPS, GAMMA = 5, 0.9


@pytest.fixture(scope="module", autouse=True)
def queue() -> Iterator[None]:
    with ray_and_queue("cpu engine head critic"):
        yield


@dataclass
class Side:
    """The recipe, verl's workers and the folder of the start policy."""

    config: Config
    workers: Any
    start: Path


@pytest.fixture
def side(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Side]:
    model = tiny_model()
    model.model.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    config = Config.model_validate(
        {
            "run": {"engine": "verl", "directory": str(tmp_path)},
            "policy": {
                "model": str(tmp_path),
                "device": "cpu",
                "max_prompt_tokens": 48,
                "max_response_tokens": 8,
                "lora": {"rank": request.param},
            },
            "advantage": {"estimator": "gae", "gamma": GAMMA},
            "training": {"mini_batch_size": 8, "max_gradient_norm": 0.5},
            "critic": {"learning_rate": 1e-2, "value_clip": 0.01},
            # the gathered head, which the values were computed with, is still there when the head is rescaled
            "verl": {"gpus_per_node": RANKS, "overrides": {"critic": {"fsdp": {"reshard_after_forward": False}}}},
            "environment": {"options": {"size": "small"}},
        }
    )
    settings = omega_conf_to_dataclass(compose(config).critic)
    settings.engine.infer_max_token_len_per_gpu = settings.ppo_infer_max_token_len_per_gpu
    settings.engine.max_token_len_per_gpu = settings.ppo_infer_max_token_len_per_gpu
    worker = TrainingWorkerConfig(
        model_type="value_model",
        model_config=settings.model,
        engine_config=settings.engine,
        optimizer_config=settings.optim,
        checkpoint_config=settings.checkpoint,
    )
    with worker_group(CriticWorker, worker, partial(verl_value_loss, config=settings)) as workers:
        yield Side(config, workers, tmp_path)


def steps() -> list[StepRecord]:
    """Two trajectories: one won, one that a time limit cut; prompts of different lengths."""
    rng = np.random.default_rng(0)
    prompts = [rng.integers(5, 30, length).astype(np.int32) for length in (3, 17, 9, 24, 6, 12)]
    return [
        step_record(
            trajectory="won" if number < 3 else "cut",
            step=number % 3,
            reward=10.0 * (number == 2),
            prompt_ids=prompts[number],
            token_ids=np.zeros(4 - number % 3, dtype=np.int32),
            next_prompt_ids=prompts[5] if number == 4 else np.empty(0, dtype=np.int32),
        )
        for number in range(STEPS)
    ]


def critic_of(side: Side) -> VerlCritic:
    target_lambda = side.config.target_lambda
    return VerlCritic(side.workers, side.config.training, gamma=GAMMA, target_lambda=target_lambda, seed=0)


class Plain:
    """The critic without verl: the same start, one process, prompts one by one."""

    def __init__(self, side: Side) -> None:
        config = AutoConfig.from_pretrained(side.start, attn_implementation="sdpa")
        config.num_labels = 1
        self.model = load_value_model(str(side.start), torch.float32, config, False)

    def values(self, prompts: Sequence[np.ndarray]) -> torch.Tensor:
        rows = [self.model(input_ids=torch.from_numpy(ids).long()[None]).logits[0, -1, 0] for ids in prompts]
        return torch.stack(rows)


@pytest.mark.parametrize("side", [0], indirect=True)  # adapters are drawn at random
def test_values_and_updates_are_those_of_plain_pytorch(side: Side, tmp_path: Path) -> None:
    """Value at the prompt's last token, mean over steps of the clipped loss, head that follows the scale."""
    played, plain = steps(), Plain(side)
    critic = critic_of(side)
    prompts = [record.prompt_ids for record in played]
    optimizer = torch.optim.AdamW(plain.model.parameters(), lr=1e-2, weight_decay=0.01)
    scale = ReturnScale()
    for update in (1, 2, 3):
        found = critic.estimate(played)
        with torch.no_grad():
            normal_B = plain.values([*prompts, played[-1].next_prompt_ids]).numpy()
        value_B = scale.restored(normal_B)
        np.testing.assert_allclose(found.value_N, value_B[:STEPS], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found.bootstrap_N, [0, 0, 0, 0, value_B[-1]], rtol=1e-4, atol=1e-4)

        batch = to_step_batch(played, found)
        metrics = critic.train(batch, update)
        target_N = value_targets(batch, GAMMA, side.config.target_lambda)
        before, scale = scale, scale.updated(target_N)
        with torch.no_grad():
            plain.model.score.weight *= before.std / scale.std
            plain.model.score.bias *= before.std / scale.std
            plain.model.score.bias += (before.mean - scale.mean) / scale.std
        target_B, old_B = (torch.from_numpy(scale.normalised(one)) for one in (target_N, found.value_N))
        loss_B, clipped_B = value_loss(plain.values(prompts), target_B, old_B, 0.01)
        optimizer.zero_grad()
        loss_B.mean().backward()
        norm = torch.nn.utils.clip_grad_norm_(plain.model.parameters(), 0.5)
        optimizer.step()
        assert metrics["critic/vf_loss"] == pytest.approx(loss_B.mean().item(), rel=1e-3)
        assert metrics["critic/grad_norm"] == pytest.approx(norm.item(), rel=1e-3)
        assert metrics["critic/vf_clipfrac"] == pytest.approx(clipped_B.float().mean().item(), abs=0.2)
        assert critic.scale == scale
        assert transfer_queue.kv_list(PARTITION).get(PARTITION, {}) == {}

    check_checkpoint(side, critic, tmp_path / "critic")


@pytest.mark.parametrize("side", [4], indirect=True)
def test_an_adapter_and_its_head_learn_and_are_saved(side: Side, tmp_path: Path) -> None:
    critic, played = critic_of(side), steps()
    for update in (1, 2, 3):
        critic.train(to_step_batch(played, critic.estimate(played)), update)
    check_checkpoint(side, critic, tmp_path / "critic")


def check_checkpoint(side: Side, critic: VerlCritic, folder: Path) -> None:
    """Values are again what they were when it was saved, and training had changed them."""
    played, scale = steps(), critic.scale
    learnt = critic.estimate(played)
    assert learnt.value_N.std() > 0.01
    side.workers.save_checkpoint(str(folder))
    critic.train(to_step_batch(played, learnt), 4)
    assert np.abs(critic.estimate(played).value_N - learnt.value_N).max() > 0.01
    side.workers.load_checkpoint(str(folder))
    critic.scale = scale
    np.testing.assert_allclose(critic.estimate(played).value_N, learnt.value_N, rtol=1e-5)
