"""What verl 0.9.1 asks of a Ray cluster, and whether a cluster can give it. Arithmetic alone.

Ray's CPUs are a count that Ray keeps, not cores: a machine may be started with more (`verl.ray_cpus`). What holds them:

    TransferQueue     1 for its controller and 1 for each storage unit, which go round robin over all nodes
    placement groups  one per training node, as a whole on one node: 3 CPUs and a GPU for each training process
    everything else   none, but one has to be free for a moment on the node where it is started

Where a group or a unit has no room, verl waits for ever and says nothing, so this is asked before it starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CPUS_PER_RANK = 3  # verl's `ResourcePoolManager.max_colocate_count`
_CONTROLLER = 1
_FREE = 1


@dataclass(frozen=True, slots=True)
class ClusterNeeds:
    """What a run asks for.

    Attributes:
        nodes: that train.
        gpus_per_node: training processes of each.
        storage_units: of TransferQueue.

    Example: one GPU and one storage unit are `ClusterNeeds(1, 1, 1)`, whose `cpus` are 1 + 1 + 3 + 1 = 6.
    """

    nodes: int
    gpus_per_node: int
    storage_units: int

    @property
    def queue_cpus(self) -> int:
        """CPUs that TransferQueue holds."""
        return _CONTROLLER + self.storage_units

    @property
    def group_cpus(self) -> int:
        """CPUs of one placement group."""
        return CPUS_PER_RANK * self.gpus_per_node

    @property
    def cpus(self) -> int:
        """CPUs that suffice on a cluster of as many nodes as train, the free ones included."""
        return self.queue_cpus + self.nodes * (self.group_cpus + _FREE)


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """What a node of a cluster has to give.

    Attributes:
        address: its name in messages.
        cpus: as Ray counts them.
        gpus: as Ray counts them.

    Example: `ClusterNode("10.0.0.2", cpus=32, gpus=8)`.
    """

    address: str
    cpus: int
    gpus: int


def needs_of(verl_config: Mapping[str, Any]) -> ClusterNeeds:
    """What verl's composed configuration asks for."""
    trainer = verl_config["trainer"]
    storage = verl_config["transfer_queue"]["backend"]["SimpleStorage"]
    return ClusterNeeds(trainer["nnodes"], trainer["n_gpus_per_node"], storage["num_data_storage_units"])


def storage_units(nodes: int, gpus_per_node: int) -> int:
    """Few, since each holds a CPU: one a node, two where a node has four training processes or more."""
    return nodes * (1 if gpus_per_node < 4 else 2)


def cpus_to_start_with(needs: ClusterNeeds, cores: int) -> int:
    """What Ray is told where it is started here: the cores, or more where verl would wait for them for ever."""
    return max(cores, needs.cpus)


def missing(needs: ClusterNeeds, cluster: Sequence[ClusterNode]) -> str | None:
    """What the cluster lacks, in numbers, so that the run would wait for ever; None where it lacks nothing.

    Ray puts the queue's controller where it likes, so there has to be room for the groups wherever it goes.

    Args:
        needs: of the run.
        cluster: its living nodes, in any order; TransferQueue orders them by names of Ray's own.
    """
    bare = [node.address for node in cluster if node.cpus < 1]
    if bare:
        return f"TransferQueue puts a storage unit on every node in turn, and {', '.join(bare)} has no CPU for one"
    on_each = -(-needs.storage_units // max(1, len(cluster)))
    held = on_each + _CONTROLLER + _FREE
    fitting = [node for node in cluster if _groups_fit(needs, node, held - _CONTROLLER)]
    spared = [node for node in fitting if _groups_fit(needs, node, held)]
    # One node at most has the controller, so one that fits only without it may be counted where another is spare.
    if len(fitting) > needs.nodes or (len(fitting) == needs.nodes == len(spared)):
        return None
    return (
        f"{needs.nodes} node(s) are needed with {needs.gpus_per_node} GPU(s) and {held + needs.group_cpus} CPUs each "
        f"({CPUS_PER_RANK} a GPU for verl's placement group, {on_each + _CONTROLLER} for TransferQueue, {_FREE} free "
        f"to start the rest), and the cluster has {described(cluster)}"
    )


def described(cluster: Sequence[ClusterNode]) -> str:
    """The nodes and what they have, e.g. "10.0.0.2: 4 CPUs, 1 GPU"."""
    listed = [f"{node.address}: {node.cpus} CPUs, {node.gpus} GPU{'s' * (node.gpus != 1)}" for node in cluster]
    return "; ".join(listed) or "no nodes"


def _groups_fit(needs: ClusterNeeds, node: ClusterNode, held: int) -> bool:
    return node.gpus >= needs.gpus_per_node and node.cpus >= held + needs.group_cpus
