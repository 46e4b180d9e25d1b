"""A run's policy found on disk, while a training goes on beside, and when a disk has changed it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from corridor_runs import quiet, recipe, start_folder
from hgpo.assemble import train
from hgpo.policies.language_model import LanguageModel
from hgpo.runs.checkpoints import CheckpointGoneError
from hgpo.runs.folder import RunDirectory, RunDirectoryError
from hgpo.training import load as policies
from hgpo.training.load import RunPolicies


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = recipe(tmp_path_factory.mktemp("runs"), "training.updates=1", "warm_start.max_updates=1")
    return train(settings, quiet()).path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> RunDirectory:
    return RunDirectory(Path(shutil.copytree(trained, tmp_path / "run")))


def policies_of(run: RunDirectory) -> RunPolicies:
    return RunPolicies(run, recipe(run.path.parent).policy, warm_start=True, seed=0)


def rotating(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Whoever opens a checkpoint for the first time finds that the training has just put a newer one in its place."""
    opened: list[Path] = []
    real = policies.open_language_model

    def open_late(path: Path, *arguments: Any, **options: Any) -> LanguageModel:
        if not opened:
            shutil.copytree(path, path.with_name("2"))
            shutil.rmtree(path)
        opened.append(path)
        return real(path, *arguments, **options)

    monkeypatch.setattr(policies, "open_language_model", open_late)
    return opened


@pytest.mark.slow
def test_the_newest_is_looked_for_again_where_it_was_rotated_away(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = rotating(run, monkeypatch)
    _, found = policies_of(run).policy("newest")
    assert found == "2"
    assert [path.name for path in opened] == ["1", "2"]


@pytest.mark.slow
def test_one_that_was_named_and_is_gone_is_said_to_be_gone(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    rotating(run, monkeypatch)
    with pytest.raises(CheckpointGoneError, match="no longer exists") as caught:
        policies_of(run).policy("1")
    assert "Delete" not in str(caught.value)


def test_a_start_with_a_changed_bit_is_refused_by_name(tmp_path: Path) -> None:
    start = start_folder(tmp_path, "warm_start.max_updates=1")
    run = RunDirectory(start.parent)
    assert policies_of(run).start_source() == str(start)
    for path in sorted(start.iterdir()):
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(RunDirectoryError, match=f"{path}.*restore {start} from a copy"):
            policies_of(run).start_source()
        path.write_bytes(whole)
    assert policies_of(run).start_source() == str(start)
