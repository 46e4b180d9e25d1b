"""verl's extension of a vLLM worker, which receives new weights, for vLLM's CPU build. Needs verl and vLLM.

On a CPU, vLLM computes with packed copies of the weights, so that writing to the model's weights, as on a GPU, has no
effect; vLLM's `reload_weights` packs them again. verl's receiver passes tensors in memory that it shares with the
training process and frees at the end, so they are copied.
"""

from __future__ import annotations

from typing import Any

import torch

from hgpo.integrations.verl.verl_api import BucketedWeightReceiver, vLLMColocateWorkerExtension
from hgpo.policies.vllm import pack_tied_anew


class CpuWorkerExtension(vLLMColocateWorkerExtension):  # type: ignore[misc]
    """verl's extension without the parts that need an accelerator."""

    def update_weights_from_ipc(
        self, peft_config: dict[str, Any] | None = None, base_sync_done: bool = False, use_shm: bool = False
    ) -> None:
        """Receive all weights. Adapters are rejected when a run starts (`config.check_for_verl`)."""
        received: list[tuple[str, torch.Tensor]] = []

        def take(weights: list[tuple[str, torch.Tensor]], is_last: bool) -> None:
            received.extend((name, weight.clone()) for name, weight in weights)

        device = torch.device("cpu")
        receiver = BucketedWeightReceiver(zmq_handle=self._get_zmq_handle(), device=device, use_shm=use_shm)
        receiver.receive_weights(on_bucket_received=take)
        self.reload_weights(weights_iterator=iter(received))
        pack_tied_anew(self.model_runner.model)
