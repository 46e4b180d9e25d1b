"""verl's platform interface on a CPU. Ray hands out logical GPUs as places for training processes."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry

_NOTHING = (
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
    """Stands in for `torch.cuda`: one device that is always there and has no memory of its own."""
    module: Any = types.ModuleType("hgpo_cpu_device")
    for name in _NOTHING:
        setattr(module, name, lambda *_, **__: None)
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


_DEVICE_MODULE = _device_module()


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):  # type: ignore[misc]
    """Every question verl asks about its accelerator, answered for a CPU."""

    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "cpu")
    device_module = property(lambda self: _DEVICE_MODULE)

    def is_available(self) -> bool:
        """There is always a CPU."""
        return True

    def current_device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    def device_count(self) -> int:
        """One a process."""
        return 1

    def set_device(self, device_index: int) -> None:
        """Nothing to choose."""

    def synchronize(self, device_index: int | None = None) -> None:
        """Nothing runs ahead."""

    def manual_seed(self, seed: int) -> None:
        """Seed torch."""
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed torch."""
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """There is no allocator to set."""

    def empty_cache(self) -> None:
        """There is no cache."""

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        """None: no compute capability."""
        return None, None

    def communication_backend_name(self) -> str:
        """Gloo."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """The variable Ray sets for its logical GPUs."""
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        """No ranges."""
        yield

    def profiler_start(self) -> None:
        """No profiler."""

    def profiler_stop(self) -> None:
        """No profiler."""

    def ray_resource_name(self) -> str:
        """Ray's own word for a training process's place."""
        return "GPU"

    def ray_resource_options(self, num_gpus: float) -> dict[str, float]:
        """Options of an actor that takes so many places."""
        return {"num_gpus": num_gpus}

    def ray_noset_envvars(self) -> list[str]:
        """Variables that keep Ray from hiding devices."""
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        """No shared device memory."""
        return False

    def cudart(self) -> None:
        """None."""
        return
