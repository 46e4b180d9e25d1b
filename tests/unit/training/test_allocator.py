from __future__ import annotations

import platform
import subprocess
import sys

import pytest

LEAVES_HOLES = """
import torch
from hgpo.training.log_probs import return_freed_memory

def resident_memory():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))

torch.ones(2**23 - 1024)  # 32 MiB: from here on blocks up to this size are kept
blocks = [torch.ones(2**20) for _ in range(100)]
full = resident_memory()
del blocks[:-1]  # the last one lies above all holes
kept = full - resident_memory()
return_freed_memory()
print(kept, full - resident_memory())
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_holes_are_returned() -> None:
    command = [sys.executable, "-c", LEAVES_HOLES]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    kept, returned = map(int, output.split())
    assert returned > 350 * 2**20 > 100 * 2**20 > kept
