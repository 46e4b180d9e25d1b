from __future__ import annotations

from typing import Any

import pytest

from hgpo.config import Config, ConfigError
from hgpo.integrations.verl.cluster_check import refuse_other_versions, refuse_too_few_gpus, said
from hgpo.integrations.verl.versions import Finding


def config(nodes: int, gpus: int) -> Config:
    return Config.model_validate({"policy": {"model": "m"}, "verl": {"nodes": nodes, "gpus_per_node": gpus}})


@pytest.mark.parametrize(("cluster", "nodes", "gpus"), [([2], 1, 2), ([8, 0, 8], 2, 8), ([8, 4], 1, 5)])
def test_enough_gpus(cluster: list[int], nodes: int, gpus: int) -> None:
    refuse_too_few_gpus(cluster, config(nodes, gpus))


@pytest.mark.parametrize(("cluster", "nodes", "gpus"), [([1], 1, 2), ([], 1, 1), ([4, 4], 1, 8), ([8], 2, 4)])
def test_too_few_gpus(cluster: list[int], nodes: int, gpus: int) -> None:
    with pytest.raises(ConfigError, match=rf"{nodes} node\(s\) with {gpus} GPU\(s\) each.*policy.device=cpu"):
        refuse_too_few_gpus(cluster, config(nodes, gpus))


def test_every_node_has_the_same_versions() -> None:
    here: dict[str, str | None] = {"hgpo": "0.1.0", "verl": "0.9.1"}
    refuse_other_versions("10.0.0.2", dict(here), here)
    with pytest.raises(ConfigError, match=r"node 10\.0\.0\.2 has hgpo \(not installed\), this machine 0\.1\.0"):
        refuse_other_versions("10.0.0.2", {"verl": "0.9.1"}, here)
    with pytest.raises(ConfigError, match=r"has verl 0\.9\.2, this machine 0\.9\.1"):
        refuse_other_versions("10.0.0.2", {"hgpo": "0.1.0", "verl": "0.9.2"}, here)


def test_a_finding_is_a_line() -> None:
    assert said(Finding("vllm", "missing", "install it")) == "vllm: missing: install it"
    assert said(Finding("vllm", "0.24.0")) == "vllm: 0.24.0"


@pytest.mark.slow
def test_a_cluster_that_would_hang_is_refused_with_the_numbers() -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'hgpo[verl]'")
    from hgpo.integrations.verl.cluster_check import check_cluster

    tree: dict[str, Any] = {
        "trainer": {"nnodes": 1, "n_gpus_per_node": 2},
        "transfer_queue": {"backend": {"SimpleStorage": {"num_data_storage_units": 1}}},
    }
    on_cpu = Config.model_validate({"policy": {"model": "m", "device": "cpu"}, "verl": {"gpus_per_node": 2}})
    said: list[str] = []
    ray.init(num_cpus=8, num_gpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with pytest.raises(ConfigError, match=r"would wait for ever: .* 9 CPUs each .* 8 CPUs, 2 GPUs"):
            check_cluster(on_cpu, tree, said.append)
        tree["trainer"]["n_gpus_per_node"] = 1
        check_cluster(on_cpu, tree, said.append)
    finally:
        ray.shutdown()
    assert said == []
