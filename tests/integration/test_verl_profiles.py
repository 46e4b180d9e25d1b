"""Every profile's `--dry-run`, held under the memory and CPUs that its page promises. Runs where verl is installed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hgpo.config import load_config

pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")

import yaml

from hgpo.integrations.verl.gpu_memory import estimate_gpu_memory
from hgpo.integrations.verl.launch import composed_yaml
from hgpo.integrations.verl.preflight import ray_needs
from hgpo.training.memory import GIB
from qwen_sizes import QWEN

PROFILES = Path(__file__).parents[2] / "recipes" / "verl" / "profiles"
GB = 10**9
ROW = re.compile(r"\| \[([\w.-]+)\.toml\].*?\| [^|]* \| [^|]*?(\d+) GB \| ([\d.]+) \| (\d+) \|")


def promised() -> dict[str, tuple[int, float, int]]:
    """GB of each GPU, GB taken at most, and CPUs asked for, by profile."""
    page = (PROFILES / "README.md").read_text(encoding="utf-8")
    return {name: (int(gpu), float(taken), int(cpus)) for name, gpu, taken, cpus in ROW.findall(page)}


def dry_run(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for variable in ("CHECKPOINTS_DIR", "WANDB_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("ALFWORLD_DATA", "WEBSHOP_DATA"):
        monkeypatch.setenv(variable, "/data")
    tree: dict[str, Any] = yaml.safe_load(composed_yaml(load_config(PROFILES / f"{name}.toml", ["run.engine=verl"])))
    return tree


def test_every_profile_is_on_the_page() -> None:
    assert set(promised()) == {path.stem for path in PROFILES.glob("*.toml")}


@pytest.mark.parametrize("name", sorted(promised()))
def test_a_profile_takes_what_its_page_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, taken, cpus = promised()[name]
    tree = dry_run(name, monkeypatch)
    model = tree["actor_rollout_ref"]["model"]
    phases = estimate_gpu_memory(QWEN[model["path"]], tree, gpu * GB)
    needed = max(sum(parts.values()) for parts in phases.values()) * GIB / GB
    assert needed <= gpu
    assert needed == pytest.approx(taken, abs=0.05)
    assert ray_needs(tree).cpus == cpus
    check_settings(tree, adapters="lora" in name)


def check_settings(tree: dict[str, Any], *, adapters: bool) -> None:
    part = tree["actor_rollout_ref"]
    assert part["model"]["use_fused_kernels"]
    assert part["rollout"]["max_model_len"] == part["rollout"]["prompt_length"] + part["rollout"]["response_length"]
    assert part["ref"]["fsdp_config"]["model_dtype"] == "bf16"
    assert part["actor"]["fsdp_config"]["model_dtype"] == "fp32"
    assert (part["model"]["lora_rank"] > 0) is adapters
    assert part["rollout"]["load_format"] == ("safetensors" if adapters else "dummy")
