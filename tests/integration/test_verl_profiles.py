"""The memory and CPUs that recipes/verl/README.md gives for each hardware. Runs where verl is installed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hgpo.config import Config, load_config

pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")

from omegaconf import OmegaConf

from hgpo.integrations.verl.estimates import estimate_disk, estimate_gpu_hours, estimate_gpu_memory
from hgpo.integrations.verl.launch import compose
from hgpo.integrations.verl.preflight import RayNeeds
from hgpo.runs.metrics import GIB
from published_recipes import FOLDER
from qwen_sizes import QWEN

GB = 10**9
ROW = re.compile(r"\| [^|]+ \| [^|]*?(\d+) GB \| \[?`([^`]+)`[^|]*\| ([\d.]+) \| (\d+) \| (\d+) \| (\d+) \|")


class Hardware(NamedTuple):
    """One row: GB of each GPU, recipe with overrides, GB of each that is taken, CPUs for Ray, GPU hours, GB of disk."""

    gpu: int
    command: str
    taken: float
    cpus: int
    hours: int
    disk: int


ROWS = [
    Hardware(int(gpu), command, float(taken), int(cpus), int(hours), int(disk))
    for gpu, command, taken, cpus, hours, disk in ROW.findall((FOLDER / "README.md").read_text(encoding="utf-8"))
]


def dry_run(command: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Config, dict[str, Any]]:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    for variable in ("ALFWORLD_DATA", "WEBSHOP_DATA"):
        monkeypatch.setenv(variable, "/data")
    recipe, *overrides = shlex.split(command)
    config = load_config(Path(recipe), [*overrides, "run.engine=verl"])
    tree: dict[str, Any] = OmegaConf.to_container(compose(config), resolve=True)
    return config, tree


def test_every_profile_is_on_the_page() -> None:
    profiles = {f"verl/profiles/{path.stem}" for path in (FOLDER / "profiles").glob("*.toml")}
    commands = {row.command for row in ROWS}
    assert len(commands) == 7
    assert {command for command in commands if "profiles" in command} == profiles


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.command)
def test_a_training_takes_what_the_page_says(row: Hardware, monkeypatch: pytest.MonkeyPatch) -> None:
    config, tree = dry_run(row.command, monkeypatch)
    model = QWEN[config.policy.model]
    phases = estimate_gpu_memory(model, tree, row.gpu * GB)
    needed = max(sum(parts.values()) for parts in phases.values()) * GIB / GB
    assert needed <= row.gpu
    assert needed == pytest.approx(row.taken, abs=0.05)
    assert RayNeeds.of(tree).cpus == row.cpus
    rollout, training = config.rollout, config.training
    steps = training.updates * rollout.tasks_per_update * rollout.group_size * config.environment.max_steps
    assert round(estimate_gpu_hours(model, steps)) == row.hours
    disk = estimate_disk(model, training.keep_checkpoints, config.policy.lora.rank, critic=False)
    assert round(disk / GB) == row.disk
    check_settings(tree, adapters="lora" in row.command)
    assert tree["actor_rollout_ref"]["model"]["enable_gradient_checkpointing"] is ("80gb-1.5b" not in row.command)


def check_settings(tree: dict[str, Any], *, adapters: bool) -> None:
    part = tree["actor_rollout_ref"]
    assert part["model"]["use_fused_kernels"]
    assert part["rollout"]["max_model_len"] == part["rollout"]["prompt_length"] + part["rollout"]["response_length"]
    assert part["ref"]["fsdp_config"]["model_dtype"] == "bf16"
    assert part["actor"]["fsdp_config"]["model_dtype"] == "fp32"
    assert (part["model"]["lora_rank"] > 0) is adapters
    assert part["rollout"]["load_format"] == ("safetensors" if adapters else "dummy")
