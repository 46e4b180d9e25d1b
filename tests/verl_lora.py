"""A policy with LoRA that verl shards and saves.

A module of its own, since the processes of ranks have to import it.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, TaskType, get_peft_model
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
from verl.utils.fsdp_utils import apply_fsdp2

import hgpo.integrations.verl.engine  # noqa: F401, repairs verl's checkpoints
from hgpo.config import Config
from hgpo.integrations.verl.config import mapped_settings


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
    apply_fsdp2(model, {"mesh": init_device_mesh("cpu", (distributed.get_world_size(),))}, {})
    return model.eval()


def train_and_save(model: Any, tokenizer: Any, folder: Path) -> None:
    """One step of AdamW, and the checkpoint of verl's worker."""
    optimizer = torch.optim.AdamW(parameter for parameter in model.parameters() if parameter.requires_grad)
    model(input_ids=torch.arange(5, 17)[None]).logits.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    manager = FSDPCheckpointManager(
        model=model,
        optimizer=optimizer,
        processing_class=tokenizer,
        checkpoint_config={
            "save_contents": ["model", "optimizer", "extra", "hf_model"],
            "load_contents": ["model"],
            "save_lora_only": True,
        },
    )
    manager.save_checkpoint(str(folder), None, 3)


def bytes_of(folder: Path) -> int:
    """Size of all weights and states of optimisers in a folder."""
    size = 0
    for path in [*folder.rglob("*.safetensors"), *folder.rglob("*.pt")]:
        try:
            size += path.stat().st_size
        except FileNotFoundError:
            continue  # renamed meanwhile
    return size


def save_on_rank(rank: int, ranks: int, folder: Path, largest: Path) -> None:
    """Saves to `folder`/actor; rank 0 writes the most bytes that were ever there to `largest`."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=ranks, init_method=f"file://{folder / 'meeting'}")
    model = verl_model(recipe(folder / "start"))
    done, seen = threading.Event(), [0]

    def watch() -> None:
        while not done.wait(0.001):
            seen.append(bytes_of(folder / "actor"))

    watching = threading.Thread(target=watch)
    watching.start()
    train_and_save(model, AutoTokenizer.from_pretrained(folder / "start"), folder / "actor")
    distributed.barrier()
    done.set()
    watching.join()
    adapter = {name: weight.full_tensor() for name, weight in model.state_dict().items() if ".lora_" in name}
    if rank == 0:
        torch.save(adapter, folder / "adapter.bin")
        largest.write_text(json.dumps(max([*seen, bytes_of(folder / "actor")])))
    distributed.destroy_process_group()
