"""An accelerator that is not there: tensors on a device of their own, which the CPU computes.

What runs on it keeps its tensors where a GPU would need them: operands on different devices are an error, as they are
on CUDA, and data comes back only by a copy. It shows nothing of a GPU's arithmetic, memory or speed.

PyTorch's hooks for devices written in Python are experimental: `AVAILABLE` says whether they are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode

NAME = "pretend"
AVAILABLE = hasattr(backend_registration, "_setup_privateuseone_for_python_backend")
_LIBRARY = torch.library.Library("aten", "IMPL")
_BETWEEN_DEVICES = {
    torch.ops.aten._to_copy.default,
    torch.ops.aten.copy_.default,
    torch.ops.aten.index.Tensor,  # CUDA fetches indices from the host, too
    torch.ops.aten.index_put_.default,
}


class PretendTensor(torch.Tensor):
    """Says that it is on the device; `held` is the CPU tensor with its values."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> PretendTensor:
        tensor: PretendTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=f"{NAME}:0",
        )
        tensor.held = held
        return tensor

    def storage(self) -> Any:
        """Who saves weights finds shared ones by where they are stored."""
        return self.held.storage()

    def untyped_storage(self) -> Any:
        return self.held.untyped_storage()

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(operation, args, kwargs or {})


class _Factories(TorchDispatchMode):
    """Operations without operands (`torch.zeros(..., device=...)`) reach a device only through a mode."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(operation, args, kwargs or {})


@contextmanager
def pretend_device() -> Iterator[torch.device]:
    """Within it, the device exists."""
    _register()
    swapped = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)  # tied weights stay tied, as on CUDA
    try:
        with _Factories():
            yield torch.device(f"{NAME}:0")
    finally:
        torch.__future__.set_swap_module_params_on_conversion(swapped)


def _compute(operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    operands = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    pretended = {id(operand.held): operand for operand in operands if isinstance(operand, PretendTensor)}
    device = kwargs.get("device")
    result_is_here = bool(pretended) if device is None else torch.device(device).type == NAME
    if pretended:
        _refuse_host(operation, operands)
    if device is not None:
        kwargs = {**kwargs, "device": torch.device("cpu") if result_is_here else device}
    args, kwargs = pytree.tree_map_only(PretendTensor, lambda tensor: tensor.held, (args, kwargs))
    result = operation(*args, **kwargs)
    if not result_is_here:
        return result
    # What was written in place is the operand itself.
    return pytree.tree_map_only(
        torch.Tensor, lambda held: pretended[id(held)] if id(held) in pretended else PretendTensor(held), result
    )


def _refuse_host(operation: Any, operands: list[torch.Tensor]) -> None:
    """CUDA takes a number from the host (a tensor without dimensions) beside its own tensors, and nothing larger."""
    if operation in _BETWEEN_DEVICES:
        return
    for operand in operands:
        if not isinstance(operand, PretendTensor) and operand.dim():
            raise RuntimeError(f"{operation}: an operand of shape {tuple(operand.shape)} is not on {NAME}")


def _register() -> None:
    if torch._C._get_privateuse1_backend_name() == NAME:
        return

    class Module(backend_registration._DummyBackendModule):
        def get_amp_supported_dtype(self) -> list[torch.dtype]:
            return [torch.bfloat16]

    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=Module())
    # `torch.tensor` and `new_tensor` fill their result below the level at which `_Factories` listens.
    _LIBRARY.impl("empty_strided", _empty_strided, "PrivateUse1")
    _LIBRARY.impl("_copy_from", _copy_from, "PrivateUse1")


def _empty_strided(size: Any, stride: Any, *, dtype: torch.dtype, **_: Any) -> PretendTensor:
    return PretendTensor(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    from_host = source.held if isinstance(source, PretendTensor) else source
    (target.held if isinstance(target, PretendTensor) else target).copy_(from_host)
    return target
