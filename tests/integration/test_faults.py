"""Faults that were found on real files, servers and models: each script under tests/faults exits with 0."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "tests" / "faults").glob("[0-9]*/run.sh"))


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.parent.name)
def test_the_fault_is_gone(script: Path) -> None:
    environment = {**os.environ, "BIN": str(Path(sys.executable).parent)}
    done = subprocess.run(["bash", str(script)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
