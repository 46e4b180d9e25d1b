"""The loss of verl's policy worker on two ranks, a row of padding beside the steps, and the same in plain PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

from hgpo.config import Config, LossAggregation
from tiny_models import tiny_model

pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")

import transfer_queue
from tensordict import TensorDict
from transformers import AutoModelForCausalLM
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import TrainingWorkerConfig
from verl.workers.engine_workers import TrainingWorker

from hgpo.integrations.verl import engine
from hgpo.integrations.verl.launch import compose
from hgpo.integrations.verl.queue import SCORED
from verl_workers import RANKS, ray_and_queue, worker_group

pytestmark = pytest.mark.slow

PARTITION = "train"
ENTROPY = 0.1
LENGTHS = [[3, 1, 5, 2], [4, 2, 1, 0]]  # of the responses on each rank; the last row is padding
ROWS = 3  # of a micro-batch: rank 0 has two, rank 1 has one
NORMS: dict[LossAggregation, float] = {}


@pytest.fixture(scope="module", autouse=True)
def queue() -> Iterator[None]:
    with ray_and_queue("cpu engine head"):
        yield


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    model = tiny_model()
    model.model.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return folder


def recipe(start: Path, aggregation: str) -> Config:
    return Config.model_validate(
        {
            "run": {"engine": "verl", "directory": str(start)},
            "policy": {"model": str(start), "device": "cpu", "max_prompt_tokens": 48, "max_response_tokens": 8},
            "training": {
                "mini_batch_size": 8,
                "learning_rate": 1e-12,  # the weights stay as they are
                "kl_coefficient": 0.0,
                "entropy_coefficient": ENTROPY,
                "loss_aggregation": aggregation,
                "loss_micro_batch_rows": ROWS,
                "micro_batch_tokens": 60,  # a forward pass has other rows than a micro-batch of the loss
            },
            "verl": {"gpus_per_node": RANKS},
            "environment": {"options": {"size": "small"}},
        }
    )


@pytest.fixture(scope="module")
def workers(start: Path) -> Iterator[Any]:
    settings = omega_conf_to_dataclass(compose(recipe(start, "token-mean")).actor_rollout_ref.actor)
    model = omega_conf_to_dataclass(compose(recipe(start, "token-mean")).actor_rollout_ref.model)
    settings.model_config = model
    settings.engine.use_dynamic_bsz = True
    settings.engine.max_token_len_per_gpu = settings.ppo_max_token_len_per_gpu
    worker = TrainingWorkerConfig(
        model_type="language_model",
        model_config=model,
        engine_config=settings.engine,
        optimizer_config=settings.optim,
        checkpoint_config=settings.checkpoint,
    )
    with worker_group(TrainingWorker, worker, partial(engine.ppo_loss, config=settings)) as found:
        yield found


def samples() -> list[dict[str, torch.Tensor]]:
    """The rows of both ranks, as verl's columns."""
    rng = np.random.default_rng(0)
    found = []
    for length in np.ravel(LENGTHS):
        prompt = torch.from_numpy(rng.integers(5, 30, int(rng.integers(3, 20))))
        response = torch.from_numpy(rng.integers(5, 30, max(1, int(length))))
        mask = torch.full_like(response, int(length > 0))
        found.append(
            {
                "prompts": prompt,
                "responses": response,
                "input_ids": torch.cat([prompt, response]),
                "position_ids": torch.arange(len(prompt) + len(response)),
                "response_mask": mask,
                "advantages": torch.full((len(response),), rng.normal(), dtype=torch.float32),
            }
        )
    return found


def plain_loss(model: Any, rows: list[dict[str, torch.Tensor]], aggregation: str, max_tokens: int) -> torch.Tensor:
    """On-policy, so that the surrogate's gradient is that of -A · log_prob; its value is -A."""
    per_row, lengths = [], np.ravel(LENGTHS)
    for row in rows:
        logits = model(input_ids=row["input_ids"][None]).logits[0, len(row["prompts"]) - 1 : -1].float()
        log_prob_V = torch.log_softmax(logits, -1)
        log_prob = log_prob_V.gather(-1, row["responses"][:, None])[:, 0]
        surrogate = -row["advantages"] * (log_prob - log_prob.detach()).exp()
        per_row.append(surrogate + ENTROPY * (log_prob_V.exp() * log_prob_V).sum(-1))
    real = [row for row, length in enumerate(lengths) if length]
    if aggregation == "token-mean":
        return torch.cat([per_row[row] for row in real]).mean()
    if aggregation == "sequence-mean":
        return torch.stack([per_row[row].mean() for row in real]).mean()
    if aggregation == "constant":
        return torch.stack([per_row[row].sum() / max_tokens for row in real]).mean()
    parts = [real[:3], real[3:4], real[4:]]  # rank by rank
    return torch.stack([torch.cat([per_row[row] for row in part]).mean() for part in parts]).mean()


@pytest.mark.parametrize("aggregation", get_args(LossAggregation))
def test_loss_and_gradient_are_those_of_plain_pytorch(workers: Any, start: Path, aggregation: str) -> None:
    config, rows = recipe(start, aggregation), samples()
    model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    with torch.no_grad():
        for row in rows:
            logits = model(input_ids=row["input_ids"][None]).logits[0, len(row["prompts"]) - 1 : -1]
            row["old_log_probs"] = torch.log_softmax(logits, -1).gather(-1, row["responses"][:, None])[:, 0]
    columns = (*SCORED, "old_log_probs", "advantages")
    nested = {name: torch.nested.as_nested_tensor([row[name] for row in rows], layout=torch.jagged) for name in columns}
    keys = [f"{aggregation}_{number}" for number in range(len(rows))]
    transfer_queue.kv_batch_put(keys=keys, partition_id=PARTITION, fields=TensorDict(nested, batch_size=len(keys)))
    facts = {
        "global_batch_size": len(rows),
        "mini_batch_size": len(rows),
        "epochs": 1,
        "seed": 0,
        "dataloader_kwargs": {"shuffle": False},
        "temperature": 1.0,
        "calculate_entropy": True,
        **engine.aggregation_facts(config.training, config.policy.max_response_tokens),
    }
    tags: list[dict[str, Any]] = [{} for _ in keys]
    batch = transfer_queue.KVBatchMeta(
        partition_id=PARTITION, keys=keys, tags=tags, fields=list(columns), extra_info=facts
    )
    metrics = workers.train_mini_batch(batch).get()["metrics"]

    loss = plain_loss(model, rows, aggregation, config.policy.max_response_tokens)
    loss.backward()
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in model.parameters()]).item()
    found = metrics["actor/pg_loss"][0] - ENTROPY * metrics["actor/entropy_loss"][0]
    assert found == pytest.approx(loss.item(), rel=1e-4)
    assert metrics["grad_norm"][0] == pytest.approx(norm, rel=1e-4)
    assert all(abs(norm - other) > 1e-3 * norm for other in NORMS.values())  # no two aggregations give one norm
    NORMS[aggregation] = norm
