"""A run's settings may name modules. Commands that only read the run never import them; those that play it do."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from hgpo.cli import main
from hgpo.runs.folder import open_run_directory

RUN = Path(__file__).parents[2] / "data" / "release-0.1"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run, killed half-way, whose environment leaves the file `imported` beside itself when its module is run."""
    module = "from pathlib import Path\nfrom corridor import CorridorSuite as Suite\n"
    (tmp_path / "innocent.py").write_text(module + 'Path(__file__).with_name("imported").touch()\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "innocent", raising=False)
    folder = Path(shutil.copytree(RUN, tmp_path / "run"))
    settings = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(settings.replace("corridor:CorridorSuite", "innocent:Suite"))
    return folder


@pytest.mark.parametrize(
    "words",
    [["inspect"], ["advantages"], ["compare"], ["train", "--dry-run", "--resume"]],
    ids=["inspect", "advantages", "compare", "dry-run"],
)
def test_what_only_reads_a_run_imports_nothing_that_it_names(words: list[str], run: Path) -> None:
    assert main([*words, str(run)]) == 0
    assert open_run_directory(run)[1].environment.name == "innocent:Suite"
    assert not (run.parent / "imported").exists()


@pytest.mark.parametrize(
    "words",
    [["eval", "--games", "1", "--quiet"], ["rollout", "--games", "1", "-o", "steps.jsonl"], ["train", "--resume"]],
    ids=["eval", "rollout", "resume"],
)
def test_what_plays_a_run_does(words: list[str], run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent)
    assert main([*words, str(run)]) == 0
    assert (run.parent / "imported").exists()
