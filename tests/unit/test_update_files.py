"""The files that one update executes, compared with the two lists of docs/architecture.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import grimp
import pytest

import hgpo
from corridor_runs import quiet, recipe
from hgpo.assemble import train
from hgpo.training.trainer import Trainer

SOURCE = Path(hgpo.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
MOST_FILES, MOST_HELPERS, MOST_LINES = 15, 21, 450
FILE = r"`([\w/]+\.py)`"


def listed() -> tuple[list[str], list[str]]:
    """The files of an update in reading order, and their helpers."""
    section = PAGE.partition("## An update, in reading order")[2].partition("\n## ")[0]
    steps, _, helpers = section.partition("They use these helpers")
    helpers = helpers.partition("A test compares")[0]
    return re.findall(rf"^\d+\. {FILE}", steps, re.MULTILINE), re.findall(FILE, helpers)


def executed_in_second_update(directory: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Files of src/hgpo outside envs/ that the second update and its checkpoint execute."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        found.add(frame.f_code.co_filename)

    def traced(method: Callable[..., Any], updates_done: int) -> Callable[..., Any]:
        def call(self: Trainer, *arguments: Any) -> Any:
            before = sys.gettrace()
            if self.state.update == updates_done:
                sys.settrace(note)
            try:
                return method(self, *arguments)
            finally:
                sys.settrace(before)

        return call

    monkeypatch.setattr(Trainer, "_timed_update", traced(Trainer._timed_update, 1))
    monkeypatch.setattr(Trainer, "_checkpoint", traced(Trainer._checkpoint, 2))
    train(recipe(directory, "training.updates=2", "warm_start.max_updates=100"), quiet())
    paths = [Path(name) for name in found]
    files = {path.relative_to(SOURCE).as_posix() for path in paths if path.is_relative_to(SOURCE)}
    return {file for file in files if not file.startswith("envs/")}


@pytest.mark.slow
def test_an_update_executes_the_listed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, helpers = listed()
    assert executed_in_second_update(tmp_path, monkeypatch) == {*files, *helpers}


def test_the_lists_and_their_files_are_short() -> None:
    files, helpers = listed()
    assert len(files) <= MOST_FILES
    assert len(helpers) <= MOST_HELPERS
    lines = {file: len((SOURCE / file).read_text(encoding="utf-8").splitlines()) for file in (*files, *helpers)}
    assert {file for file, count in lines.items() if count > MOST_LINES} == set()


def test_helpers_import_none_of_the_files_of_an_update() -> None:
    files, helpers = ({f"hgpo.{file.removesuffix('.py').replace('/', '.')}" for file in part} for part in listed())
    graph = grimp.build_graph("hgpo", cache_dir=None)
    imports = {helper: graph.find_modules_directly_imported_by(helper) & files for helper in helpers}
    assert {helper: found for helper, found in imports.items() if found} == {}
