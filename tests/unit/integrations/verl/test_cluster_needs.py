from __future__ import annotations

import pytest

from hgpo.integrations.verl.cluster_needs import (
    CPUS_PER_RANK,
    ClusterNeeds,
    ClusterNode,
    cpus_to_start_with,
    described,
    missing,
    needs_of,
    storage_units,
)


def nodes(*sizes: tuple[int, int]) -> list[ClusterNode]:
    return [ClusterNode(f"10.0.0.{place}", cpus, gpus) for place, (cpus, gpus) in enumerate(sizes)]


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
    assert storage_units(nodes, gpus) == units
    assert ClusterNeeds(nodes, gpus, units).cpus == cpus


def test_eight_storage_units_are_what_hung_on_small_machines() -> None:
    eight = [ClusterNeeds(1, gpus, 8) for gpus in (1, 2, 4)]
    assert [needs.queue_cpus + needs.group_cpus for needs in eight] == [12, 15, 21]
    assert missing(eight[0], nodes((12, 1))) is not None
    assert missing(eight[0], nodes((13, 1))) is None


def test_a_cluster_that_has_just_enough() -> None:
    needs = ClusterNeeds(1, 1, 1)
    assert missing(needs, nodes((needs.cpus, 1))) is None
    assert missing(needs, nodes((needs.cpus - 1, 1))) == (
        "1 node(s) are needed with 1 GPU(s) and 6 CPUs each (3 a GPU for verl's placement group, 2 for TransferQueue, "
        "1 free to start the rest), and the cluster has 10.0.0.0: 5 CPUs, 1 GPU"
    )


def test_a_group_is_not_spread_over_nodes() -> None:
    assert "4 GPU(s)" in str(missing(ClusterNeeds(1, 4, 2), nodes((64, 2), (64, 2))))
    assert missing(ClusterNeeds(2, 2, 2), nodes((64, 2), (64, 2))) is None
    assert missing(ClusterNeeds(2, 4, 2), nodes((64, 8))) is not None


def test_wherever_the_controller_goes_there_is_room() -> None:
    needs = ClusterNeeds(2, 2, 2)  # on each of two nodes: group 6, unit 1, free 1; on one of them the controller
    assert missing(needs, nodes((9, 2), (9, 2))) is None
    assert missing(needs, nodes((9, 2), (8, 2))) is not None
    assert missing(needs, nodes((8, 2), (8, 2), (8, 2))) is None  # one to spare


def test_a_head_node_without_cpus_holds_up_the_queue() -> None:
    assert missing(ClusterNeeds(1, 1, 2), nodes((0, 0), (16, 1))) == (
        "TransferQueue puts a storage unit on every node in turn, and 10.0.0.0 has no CPU for one"
    )


def test_nothing_is_there() -> None:
    assert "no nodes" in str(missing(ClusterNeeds(1, 1, 1), []))


def test_ray_is_started_with_what_is_asked_for() -> None:
    assert cpus_to_start_with(ClusterNeeds(1, 1, 1), cores=2) == 6
    assert cpus_to_start_with(ClusterNeeds(1, 1, 1), cores=64) == 64


def test_it_is_read_from_verls_configuration() -> None:
    storage = {"num_data_storage_units": 2, "total_storage_size": 9}
    tree = {
        "trainer": {"nnodes": 1, "n_gpus_per_node": 4},
        "transfer_queue": {"backend": {"SimpleStorage": storage}},
    }
    assert needs_of(tree) == ClusterNeeds(1, 4, 2)


def test_nodes_are_described() -> None:
    assert described(nodes((4, 1), (8, 2))) == "10.0.0.0: 4 CPUs, 1 GPU; 10.0.0.1: 8 CPUs, 2 GPUs"


def test_verl_holds_as_many_cpus_for_a_rank_as_is_reckoned() -> None:
    pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")
    from verl.single_controller.ray.base import ResourcePoolManager

    assert ResourcePoolManager(resource_pool_spec={}, mapping={}).max_colocate_count == CPUS_PER_RANK
