"""verl's platform interface on a CPU. Each logical GPU of Ray is one training process."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch

from hgpo.integrations.verl.cpu import patch_version

patch_version()  # every process of a run on CPUs loads this module first, before verl's modules look for vLLM

from verl.plugin.platform import PlatformBase, PlatformRegistry  # noqa: E402

_NO_OPS = (
    "empty_cache",
    "init",
    "ipc_collect",
    "manual_seed",
    "manual_seed_all",
    "reset_peak_memory_stats",
    "set_device",
    "synchronize",
)
_NO_MEMORY = ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved")


def _device_module() -> Any:
    """A replacement of `torch.cuda`: one device that is always available and has no separate memory."""
    module: Any = types.ModuleType("hgpo_cpu_device")
    for name in _NO_OPS:
        setattr(module, name, _no_op)
    for name in _NO_MEMORY:
        setattr(module, name, lambda *_, **__: 0)
    module.is_available = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: torch.device("cpu")
    module.mem_get_info = lambda *_, **__: (0, 1)
    module.get_rng_state = lambda *_, **__: torch.get_rng_state()
    module.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    module.is_bf16_supported = lambda *_, **__: True
    module.get_device_name = lambda *_, **__: "CPU"
    module.memory = types.SimpleNamespace(_set_allocator_settings=lambda settings: None)
    return module


def _no_op(*_: object, **__: object) -> None:
    """Has no meaning on a CPU."""


_DEVICE_MODULE = _device_module()


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):  # type: ignore[misc]
    """verl's questions about its accelerator, answered for a CPU."""

    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "cpu")
    device_module = property(lambda self: _DEVICE_MODULE)
    set_device = synchronize = set_allocator_settings = empty_cache = _no_op
    profiler_start = profiler_stop = cudart = _no_op

    def is_available(self) -> bool:
        """True."""
        return True

    def current_device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    def device_count(self) -> int:
        """1 in each process."""
        return 1

    def manual_seed(self, seed: int) -> None:
        """Seed torch."""
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed torch."""
        torch.manual_seed(seed)

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        """None: no compute capability."""
        return None, None

    def communication_backend_name(self) -> str:
        """The backend of torch.distributed."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """The variable that Ray sets for its logical GPUs."""
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        """Marks nothing."""
        yield

    def ray_resource_name(self) -> str:
        """Ray's resource of which each training process takes one."""
        return "GPU"

    def ray_resource_options(self, num_gpus: float) -> dict[str, float]:
        """Options of an actor with that many logical GPUs."""
        return {"num_gpus": num_gpus}

    def ray_noset_envvars(self) -> list[str]:
        """Variables that keep Ray from hiding devices."""
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        """False: no shared device memory."""
        return False
