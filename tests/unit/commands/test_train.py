from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from hgpo.cli.main import main
from hgpo.config import load_config
from hgpo.runs.folder import create_run_directory

RECIPE = Path(__file__).parents[3] / "recipes" / "quickstart" / "hgpo.toml"


def test_a_first_override_is_taken_as_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    """Not as a path, which would lose a slash."""
    assert main(["train", "verl.ray_address=ray://h:1", "warm_start.enabled=true", "--dry-run"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["verl"]["ray_address"] == "ray://h:1"


def test_a_dry_run_of_a_recipe_that_extends_others_shows_it_whole(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = RECIPE.parents[1] / "verl" / "webshop.toml"
    assert main(["train", str(recipe), "training.updates=7", "--dry-run"]) == 0
    shown = tomllib.loads(capsys.readouterr().out)
    assert "extends" not in shown
    assert (shown["training"]["updates"], shown["training"]["learning_rate"]) == (7, 1e-6)
    options = shown["advantage"]["options"]
    assert (options["preset"], options["mode"]) == ("verl-agent", "mean_norm")


def test_a_dry_run_of_a_run_to_resume_shows_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = create_run_directory(load_config(RECIPE, [f"run.directory={tmp_path}", "run.name=mine"]))
    before = sorted(tmp_path.rglob("*"))
    assert main(["train", "--resume", str(run.path), "--dry-run"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["run"]["name"] == "mine"
    assert sorted(tmp_path.rglob("*")) == before
