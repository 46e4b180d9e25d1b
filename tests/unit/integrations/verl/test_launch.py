from __future__ import annotations

import pytest

from hgpo.config import Config, ConfigError
from hgpo.integrations.verl.launch import refuse_other_versions, refuse_too_few_gpus


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
