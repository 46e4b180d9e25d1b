"""The commands on the pages can be pasted as they stand: a shell reads them, and each is run, trainings as a dry run.

Programs that a command starts are replaced by a script that notes the words it gets; the test then runs those words.
"""

from __future__ import annotations

import importlib.util
import io
import os
import re
import runpy
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path

import pytest

from hgpo.cli.main import _parse, main
from hgpo.cli.train import _given_settings
from hgpo.envs.alfworld import generate_games

ROOT = Path(__file__).parents[3]
PROGRAMS = ("hgpo", "pip", "python", "make", "alfworld-download")
INSTALLED = ("backoffice", "sokoban", "textcraft")  # by `make`; the others are not
RECIPES = [*ROOT.glob("recipes/*/README.md"), *(ROOT / "plugins" / name / "README.md" for name in INSTALLED)]
GUIDES = [page for page in sorted(ROOT.glob("docs/*.md")) if page.name not in ("log.md", "quickstart.md")]
BEGINS = re.compile(rf"    (?:[A-Z_]+=\S+ )?(?:export|{'|'.join(PROGRAMS)}) ")


def shell_lines(page: Path) -> list[str]:
    """The indented commands of a page, each with its continuation lines."""
    found: list[str] = []
    for line in page.read_text(encoding="utf-8").splitlines():
        if found and found[-1].endswith("\\"):
            found[-1] += f"\n{line}"
        elif BEGINS.match(line):
            found.append(line)
    return [line.strip() for line in found]


def lines_of(pages: list[Path]) -> list[pytest.param]:
    return [
        pytest.param(line, id=f"{page.relative_to(ROOT)}: {line[:60]}") for page in pages for line in shell_lines(page)
    ]


def words_of(line: str, folder: Path) -> list[list[str]]:
    """What the programs of a command get from the shell."""
    (folder / "bin").mkdir()
    for name in PROGRAMS:
        script = folder / "bin" / name
        script.write_text(
            f'#!/bin/sh\nprintf "%s\\0" {name} "$@" >> "{folder}/words"\nprintf "\\n" >> "{folder}/words"\n'
        )
        script.chmod(0o755)
    environment = {"PATH": f"{folder / 'bin'}:/bin:/usr/bin", "HOME": str(folder), "ALFWORLD_DATA": str(folder)}
    done = subprocess.run(
        ["bash", "-euc", line], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    noted = folder / "words"
    return [words.split("\0")[:-1] for words in noted.read_text().splitlines()] if noted.exists() else []


SHRUNK = [
    *("policy.tiny.hidden_size=16", "policy.tiny.layers=1", "policy.tiny.attention_heads=2", "environment.max_steps=2"),
    *("warm_start.demonstrations=2", "warm_start.probe_games=1", "warm_start.max_updates=1", "training.updates=1"),
    *("rollout.tasks_per_update=1", "rollout.group_size=2", "evaluation.games=2", "evaluation.every=0"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with few household games, and `runs/` with runs under the names that the pages use."""
    folder = tmp_path_factory.mktemp("pages")
    generate_games(folder / "games", games={"train": 4, "valid_seen": 2, "valid_unseen": 2})
    before = Path.cwd()
    os.chdir(folder)
    try:
        for recipe, options in (
            ("alfworld-tiny", [f"environment.options.data_dir={folder}/games"]),
            ("webshop-tiny", []),
        ):
            assert main(["train", recipe, "--quiet", *SHRUNK, *options]) == 0
    finally:
        os.chdir(before)
    for name in ("grpo-0", "hgpo-0", "hgpo-1", "k2-seen", "k2-unseen", "k2-webshop"):
        shutil.copytree(folder / "runs" / "webshop-tiny", folder / "runs" / name)
    return folder


def run_words(words: list[str], *, parse_only: bool) -> None:
    """Run what a program gets; `skip` says what is missing."""
    program, *rest = words
    if program == "hgpo":
        run_hgpo(rest, parse_only=parse_only)
    elif program == "make":
        assert subprocess.run(["make", "-n", *rest], cwd=ROOT, capture_output=True, check=False).returncode == 0
    elif program == "python" and rest[0].endswith(".py"):
        assert [word for word in rest if word.startswith("--") and word not in help_of(rest[0])] == []
    elif program == "pip":
        for word in rest:
            if word.endswith(".txt") or word.startswith("./"):
                assert (ROOT / word).exists(), word
        pytest.skip("installs packages")
    else:
        pytest.skip(f"{program} downloads, or is no part of the project")


@cache
def help_of(script: str) -> str:
    """What a script prints about its options. It runs in this process, which has loaded PyTorch already."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [script, "--help"])
        patch.syspath_prepend((ROOT / script).parent)
        patch.chdir(ROOT)
        with redirect_stdout(printed), pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / script), run_name="__main__")
    assert ended.value.code in (0, None)
    return printed.getvalue()


def run_hgpo(words: list[str], *, parse_only: bool) -> None:
    command, *rest = words
    if command == "train":
        if "verl" in rest and importlib.util.find_spec("verl") is None:
            assert _given_settings(_parse(words)).run.engine == "verl"  # a dry run composes verl's own settings
            return
        assert main(["train", *rest, *["--dry-run"] * ("--dry-run" not in rest)]) == 0
        return
    _parse(words)  # exits on an unknown flag
    if parse_only:
        return
    if command == "eval" and not Path(rest[0]).is_dir():
        pytest.skip(f"needs the model {rest[0]}")
    if command == "doctor" and importlib.util.find_spec("verl") is None:
        pytest.skip("needs verl")
    assert main(words) == 0


@pytest.mark.slow
@pytest.mark.parametrize("line", lines_of(RECIPES))
def test_commands_of_recipes_run(line: str, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not re.search(r"\.\.\.|…|[= ][A-Z]{3,}\b|/path/to", line.split("  #")[0]), (
        "a reader has to fill something in"
    )
    found = words_of(line, tmp_path)
    monkeypatch.chdir(runs)
    monkeypatch.setenv("ALFWORLD_DATA", str(runs / "games"))
    monkeypatch.setenv("WEBSHOP_DATA", str(runs / "games"))
    for words in found:
        run_words(words, parse_only=False)


@pytest.mark.parametrize("line", lines_of(GUIDES))
def test_commands_of_guides_are_read(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names in capitals stand for the reader's own files, so that only trainings are run, as dry runs."""
    found = words_of(line, tmp_path)
    for name in ("RECIPE.toml", "recipe.toml"):
        shutil.copy(ROOT / "tests" / "corridor.toml", tmp_path / name)
    monkeypatch.chdir(tmp_path)
    for words in found:
        run_words(words, parse_only=True)


def test_pages_have_commands() -> None:
    assert len(lines_of(RECIPES)) >= 20
    assert len(lines_of(GUIDES)) >= 20
