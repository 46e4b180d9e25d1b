"""verl's workers on this machine's CPUs, through Ray and TransferQueue."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import ray
import transfer_queue
from omegaconf import OmegaConf
from ray.util.placement_group import remove_placement_group
from torch.multiprocessing import start_processes
from verl.plugin.platform import get_platform, set_platform
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup

from hgpo.integrations.verl.cpu import CpuPlatform

RANKS = 2


def open_queue() -> None:
    """A queue on the connected Ray cluster."""
    sizes = {"total_storage_size": 2000, "num_data_storage_units": 1}
    storage = {"storage_backend": "SimpleStorage", "SimpleStorage": sizes}
    transfer_queue.init(OmegaConf.create({"enable": True, "backend": storage}))


@contextmanager
def small_ray_and_queue() -> Iterator[None]:
    """Ray and a queue without training processes."""
    variables = {"env_vars": {"OMP_NUM_THREADS": "1"}}
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, runtime_env=variables)
    open_queue()
    yield
    transfer_queue.close()
    ray.shutdown()


@contextmanager
def ray_and_queue(modules: str) -> Iterator[None]:
    """Ray and a queue; every worker imports the named modules of `hgpo.integrations.verl`."""
    before = get_platform()
    set_platform(CpuPlatform())
    imported = ",".join(f"hgpo.integrations.verl.{name}" for name in modules.split())
    variables = {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": imported, "TRANSFER_QUEUE_ENABLE": "1"}
    ray.init(
        num_cpus=16,
        num_gpus=RANKS,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {**variables, "OMP_NUM_THREADS": "1"}},
    )
    open_queue()
    yield
    transfer_queue.close()
    ray.shutdown()
    set_platform(before)


@contextmanager
def worker_group(worker: type, config: Any, loss: Any) -> Iterator[Any]:
    """One worker per rank, with its loss."""
    pool = RayResourcePool([RANKS], use_gpu=True, max_colocate_count=1)
    workers = RayWorkerGroup(
        resource_pool=pool,
        ray_cls_with_init=RayClassWithInitArgs(ray.remote(worker), config=config),
        device_name="cpu",
    )
    workers.reset()
    workers.set_loss_fn(loss)
    yield workers
    for one in workers.workers:
        ray.kill(one)
    for group in pool.pgs:
        remove_placement_group(group)


def run_on_ranks(function: Callable[..., None], *arguments: Any) -> None:
    """`function(rank, ranks, *arguments)` in a process for each rank, on verl's platform for CPUs."""
    platform = {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": "hgpo.integrations.verl.cpu"}
    with patch.dict(os.environ, platform):
        start_processes(function, (RANKS, *arguments), nprocs=RANKS, start_method="spawn")
