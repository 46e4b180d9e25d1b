"""The shop's recipe from start to end, cut short: no download, every part in its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from hgpo.assemble import train
from hgpo.cli.main import main
from hgpo.config import load_config
from hgpo.evaluation.summary import read_summary
from hgpo.runs.folder import read_metrics
from hgpo.utils.progress import Reporter
from stored_rollouts import read_rollouts

RECIPE = Path(__file__).parents[2] / "recipes" / "webshop-tiny" / "hgpo.toml"
SHORT = (
    "environment.options.train_goals=60",
    "environment.options.valid_seen_goals=5",
    "environment.options.valid_unseen_goals=6",
    "warm_start.demonstrations=40",
    "warm_start.probe_games=4",
    "warm_start.max_updates=4",
    "warm_start.evaluate_every=2",
    "environment.max_steps=6",
    "rollout.tasks_per_update=2",
    "rollout.group_size=2",
    "training.updates=2",
)


@pytest.mark.slow
def test_the_recipe_runs_without_a_download(tmp_path: Path) -> None:
    config = load_config(RECIPE, [f"run.directory={str(tmp_path)!r}", *SHORT])
    run = train(config, Reporter(Console(quiet=True)))
    summary = read_summary(run)
    assert summary["tasks_evaluated"] == 6
    assert json.loads(run.environment.read_text())["nouns"] == "blank"
    assert 0 <= summary["score_before"] <= 1
    assert 0 <= summary["score_after"] <= 1
    assert [row["update"] for row in read_metrics(run)] == [1, 2]
    rows = read_rollouts(run.rollout_file(2)).to_pylist()
    assert len({row["group"] for row in rows}) == 2
    assert all(row["prompt"].startswith("task : ") for row in rows)
    firsts = [row for row in rows if row["step"] == 0]
    assert [row["observation"] for row in firsts] == ["search"] * 4


def test_the_shop_is_trained_on_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "environment.name=webshop", "warm_start.enabled=true", "--dry-run"]) == 0
    assert 'name = "webshop"' in capsys.readouterr().out
