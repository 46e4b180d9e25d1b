"""How much memory this process may have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

_UNLIMITED = 2**60  # version 1 of control groups writes a number near 2**63 where there is no limit


def available_memory(device: torch.device, root: Path = Path("/")) -> int | None:
    """Bytes that are free on `device`: of a CPU, what is left of the machine's memory or of a container's share of it.

    Args:
        device: whose memory.
        root: where `proc` and `sys` are mounted.

    Returns:
        None where nobody knows (CPUs without Linux's /proc).
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free
    return min(_free_in_machine(root), *_free_in_groups(root)) if (root / "proc/meminfo").exists() else None


def resident_memory(root: Path = Path("/")) -> int:
    """Bytes of main memory that this process has now; 0 where nobody knows."""
    status = root / "proc/self/status"
    return _fields(status)["VmRSS"] if status.exists() else 0


def _free_in_machine(root: Path) -> int:
    return _fields(root / "proc/meminfo")["MemAvailable"]


def _free_in_groups(root: Path) -> Iterator[int]:
    """What each control group that this process is in has left; version 1 and 2."""
    yield _UNLIMITED
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, limit, used, cache = "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            mount, limit, used, cache = (
                "sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
            )
        else:
            continue
        # The limit may be an outer group's. Inside a container the path may be the host's: its own group is the mount.
        group = root / mount / path.lstrip("/")
        for folder in (group, *group.parents):
            if (folder / limit).exists():
                yield _free_in_group(folder, limit, used, cache)
            if folder == root / mount:
                break


def _free_in_group(folder: Path, limit: str, used: str, cache: str) -> int:
    """What is left of a limit; files that are only cached make way."""
    written = (folder / limit).read_text().strip()
    if written == "max" or int(written) >= _UNLIMITED:
        return _UNLIMITED
    cached = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines()).get(cache, "0")
    return max(0, int(written) - int((folder / used).read_text()) + int(cached))


def _fields(file: Path) -> dict[str, int]:
    """Bytes by name, of a file with lines such as "MemAvailable:   17340596 kB"."""
    found = {}
    for line in file.read_text().splitlines():
        name, _, value = line.partition(":")
        if value.endswith(" kB"):
            found[name] = int(value.split()[0]) * 1024
    return found
