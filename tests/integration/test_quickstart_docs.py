"""docs/quickstart.md as a reader follows it: its files, and its commands in their order."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from pathlib import Path

import pytest

from hgpo.cli.main import main
from hgpo.config import load_config

PAGE = (Path(__file__).parents[2] / "docs" / "quickstart.md").read_text(encoding="utf-8")
FEWER = ("training.updates=2", "warm_start.max_updates=20", "warm_start.demonstrations=8", "evaluation.seeds=[1]")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "letter.py").write_text(blocks("python")[0], encoding="utf-8")
    (tmp_path / "recipe.toml").write_text(blocks("toml")[0], encoding="utf-8")
    return tmp_path


def test_the_recipe_asks_for_no_more_than_the_game_has(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    config = load_config(folder / "recipe.toml")
    monkeypatch.syspath_prepend(str(folder))
    suite = importlib.import_module("letter").LetterSuite()
    monkeypatch.delitem(sys.modules, "letter")
    assert len(suite.tasks("train")) >= config.warm_start.demonstrations + config.warm_start.probe_games
    game, expert = suite.tasks("held_out")[0].make(), suite.expert()
    observation, info = game.reset()
    expert.reset(observation, info)
    ended = False
    while not ended:
        observation, reward, ended, _, info = game.step(expert.act(observation, info))
    assert (reward, info["won"]) == (1.0, True)


@pytest.mark.slow
def test_every_command_does_what_the_page_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])  # a command appends the working folder
    commands = [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]
    assert len(commands) >= 8
    shown = {}
    for program, *words in commands:
        assert program == "hgpo"
        trains = words[:2] == ["train", "recipe.toml"]
        assert main([*words, *(FEWER if trains else ())]) == 0
        shown[" ".join(words)] = capsys.readouterr().out
    monkeypatch.delitem(sys.modules, "letter")
    assert (folder / "runs/letter/report.html").exists()
    assert (folder / "runs/letter-grpo/summary.json").exists()
    assert (folder / "gigpo.parquet").exists()
    assert "letter-grpo" in shown["compare runs/letter runs/letter-grpo"]
