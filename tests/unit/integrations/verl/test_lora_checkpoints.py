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
from hgpo.policies.loading import IncompleteModelError
from hgpo.policies.weights import BASE_FILE, CONFIG_FILE, WEIGHTS_FILE, fingerprint
from hgpo.runs.folder import RunDirectory
from hgpo.training.batching import Sample
from hgpo.training.load import RunPolicies, adapter_of
from hgpo.training.log_probs import response_log_probs
from killed import killed_at_each_call
from tiny_models import tiny_model

pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")

import torch.distributed as distributed
from peft import LoraConfig, TaskType, get_peft_model
from safetensors.torch import load_file, save_file
from torch.distributed.device_mesh import init_device_mesh
from transformers import AutoModelForCausalLM
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
from verl.utils.fsdp_utils import apply_fsdp2, collect_lora_params

from hgpo.integrations.verl.checkpoints import keep_adapter, publish
from hgpo.integrations.verl.config import mapped_settings
from hgpo.integrations.verl.cpu import TransformersServer, WeightSender

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
        manager = FSDPCheckpointManager(
            model=model,
            optimizer=torch.optim.AdamW(model.parameters()),
            processing_class=start.tokenizer,
            checkpoint_config={
                "save_contents": ["model", "optimizer", "extra", "hf_model"],
                "load_contents": ["model"],
                "save_lora_only": True,
            },
        )
        manager.save_checkpoint(str(path / "actor"), None, 3)
        sent = collect_lora_params(model, layered_summon=False, base_sync_done=True)
        told = model.peft_config["default"].to_dict()
        yield Saved(config, path / "actor" / "huggingface", scores(model), dict(sent), told)
    finally:
        distributed.destroy_process_group()


def recipe(start: Path) -> Config:
    policy = {
        "model": str(start),
        "device": "cpu",
        "lora": {"rank": 4},
        "max_prompt_tokens": 32,
        "max_response_tokens": 8,
    }
    return Config.model_validate({"run": {"engine": "verl", "directory": str(start.parent)}, "policy": policy})


def verl_model(config: Config) -> Any:
    """As `FSDPEngine._build_lora_module` makes it, from the settings that verl is told."""
    mapped = mapped_settings(config, config.policy.model, config.run_directory)
    told = {name.removeprefix("actor_rollout_ref.model."): one.value for name, one in mapped.items()}
    base = AutoModelForCausalLM.from_pretrained(told["path"], dtype=torch.float32)
    base.enable_input_require_grads()
    lora = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=told["lora_rank"],
        lora_alpha=told["lora_alpha"],
        target_modules=told["target_modules"],
        bias="none",
    )
    model = get_peft_model(base, lora)
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    apply_fsdp2(model, {"mesh": init_device_mesh("cpu", (1,))}, {})
    return model.eval()


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
    keep_adapter(folder, adapter_of(saved.config.policy.lora))
    publish(folder, run.checkpoints, 3, {"engine": "verl"}, keep=2)
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
    before = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    keep_adapter(folder, adapter_of(saved.config.policy.lora))
    base = AutoModelForCausalLM.from_pretrained(saved.config.policy.model, dtype=torch.float32)
    assert json.loads((folder / BASE_FILE).read_text()) == {"weights": fingerprint(base)}
    written = json.loads((folder / CONFIG_FILE).read_text())
    assert (written["r"], written["lora_alpha"], written["peft_type"]) == (4, 8, "LORA")
    [weights] = folder.glob("*.safetensors")
    assert weights.name == WEIGHTS_FILE
    assert weights.stat().st_size < before / 2
    assert (folder / "tokenizer.json").exists()


def test_weights_in_several_files_are_one_model(saved: Saved, folder: Path, tmp_path: Path) -> None:
    whole = Path(shutil.copytree(folder, tmp_path / "whole"))
    names = sorted(tensors := load_file(folder / "model.safetensors"))
    (folder / "model.safetensors").unlink()
    for number in (1, 2):
        part = {name: tensors[name] for name in names[number - 1 :: 2]}
        save_file(part, folder / f"model-0000{number}-of-00002.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors.index.json").write_text("{}")
    for path in (whole, folder):
        keep_adapter(path, adapter_of(saved.config.policy.lora))
    assert (folder / BASE_FILE).read_text() == (whole / BASE_FILE).read_text()
    assert (folder / WEIGHTS_FILE).read_bytes() == (whole / WEIGHTS_FILE).read_bytes()
    assert not list(folder.glob("model*"))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"base_model.model.model.norm.weight": None}, "lacks the weights model.norm.weight"),
        (
            {"base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight": None},
            "lacks the weights model.layers.0.self_attn.q_proj.weight",
        ),
        (
            {"base_model.model.model.layers.1.mlp.up_proj.lora_A.default.weight": None},
            "lacks the weights base_model.model.model.layers.1.mlp.up_proj.lora_A.weight",
        ),
        ({"base_model.model.model.other.weight": "model.other.weight"}, "does not know: model.other.weight"),
        ({"base_model.model.lm_head.lora_A.default.weight": "lm_head"}, "does not know: base_model.model.lm_head.lora"),
    ],
)
def test_a_missing_or_surplus_weight_is_named(
    saved: Saved, folder: Path, changed: dict[str, str | None], message: str
) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name, kind in changed.items():
        if kind is None:
            del tensors[name]
        else:
            tensors[name] = torch.zeros(2)
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(IncompleteModelError, match=message):
        keep_adapter(folder, adapter_of(saved.config.policy.lora))
    assert path.exists()  # nothing is thrown away that was not understood


def test_a_process_killed_at_any_point_goes_on(saved: Saved, folder: Path, tmp_path: Path) -> None:
    kept = Path(shutil.copytree(folder, tmp_path / "kept"))
    keep_adapter(kept, adapter_of(saved.config.policy.lora))
    fresh = Path(shutil.copytree(folder, tmp_path / "fresh"))
    for where in killed_at_each_call(lambda: keep_adapter(folder, adapter_of(saved.config.policy.lora))):
        keep_adapter(folder, adapter_of(saved.config.policy.lora))
        assert (folder / WEIGHTS_FILE).read_bytes() == (kept / WEIGHTS_FILE).read_bytes(), where
        assert (folder / BASE_FILE).read_bytes() == (kept / BASE_FILE).read_bytes(), where
        assert not list(folder.glob("model*")), where
        shutil.rmtree(folder)
        shutil.copytree(fresh, folder)


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
