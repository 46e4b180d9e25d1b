"""What `hgpo train --env NAME` starts from."""

from __future__ import annotations

from pathlib import Path

import pytest

from hgpo.cli import main
from hgpo.config import load_config
from hgpo.starters import STARTERS, starter_recipe


@pytest.mark.parametrize("environment", STARTERS)
def test_the_recipe_is_about_the_environment(environment: str) -> None:
    config = load_config(starter_recipe(environment))
    assert config.environment.name == environment
    assert config.policy.model == "tiny"
    assert "data_dir" not in config.environment.options


@pytest.mark.parametrize("environment", STARTERS)
def test_the_recipe_needs_no_other_file(environment: str, tmp_path: Path) -> None:
    """It is installed alone, so it extends nothing."""
    alone = tmp_path / f"{environment}.toml"
    alone.write_bytes(starter_recipe(environment).read_bytes())
    assert load_config(alone) == load_config(starter_recipe(environment))


def test_the_command_takes_it_and_overrides(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--env", "webshop", "--dry-run", "training.updates=7"]) == 0
    shown = capsys.readouterr().out
    assert 'name = "webshop"' in shown
    assert "updates = 7" in shown


def test_a_recipe_beside_it_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = str(starter_recipe("alfworld"))
    assert main(["train", recipe, "--env", "webshop", "--dry-run"]) == 2
    assert "--env" in capsys.readouterr().err
