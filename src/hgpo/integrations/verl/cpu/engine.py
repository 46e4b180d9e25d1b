"""FSDP2 on a CPU with verl's own engine, after two changes to verl 0.9.1 that it needs there.

1. `initialize_global_process_group_ray` builds the backend string "cpu:gloo,<device>:<backend>", in which a CPU
   platform names "cpu" twice; the backend is given outright instead.
2. The forward-only reference model is offloaded with pinned memory, which needs an accelerator; it is not pinned here.
"""

from __future__ import annotations

import functools
from typing import Any

import verl.utils.distributed as distributed
import verl.workers.engine.fsdp.transformer_impl as fsdp
import verl.workers.engine_workers as engine_workers
from verl.workers.engine import EngineRegistry
from verl.workers.rollout import base as rollout_base
from verl.workers.rollout.replica import RolloutReplicaRegistry

from hgpo.integrations.verl.config import CPU_ROLLOUT

_CpuOffloadPolicy = fsdp.CPUOffloadPolicy

engine_workers.initialize_global_process_group_ray = functools.partial(
    distributed.initialize_global_process_group_ray, backend="gloo"
)
fsdp.CPUOffloadPolicy = lambda pin_memory=True: _CpuOffloadPolicy(pin_memory=False)


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class CpuEngine(fsdp.FSDPEngineWithLMHead):  # type: ignore[misc]
    """verl's engine, known for one more device."""


def _replica() -> Any:
    from hgpo.integrations.verl.cpu.rollout import TransformersReplica

    return TransformersReplica


rollout_base._ROLLOUT_REGISTRY[(CPU_ROLLOUT, "async")] = "hgpo.integrations.verl.cpu.rollout.WeightSender"
RolloutReplicaRegistry.register(CPU_ROLLOUT, _replica)
