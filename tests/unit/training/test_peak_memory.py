from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from hgpo.training.peak_memory import peak_memory_gib


@pytest.mark.slow
def test_on_a_cpu_it_is_what_the_process_has_had_resident() -> None:
    before = peak_memory_gib("cpu")
    assert 0.05 < before < 1024
    touched = np.ones(int((before + 0.25) * 2**30 / 8))
    assert peak_memory_gib("cpu") >= before + 0.2
    del touched
    assert peak_memory_gib("cpu") >= before + 0.2  # a peak, not what there is now


@pytest.mark.slow
def test_what_the_starting_process_has_is_not_counted() -> None:
    large = np.ones(2**28)  # 2 GiB
    script = "from hgpo.training.peak_memory import peak_memory_gib; print(peak_memory_gib('cpu'))"
    found = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    assert 0.05 < float(found.stdout) < 1.5
    assert large[-1] == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_it_is_what_tensors_have_held() -> None:
    kept = torch.ones(2**28, device="cuda")  # 1 GiB
    assert peak_memory_gib(kept.device) >= 1.0
