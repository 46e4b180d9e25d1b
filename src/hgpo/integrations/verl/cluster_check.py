"""Asks the nodes of a running Ray cluster what they have, and refuses a run that would fail or hang there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hgpo.config import Config, ConfigError
from hgpo.integrations.verl.cluster_needs import ClusterNode
from hgpo.integrations.verl.mapping import on_cpu
from hgpo.integrations.verl.start_check import COMPARED, Machine, cluster_finding, gpu_findings, look, refuse
from hgpo.integrations.verl.versions import Finding


def check_cluster(config: Config, verl_config: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """Room for everything that Ray has to place, the same versions everywhere, packages and memory of GPU nodes.

    Args:
        config: the recipe.
        verl_config: what it was composed to.
        say: takes what a person should know and what is no reason to stop.

    Raises:
        ConfigError: names what would fail or hang, and what to change.
    """
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]]
    places = [_place(node) for node in nodes]
    refuse_too_few_gpus([place.gpus for place in places], config)
    refuse([cluster_finding(verl_config, places)])
    machines = _ask([node["NodeID"] for node in nodes], [place.address for place in places])
    here = look()
    for machine in machines:
        refuse_other_versions(machine.address, machine.versions, {name: here.versions[name] for name in COMPARED})
    findings = [] if on_cpu(config) else gpu_findings(config, verl_config, machines)
    refuse(findings)
    for finding in findings:
        if finding.remedy:
            say(said(finding))


def said(finding: Finding) -> str:
    """One line of a finding."""
    return f"{finding.what}: {finding.found}" + (f": {finding.remedy}" if finding.remedy else "")


def refuse_too_few_gpus(gpus_by_node: list[int], config: Config) -> None:
    """`gpus_by_node` is what each node of the cluster has."""
    settings = config.verl
    fitting = sum(gpus >= settings.gpus_per_node for gpus in gpus_by_node)
    if fitting < settings.nodes:
        raise ConfigError(
            f"the recipe trains on {settings.nodes} node(s) with {settings.gpus_per_node} GPU(s) each, but the "
            f"cluster's nodes have {', '.join(map(str, gpus_by_node)) or 'no GPUs'}. Change verl.nodes and "
            "verl.gpus_per_node, join a cluster with verl.ray_address, or train on CPUs with policy.device=cpu"
        )


def refuse_other_versions(node: str, found: Mapping[str, str | None], expected: Mapping[str, str | None]) -> None:
    """Versions on a node against those of the machine that starts the run."""
    for package, version in expected.items():
        if found.get(package) != version:
            raise ConfigError(
                f"node {node} has {package} {found.get(package) or '(not installed)'}, this machine {version}: "
                "install the same on every node, or the plugin cannot be loaded there"
            )


def _place(node: Mapping[str, Any]) -> ClusterNode:
    resources = node["Resources"]
    return ClusterNode(node["NodeManagerAddress"], int(resources.get("CPU", 0)), int(resources.get("GPU", 0)))


def _ask(node_ids: list[str], addresses: list[str]) -> list[Machine]:
    """What each node has, asked on it."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    probe = ray.remote(num_cpus=0)(look)
    answers = [
        probe.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False)).remote(address)
        for node_id, address in zip(node_ids, addresses, strict=True)
    ]
    machines: list[Machine] = ray.get(answers)
    return machines
