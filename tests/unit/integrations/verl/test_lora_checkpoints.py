"""A checkpoint that verl's own manager has saved of a sharded model with LoRA. Runs where verl is installed."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from hgpo.config import Config
from hgpo.policies.loading import ADAPTER_CONFIG, IncompleteModelError
from hgpo.policies.weights import BASE_FILE, WEIGHTS_FILE, fingerprint
from hgpo.runs.folder import RunDirectory
from hgpo.training.batching import Sample
from hgpo.training.load import RunPolicies
from hgpo.training.log_probs import response_log_probs
from tiny_models import WORDS, save_tiny_model, tiny_model

pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")

import torch.distributed as distributed
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from verl.utils.fsdp_utils import collect_lora_params

from hgpo.integrations.verl.checkpoints import publish_weights
from hgpo.integrations.verl.cpu import TransformersServer, WeightSender
from verl_lora import recipe, save_on_rank, train_and_save, verl_model
from verl_workers import run_on_ranks

PROMPT, ANSWER = np.arange(5, 17, dtype=np.int32), np.arange(9, 15, dtype=np.int32)


@dataclass
class Saved:
    """What verl left in `folder` and sends to its rollout engine, and what the live policy says of an answer."""

    config: Config
    folder: Path
    log_probs: Any
    sent: dict[str, torch.Tensor]
    peft_config: dict[str, Any]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Saved]:
    """A tiny policy, sharded as verl shards it, whose adapter has learnt something."""
    path = tmp_path_factory.mktemp("verl-lora")
    start = tiny_model()
    start.model.save_pretrained(path / "start")
    start.tokenizer.save_pretrained(path / "start")
    config = recipe(path / "start")
    distributed.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{path / 'meeting'}")
    try:
        model = verl_model(config)
        train_and_save(model, start.tokenizer, path / "actor")
        sent = collect_lora_params(model, layered_summon=False, base_sync_done=True)
        told = model.peft_config["default"].to_dict()
        yield Saved(config, path / "actor" / "huggingface", scores(model), dict(sent), told)
    finally:
        distributed.destroy_process_group()


def scores(model: Any) -> Any:
    """Log-probs of an answer, without a word of this project's."""
    with torch.no_grad():
        logits = model(input_ids=torch.from_numpy(np.concatenate([PROMPT, ANSWER])).long().unsqueeze(0)).logits
    at = torch.arange(len(PROMPT) - 1, len(PROMPT) + len(ANSWER) - 1)
    return logits[0, at].log_softmax(-1)[torch.arange(len(ANSWER)), torch.from_numpy(ANSWER).long()].numpy()


@pytest.fixture
def folder(saved: Saved, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved.folder, tmp_path / "huggingface"))


def test_what_is_published_says_what_the_live_policy_said(saved: Saved, folder: Path, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    publish_weights(folder, run.checkpoints, 3, {"engine": "verl"}, keep=2)
    language_model, name = RunPolicies(
        run, saved.config.policy, saved.config.warm_start.enabled, saved.config.run.seed
    ).language_model("newest")
    sample = Sample(PROMPT, ANSWER, np.zeros(len(ANSWER), dtype=np.float32), advantage=1.0)
    [found] = response_log_probs(language_model.model, [sample])
    np.testing.assert_allclose(found, saved.log_probs, rtol=1e-5, atol=1e-6)
    assert name == "3"
    start, _ = RunPolicies(
        run, saved.config.policy, saved.config.warm_start.enabled, saved.config.run.seed
    ).language_model("start")
    [unlearnt] = response_log_probs(start.model, [sample])
    assert np.abs(unlearnt - found).max() > 0.1
    assert not (run.checkpoints / "3" / "config.json").exists()


def test_it_is_as_the_built_in_trainer_saves_an_adapter(saved: Saved, folder: Path) -> None:
    base = AutoModelForCausalLM.from_pretrained(saved.config.policy.model, dtype=torch.float32)
    assert json.loads((folder / BASE_FILE).read_text()) == {"weights": fingerprint(base)}
    written = json.loads((folder / ADAPTER_CONFIG).read_text())
    assert (written["r"], written["lora_alpha"], written["peft_type"]) == (4, 8, "LORA")
    assert [path.name for path in folder.glob("*.safetensors")] == [WEIGHTS_FILE]
    assert (folder / "tokenizer.json").exists()


@pytest.mark.slow
def test_two_ranks_write_the_adapter_and_never_the_model(tmp_path: Path) -> None:
    start = save_tiny_model(tmp_path / "start", [" ".join(WORDS)], hidden_size=256, layers=2, heads=4)
    model = (start / "model.safetensors").stat().st_size
    largest = tmp_path / "largest"
    run_on_ranks(save_on_rank, tmp_path, largest)
    assert 0 < json.loads(largest.read_text()) < model / 4
    found = load_file(tmp_path / "actor" / "huggingface" / WEIGHTS_FILE)
    expected = torch.load(tmp_path / "adapter.bin")
    assert any(weight.abs().max() > 0.3 for name, weight in expected.items() if "lora_B" in name)
    torch.testing.assert_close(found, {name.replace(".default.", "."): one for name, one in expected.items()})
    base = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    recorded = json.loads((tmp_path / "actor" / "huggingface" / BASE_FILE).read_text())
    assert recorded == {"weights": fingerprint(base)}


class Actor:
    """A server in this process: what Ray puts around one that lives elsewhere."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=getattr(self._server, name))


def test_the_rollout_server_of_a_cpu_plays_the_adapter_that_training_sends(saved: Saved) -> None:
    server = TransformersServer.__ray_metadata__.modified_class(saved.config.policy.model, 8, seed=0)
    sender = object.__new__(WeightSender)
    sender._server = Actor(server)

    async def send(base_sync_done: bool, weights: dict[str, torch.Tensor]) -> None:
        await sender.resume(tags=["weights"])  # as verl's worker calls it
        await sender.update_weights(
            weights.items(), global_steps=7, peft_config=saved.peft_config, base_sync_done=base_sync_done
        )

    asyncio.run(send(False, {"model.norm.base_layer.weight": torch.zeros(2)}))  # the server has its base
    for _ in range(2):  # the first adapter, and one in its place
        asyncio.run(send(True, saved.sent))
        np.testing.assert_allclose(scores(server._model), saved.log_probs, rtol=1e-5, atol=1e-6)
    assert server._update == 7
    with pytest.raises(IncompleteModelError, match="lacks the weights"):
        asyncio.run(send(True, dict(list(saved.sent.items())[1:])))
