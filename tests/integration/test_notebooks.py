"""The notebooks run from top to bottom, each in a process and a folder of its own, and are kept without outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def cells(notebook: Path) -> list[dict[str, Any]]:
    return list(json.loads(notebook.read_text(encoding="utf-8"))["cells"])


def test_there_are_two() -> None:
    assert [notebook.stem for notebook in NOTEBOOKS] == ["estimators", "looking-into-a-run"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_kept_without_outputs(notebook: Path) -> None:
    assert notebook.stat().st_size < 20_000
    for cell in cells(notebook):
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_from_top_to_bottom(notebook: Path, tmp_path: Path) -> None:
    code = "\n\n".join("".join(cell["source"]) for cell in cells(notebook) if cell["cell_type"] == "code")
    (tmp_path / "notebook.py").write_text(code, encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "TMPDIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "notebook.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
