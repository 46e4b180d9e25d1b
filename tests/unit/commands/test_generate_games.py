"""`hgpo generate-games` as a person runs it: what its defaults are good for, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from hgpo.cli.main import main
from hgpo.config import load_config
from hgpo.envs.alfworld.generation.splits import DEFAULT_GAMES

FEW = ["--train", "6", "--valid-seen", "0", "--valid-unseen", "0"]
QUICKSTART = Path(__file__).parents[3] / "recipes" / "quickstart" / "hgpo.toml"


def test_the_default_games_are_enough_for_the_quickstarts_warm_start() -> None:
    settings = load_config(QUICKSTART).warm_start
    assert DEFAULT_GAMES["train"] >= settings.demonstrations + settings.probe_games


def test_games_that_are_there_are_kept_unless_forced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "games"
    assert main(["generate-games", str(folder), *FEW]) == 0
    before = contents(folder)
    assert main(["generate-games", str(folder), *FEW, "--seed", "1"]) == 2
    assert "exists and is not empty; choose another folder, or replace the generated games in it (--force" in (
        capsys.readouterr().err
    )
    assert contents(folder) == before
    assert main(["generate-games", str(folder), *FEW, "--seed", "1", "--force"]) == 0
    assert contents(folder) != before


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_file_in_the_folders_place_is_called_a_file(
    force: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "games").write_text("mine")
    assert main(["generate-games", str(tmp_path / "games"), *FEW, *force]) == 2
    assert "games is a file; the games go into a folder" in capsys.readouterr().err
    assert (tmp_path / "games").read_text() == "mine"


@pytest.mark.parametrize("option", ["--seed", "--train", "--valid-seen"])
def test_a_negative_number_names_its_option(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate-games", str(tmp_path / "games"), *FEW, option, "-1"]) == 2
    assert f"{option} -1: give a whole number, 0 or more" in capsys.readouterr().err
