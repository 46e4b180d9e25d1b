"""Installs the package in tests/outside, as a user would install a package of somebody else's."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def install_outside_parts(target: Path) -> Path:
    """Install it into `target`, which has to be on Python's path to be found; returns `target`."""
    source = target.with_name(f"{target.name}-source")
    shutil.copytree(Path(__file__).parent / "outside", source)  # building writes beside what is built
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-build-isolation", "--no-index", "--target", str(target), str(source)]
    subprocess.run(command, check=True)
    return target
