from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hgpo.training.allocator import return_large_blocks

LEAVES_HOLES = """
import sys
import torch
from hgpo.training.allocator import return_large_blocks
from hgpo.training.memory_plan import resident_memory

assert sys.argv[1] == "keep" or return_large_blocks()
torch.ones(2**23 - 1024)  # 32 MiB: from here on blocks up to this size are kept
blocks = [torch.ones(2**20) for _ in range(100)]
full = resident_memory()
del blocks[:-1]  # the last one lies above all holes
print(full - resident_memory())
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read where Linux writes it")
def test_holes_are_returned() -> None:
    def returned(how: str) -> int:
        command = [sys.executable, "-c", LEAVES_HOLES, how]
        return int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)

    if not return_large_blocks():
        pytest.skip("the C library is not glibc")
    assert returned("return") > 350 * 2**20 > 100 * 2**20 > returned("keep")
