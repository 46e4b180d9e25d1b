from __future__ import annotations

import io
import re
import shlex
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from hgpo.assemble import prepare_start, training_suite
from hgpo.cli.main import main
from hgpo.config import load_config
from hgpo.runs.folder import create_run_directory
from hgpo.utils.progress import Reporter, update_line

CORRIDOR = Path(__file__).parents[2] / "corridor.toml"
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


def test_the_help_explains_every_figure_of_a_progress_line(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"update": 3, "success": 0.5, "reward": 5.0, "kl": 0.1, "clip_fraction": 0.0, "tokens_per_second": 9.0}
    line = update_line({**row, "group_size_0": 12.0}, 70, 130.0)
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    explained = capsys.readouterr().out.partition("progress lines")[2].partition("recipes that come")[0]
    figures = re.findall(r"^  (\S+)", explained, re.MULTILINE)
    assert figures == [word for word in line.replace("reward", " reward ").split() if word in figures]
    assert re.findall(r"[A-Za-z/]{4,}|KL", line.removesuffix("2 min left")) == figures


def test_a_warm_start_says_why_it_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hgpo.training.start_policy.by_trajectory", lambda steps: [[SimpleNamespace(won=True)]])
    console = Console(record=True, file=io.StringIO(), width=300)
    window = ["target_low=0.01", "target_high=0.02", "evaluate_every=6", "max_updates=9"]
    settings = [f"run.directory={str(tmp_path)!r}", *(f"warm_start.{setting}" for setting in window)]
    config = load_config(CORRIDOR, settings)
    suite = training_suite(config.environment, config.evaluation, config.warm_start)
    prepare_start(create_run_directory(config), config, suite, Reporter(console))
    assert console.export_text().splitlines()[2:] == [
        "  warm start: success 100.0 % on 1 task without demonstrations",
        "  100.0 % exceeds warm_start.target_high = 2.0 %, which leaves too little to learn: "
        "back to supervised update 0; next evaluation after 3 updates",
        "  warm start: success 100.0 % on 1 task without demonstrations",
        "  100.0 % exceeds warm_start.target_high = 2.0 %, which leaves too little to learn: "
        "back to supervised update 0; next evaluation after 1 update",
        "  the warm start ended (budget: warm_start.max_updates = 9 are used up) with the model of supervised "
        "update 3, at 100.0 %, outside its target of 1.0 % to 2.0 %",
    ]


@pytest.mark.slow
def test_a_training_ends_with_the_commands_for_its_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "my runs" / "corridor"
    words = [str(CORRIDOR), f"run.directory={str(run.parent)!r}", "warm_start.max_updates=1", "training.updates=1"]
    assert main(["train", *words, "rollout.store_every=1"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"Next: hgpo inspect '{run}'    hgpo eval '{run}' --seeds 1 2 3"
    for command in last.removeprefix("Next: ").split("    "):
        assert main(shlex.split(command)[1:]) == 0
    assert (run / "report.html").exists()


def test_a_dry_run_of_a_run_to_resume_shows_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = create_run_directory(load_config(RECIPE, [f"run.directory={tmp_path}", "run.name=mine"]))
    before = sorted(tmp_path.rglob("*"))
    assert main(["train", "--resume", str(run.path), "--dry-run"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["run"]["name"] == "mine"
    assert sorted(tmp_path.rglob("*")) == before


def test_the_files_of_a_run_made_elsewhere_are_not_trusted_because_its_settings_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["run.engine=verl", "warm_start.enabled=true", f"run.directory={tmp_path}", "run.name=theirs"]
    run = create_run_directory(load_config(None, settings)).path
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another home"))
    assert main(["train", *settings, "--continue"]) == 2
    assert "pickle files that can run code" in capsys.readouterr().err
    (tmp_path / "elsewhere").mkdir()
    (run / "verl").symlink_to(tmp_path / "elsewhere")
    assert main(["train", *settings, "--continue"]) == 2
    assert "links in place of folders" in capsys.readouterr().err
