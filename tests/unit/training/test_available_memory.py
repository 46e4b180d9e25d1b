from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from hgpo.training.available_memory import available_memory, resident_memory

CPU = torch.device("cpu")
GIB = 2**30
VERSION_1 = "4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n"


def machine(root: Path, groups: str, files: dict[str, str], available_gib: int = 16) -> Path:
    """The files of /proc and /sys that are read, below `root`."""
    written = {
        "proc/meminfo": f"MemTotal: 25165824 kB\nMemAvailable:   {available_gib * 2**20} kB\nHugePages_Total: 0\n",
        "proc/self/cgroup": groups,
        **files,
    }
    for name, text in written.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def group(folder: str, *, limit: str, used: int = 0, cached: int = 0, version: int = 2) -> dict[str, str]:
    names = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        2: ("memory.max", "memory.current", "inactive_file"),
    }[version]
    return {
        f"{folder}/{names[0]}": f"{limit}\n",
        f"{folder}/{names[1]}": f"{used}\n",
        f"{folder}/memory.stat": f"anon 5\n{names[2]} {cached}\n",
    }


def test_without_limits_it_is_what_the_machine_has(tmp_path: Path) -> None:
    assert available_memory(CPU, machine(tmp_path, "0::/\n", {})) == 16 * GIB


@pytest.mark.parametrize(
    ("groups", "folder", "version"),
    [
        ("0::/\n", "sys/fs/cgroup", 2),
        ("0::/user/job\n", "sys/fs/cgroup/user/job", 2),
        ("0::/user/job\n", "sys/fs/cgroup/user", 2),  # an outer group's limit holds, too
        (VERSION_1, "sys/fs/cgroup/memory/docker/abc", 1),
        (VERSION_1, "sys/fs/cgroup/memory", 1),  # inside a container, which sees its own group there
    ],
)
def test_a_limit_of_a_group_counts_less_what_it_uses(tmp_path: Path, groups: str, folder: str, version: int) -> None:
    files = group(folder, limit=str(8 * GIB), used=3 * GIB, cached=GIB, version=version)
    assert available_memory(CPU, machine(tmp_path, groups, files)) == 6 * GIB
    assert available_memory(CPU, machine(tmp_path, groups, files, available_gib=2)) == 2 * GIB


@pytest.mark.parametrize(("limit", "version"), [("max", 2), ("9223372036854771712", 1)])
def test_a_group_without_a_limit_says_nothing(tmp_path: Path, limit: str, version: int) -> None:
    folder = "sys/fs/cgroup" if version == 2 else "sys/fs/cgroup/memory"
    groups = "0::/\n" if version == 2 else "4:memory:/\n"
    files = group(folder, limit=limit, used=GIB, version=version)
    assert available_memory(CPU, machine(tmp_path, groups, files)) == 16 * GIB


def test_a_group_over_its_limit_has_nothing_left(tmp_path: Path) -> None:
    files = group("sys/fs/cgroup", limit="5", used=7)
    assert available_memory(CPU, machine(tmp_path, "0::/\n", files)) == 0


def test_nobody_knows_without_proc(tmp_path: Path) -> None:
    assert available_memory(CPU, tmp_path) is None
    assert resident_memory(tmp_path) == 0


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="Linux")
def test_on_this_machine_it_is_below_what_is_built_in() -> None:
    free = available_memory(CPU)
    assert free is not None
    assert 0 < free < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux")
def test_what_is_resident_grows_with_what_is_touched() -> None:
    before = resident_memory()
    touched = np.ones(2**24)
    assert resident_memory() - before > 0.9 * touched.nbytes


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_it_falls_with_what_is_held() -> None:
    device = torch.device("cuda")
    before = available_memory(device)
    kept = torch.ones(2**28, device=device)
    after = available_memory(device)
    assert before is not None
    assert after is not None
    assert before - after >= kept.nbytes
