"""verl's part of a vLLM worker, for vLLM's build for CPUs: how new weights come in.

On a CPU vLLM multiplies by packed copies of the weights and may drop what it packed, so weights cannot be written over
those of the model as on a GPU; its own `reload_weights` makes the copies anew. And what verl's receiver hands over
without copying is memory that it shares with the training process and takes back at the end.
"""

from __future__ import annotations

from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from hgpo.policies.vllm import pack_tied_anew


class CpuWorkerExtension(vLLMColocateWorkerExtension):  # type: ignore[misc]
    """verl's own, less what needs a device with memory of its own."""

    def update_weights_from_ipc(
        self, peft_config: dict[str, Any] | None = None, base_sync_done: bool = False, use_shm: bool = False
    ) -> None:
        """Take all weights. Adapters are refused when a run starts (`mapping.check_for_verl`)."""
        device = torch.device("cpu")
        received: list[tuple[str, torch.Tensor]] = []

        def take(weights: list[tuple[str, torch.Tensor]], is_last: bool) -> None:
            received.extend((name, weight.clone()) for name, weight in weights)

        receiver = BucketedWeightReceiver(zmq_handle=self._get_zmq_handle(), device=device, use_shm=use_shm)
        receiver.receive_weights(on_bucket_received=take)
        self.reload_weights(weights_iterator=iter(received))
        pack_tied_anew(self.model_runner.model)
