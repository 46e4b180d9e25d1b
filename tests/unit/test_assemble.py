from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from corridor import CorridorSuite
from hgpo.assemble import train, training_suite
from hgpo.config import ConfigError, load_config
from hgpo.envs import register, registry
from hgpo.utils.progress import Reporter

RECIPE = Path(__file__).parents[1] / "corridor.toml"


@dataclass(frozen=True)
class Unsolved(CorridorSuite):
    """Corridors that nobody shows how to walk."""

    def expert(self) -> None:  # type: ignore[override]
        return None


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("evaluation.split=vaild", "evaluation.split = 'vaild' is not a split of .*: train, held_out"),
        ("evaluation.games=999", "evaluation.games = 999, but split 'held_out' has 3 tasks"),
        ("warm_start.demonstrations=999", "3 tasks of split 'train' are too few for 999 demonstrations and"),
        ("environment.name=unsolved", r"has no expert\(\)"),
    ],
)
def test_what_the_tasks_do_not_allow_is_refused_before_anything_is_written(
    override: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry.SUITES, "_parts", {})
    register("unsolved", Unsolved)
    config = load_config(RECIPE, [f"run.directory={str(tmp_path / 'runs')!r}", override])
    with pytest.raises(ConfigError, match=message):
        train(config, Reporter(Console(quiet=True)))
    assert not (tmp_path / "runs").exists()


def test_a_recipe_that_fits_its_tasks_gets_them() -> None:
    config = load_config(RECIPE)
    suite = training_suite(config.environment, config.evaluation, config.warm_start)
    assert len(suite.tasks("train")) == 3
