"""The recipes that come with the package, by name, and what `hgpo train --env NAME` starts from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hgpo.cli.main import main
from hgpo.config import load_config, read_config
from hgpo.config.recipes import recipe_named, recipe_names, starter_recipe, starters

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.mark.parametrize("environment", sorted(starters()))
@pytest.mark.parametrize("model", ["tiny", "some/model"])
def test_the_recipe_is_about_the_environment_and_the_model(environment: str, model: str) -> None:
    config = load_config(starter_recipe(environment, model))
    assert config.environment.name == environment
    assert (config.policy.model == "tiny") == (model == "tiny")
    assert config.warm_start.enabled == (model == "tiny")
    assert "data_dir" not in config.environment.options


def test_every_recipe_has_a_name() -> None:
    assert set(RECIPES.rglob("*.toml")) <= {recipe_named(name) for name in recipe_names()}
    assert {"quickstart", "webshop-tiny", "alfworld-tiny", "smollm2", "smollm2/alfworld"} <= set(recipe_names())
    assert recipe_named("verl/alfworld") == RECIPES / "verl" / "alfworld.toml"
    assert recipe_named("../README") is None


def test_a_name_means_the_recipe_unless_a_file_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2").mkdir()  # a folder is no recipe
    assert read_config(Path("smollm2")) == read_config(RECIPES / "smollm2" / "hgpo.toml")
    Path("quickstart").write_text('[policy]\nmodel = "own/model"\n', encoding="utf-8")
    assert read_config(Path("quickstart")).policy.model == "own/model"


def test_a_recipe_of_ones_own_may_extend_one_by_name(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('extends = "verl/webshop"\n[run]\nname = "mine"\n', encoding="utf-8")
    there = read_config(RECIPES / "verl" / "webshop.toml", ["run.name=mine"])
    assert read_config(mine) == there


@pytest.mark.parametrize("given", ["quikstart", "quickstart.toml", "recipes/quickstart/hgpo.toml"])
def test_an_unknown_name_is_told_what_it_may_mean(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last one is what a page says that was written for a checkout."""
    monkeypatch.chdir(tmp_path)
    assert main(["train", given]) == 2
    assert capsys.readouterr().err == f"hgpo train: no such recipe: {given}; did you mean quickstart?\n"


def test_the_command_takes_it_and_overrides(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--env", "webshop", "--dry-run", "training.updates=7"]) == 0
    shown = capsys.readouterr().out
    assert 'name = "webshop"' in shown
    assert "updates = 7" in shown


def test_a_language_model_is_not_given_the_settings_of_a_tiny_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--env", "alfworld", "--dry-run", "policy.model=some/model", "training.updates=7"]) == 0
    shown = capsys.readouterr().out
    for line in ('model = "some/model"', "learning_rate = 1e-06", "max_response_tokens = 512", "updates = 7"):
        assert line in shown
    assert 'template = "household-reasoning"' in shown


@pytest.mark.parametrize(("model", "rate"), [("tiny", "0.0005"), ("some/model", "1e-06")])
def test_an_own_environment_gets_a_learning_rate_for_the_model(
    model: str, rate: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--env", "corridor:CorridorSuite", "--dry-run", f"policy.model={model}"]) == 0
    training = capsys.readouterr().out.partition("[training]")[2].partition("[critic]")[0]
    assert f"learning_rate = {rate}\n" in training


def test_the_help_lists_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert set(recipe_names()) <= set(capsys.readouterr().out.split())


def test_a_recipe_beside_it_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = str(starter_recipe("alfworld"))
    assert main(["train", recipe, "--env", "webshop", "--dry-run"]) == 2
    assert "--env" in capsys.readouterr().err


@pytest.mark.slow
def test_an_installed_environment_brings_its_recipes(tmp_path: Path) -> None:
    package = tmp_path / "maze"
    metadata = tmp_path / "maze-1.0.dist-info"
    (package / "recipes" / "base").mkdir(parents=True)
    metadata.mkdir()
    (package / "__init__.py").write_text("raise AssertionError", encoding="utf-8")  # must not be imported
    for name in ("maze-tiny", "maze-language-model", "quickstart", "base/parts"):
        (package / "recipes" / f"{name}.toml").write_text("", encoding="utf-8")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: maze\nVersion: 1.0\n", encoding="utf-8")
    points = "[hgpo.envs]\nmaze = maze.suite:maze\nempty-maze = maze.suite:empty\ngone = gone.suite:gone\n"
    (metadata / "entry_points.txt").write_text(points, encoding="utf-8")
    code = (
        "from hgpo.config.recipes import *; "
        "print(starter_recipe('maze').name, starter_recipe('maze', 'some/model').name, "
        "recipe_named('quickstart').name, recipe_named('base/parts'), 'empty-maze' in starters(), 'gone' in starters())"
    )
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["maze-tiny.toml", "maze-language-model.toml", "hgpo.toml", "None", "False", "False"]
