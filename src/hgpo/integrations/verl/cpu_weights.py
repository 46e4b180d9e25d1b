"""Sends weights from training processes to separate rollout servers on CPUs, through a key-value store.

    rank 0 of training: store <- weights        process of a server: store -> weights -> server

verl's own checkpoint engines, such as NCCL, need accelerators or further packages. For tests and laptops. Needs verl.
"""

from __future__ import annotations

import asyncio
import io
import json
import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta
from typing import Any

import ray
import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from hgpo.integrations.verl.mode import CPU_WEIGHTS
from hgpo.integrations.verl.verl_api import CheckpointEngine, CheckpointEngineRegistry

_TIMEOUT = timedelta(minutes=30)
_NAMES = "names"  # of the weights; written last

Address = tuple[str, int]


@CheckpointEngineRegistry.register(CPU_WEIGHTS)
class StoreCheckpointEngine(CheckpointEngine):  # type: ignore[misc]
    """Opens a new store for each synchronisation, in the training process of rank 0."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self._is_master = is_master
        self._store: TCPStore | None = None

    def prepare(self) -> Address | None:
        """Open the store in the process of rank 0, and return its address; elsewhere return None."""
        if not self._is_master:
            return None
        listener = socket.create_server((ray.util.get_node_ip_address(), 0))  # a store's own listens on all interfaces
        host, port = listener.getsockname()
        self._store = TCPStore(
            host,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=_TIMEOUT,
            master_listen_fd=listener.detach(),  # the store closes it
        )
        return host, port

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: Sequence[Address | None]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """The store's address for every process that receives weights, and None for every training process."""
        [address] = [found for found in metadata if found is not None]
        return {"address": [None] * actor_wg_world_size}, {"address": [address] * rollout_world_size}

    def init_process_group(self, address: Address | None) -> None:
        """Connect to the store."""
        if address is not None:
            self._store = TCPStore(*address, is_master=False, timeout=_TIMEOUT)

    def finalize(self) -> None:
        """Close the store."""
        self._store = None

    async def send_weights(self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None) -> None:
        """Every rank iterates over all tensors, since gathering a sharded one needs all ranks."""
        names = []
        for name, tensor in weights:
            if self._store is not None:
                buffer = io.BytesIO()
                torch.save(tensor.detach().cpu().clone(), buffer)
                await asyncio.to_thread(self._store.set, _key(name), buffer.getvalue())  # type: ignore[arg-type]
                names.append(name)
        if self._store is not None:
            self._store.set(_NAMES, json.dumps(names))

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """The weights; waits until all of them have been sent."""
        assert self._store is not None, "`init_process_group` connects to the store"
        for name in json.loads(await asyncio.to_thread(self._store.get, _NAMES)):
            stored = await asyncio.to_thread(self._store.get, _key(name))
            yield name, torch.load(io.BytesIO(stored), weights_only=True)


def _key(name: str) -> str:
    return f"weights/{name}"
