"""The command line as a person meets it: every command's help, its examples, and one clear line for each mistake."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from hgpo.cli import main as cli
from hgpo.cli.main import COMMANDS, _command_module, _message_of, main

RUN = Path(__file__).parents[1] / "data" / "run"


def test_help_of_every_verb_shows_examples_that_parse(capsys):
    for command in COMMANDS:
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        assert stop.value.code == 0
        shown = capsys.readouterr().out
        assert re.search(r"examples?:", shown), command
        for line in re.findall(rf"^  hgpo ({command}.*)$", shown, re.MULTILINE):
            words = shlex.split(re.split(r"\s{3,}", line)[0])
            assert parses(words), words


def parses(words):
    import argparse

    parser = argparse.ArgumentParser(exit_on_error=False)
    _command_module(words[0]).configure(parser)
    return parser.parse_intermixed_args(words[1:])


def test_options_may_stand_between_settings(capsys):
    recipe = Path(__file__).parents[2] / "recipes" / "quickstart" / "hgpo.toml"
    assert (
        main(["train", str(recipe), "run.name=mixed", "--engine", "built-in", "--dry-run", "training.updates=3"]) == 0
    )
    shown = tomllib.loads(capsys.readouterr().out)
    assert (shown["run"]["name"], shown["training"]["updates"]) == ("mixed", 3)


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert re.fullmatch(r"hgpo \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_the_module_is_the_command(tmp_path):
    shown = subprocess.run([sys.executable, "-m", "hgpo", "--version"], capture_output=True, text=True, cwd=tmp_path)
    assert (shown.returncode, shown.stdout.split()[0]) == (0, "hgpo")


def test_without_a_verb_help_is_shown(capsys):
    assert main([]) == 2
    assert "generate-games" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train"], "name a recipe"),
        (["trian"], "no such command: trian; did you mean train? `hgpo --help`"),
        (["zzz"], "no such command: zzz; `hgpo --help`"),
        (
            ["train", "quickstart", "policy.lora.rnk=8"],
            "policy.lora.rnk: unknown setting; did you mean policy.lora.rank?",
        ),
        (["train", "none.toml"], "no such recipe: none.toml; `hgpo train --help` lists"),
        (["train", "x.toml", "--resume", "runs/x"], "omit the recipe"),
        (["train", "--resume", "no_such_run"], "is not a run directory"),
        (["eval", "no_such_run"], "is not a run directory"),
        (["advantages", "no_such_file.parquet"], "no such file or folder"),
        (["audit", "no_such_file.json"], "hgpo audit: no_such_file.json: No such file or directory"),
        (["play", "nowhere"], "unknown environment 'nowhere'"),
        (["play", "corridor:CorridorSuite", "--game", "9"], "the split has games 0 to 2"),
        (["generate-games", ".", "--train", "1"], "exists"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(words, message, capsys, monkeypatch):
    monkeypatch.delenv("HGPO_DEBUG", raising=False)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_settings_are_listed_and_a_dry_run_prints_them(capsys):
    assert main(["train", "--settings"]) == 0
    assert "warm_start.noise" in capsys.readouterr().out
    assert main(["train", "warm_start.enabled=true", "--dry-run"]) == 0
    assert "history_length = 2" in capsys.readouterr().out


def test_settings_are_never_cut_in_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    assert main(["train", "--settings"]) == 0
    assert "…" not in capsys.readouterr().out


def test_completion_is_asked_for_with_every_verb_configured(monkeypatch):
    completed = []
    monkeypatch.setitem(sys.modules, "argcomplete", SimpleNamespace(autocomplete=completed.append))
    assert main(["--version"]) == 0
    assert completed == []
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    assert main(["--version"]) == 0
    [parser] = completed
    assert parser.parse_args(["export", "runs/a", "-o", "b", "--merge"]).merge
    assert "PYTHON_ARGCOMPLETE_OK" in Path(cli.__file__).read_text(encoding="utf-8")[:1024]


def test_without_argcomplete_completion_is_passed_over(monkeypatch):
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    assert main(["--version"]) == 0


def test_help_loads_nothing_heavy():
    code = (
        "import sys, hgpo.cli.main\ntry: hgpo.cli.main.main(['train', '--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('torch', 'transformers', 'pyarrow') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_a_person_plays_a_game_to_its_end(monkeypatch, capsys):
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("?\ngo right\nopen door\n"))
    assert main(["play", "corridor:CorridorSuite"]) == 0
    shown = capsys.readouterr().out
    assert "you are at place 1" in shown
    assert "[won; reward 1]" in shown


def test_generated_games_can_be_trained_on_again(tmp_path, capsys):
    folder = tmp_path / "games"
    words = ["generate-games", str(folder), "--train", "12", "--valid-seen", "0", "--valid-unseen", "6"]
    assert main(words) == 0
    assert "12 games" in capsys.readouterr().out
    from hgpo.envs import make

    assert len(make("alfworld", data_dir=str(folder)).tasks("valid_unseen")) == 6
    assert main(words) == 2


def test_an_error_about_two_files_names_both():
    message = _message_of(OSError(21, "Is a directory", "new.json", None, "run"))
    assert message is not None
    assert "new.json" in message
    assert "run" in message


def test_a_terminal_without_a_character_is_not_called_a_bad_name():
    with pytest.raises(UnicodeEncodeError) as raised:
        "32 → 60 %".encode("ascii")
    assert _message_of(raised.value) == str(raised.value)


@pytest.mark.parametrize("command", ["advantages", "audit", "inspect"])
def test_a_folder_whose_name_is_not_utf_8_is_named_with_the_remedy(command, tmp_path, capsys):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        shutil.copytree(RUN, folder)
    except OSError:
        pytest.skip("this file system has only names in UTF-8")
    assert main([command, str(folder)]) == 2
    error = capsys.readouterr().err
    assert f"{tmp_path / 'caf�'}" in error
    assert "is not valid UTF-8; rename the file or folder" in error
