"""docs/environments.md as a reader uses it: its blocks pasted into files, and the command beside them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hgpo.config import load_config

PAGE = Path(__file__).parents[2] / "docs" / "environments.md"


def block(language: str) -> str:
    """The page's first block of code in a language."""
    return re.findall(rf"``{language}\n(.*?)``", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the page tells its reader to make."""
    (tmp_path / "corridor.py").write_text(block("python"), encoding="utf-8")
    (tmp_path / "recipe.toml").write_text(block("toml"), encoding="utf-8")
    return tmp_path


def python(folder: Path, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.slow
def test_the_pages_recipe_asks_for_no_more_tasks_than_there_are(folder: Path) -> None:
    config = load_config(folder / "recipe.toml")
    code = f"import corridor; print(len(corridor.CorridorSuite(**{config.environment.options}).tasks('train')))"
    assert int(python(folder, "-c", code)) >= config.warm_start.demonstrations + config.warm_start.probe_games


@pytest.mark.slow
def test_the_pages_estimator(folder: Path) -> None:
    """In a process of its own: the page registers an estimator."""
    python(folder, "-m", "doctest", str(PAGE))


@pytest.mark.slow
def test_the_pages_recipe_trains(folder: Path) -> None:
    overrides = ["training.updates=2", "warm_start.max_updates=10", "evaluation.seeds=[1]"]
    code = "import sys; from hgpo.cli.main import main; sys.exit(main())"
    shown = python(folder, "-c", code, "train", "recipe.toml", *overrides)
    assert "6 held-out tasks of held_out" in " ".join(shown.split())
    assert (folder / "runs" / "corridor" / "summary.json").exists()
