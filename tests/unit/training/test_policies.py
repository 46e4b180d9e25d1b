"""A run's start policy found on disk when a disk has changed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from corridor_runs import recipe, start_folder
from hgpo.runs.checkpoints import whole_checkpoint
from hgpo.runs.folder import RunDirectory, RunDirectoryError
from hgpo.training.load import RunPolicies


def policies_of(run: RunDirectory) -> RunPolicies:
    return RunPolicies(run, recipe(run.path.parent).policy, warm_start=True, seed=0)


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


def test_an_adapter_without_its_start_policy_is_refused_with_the_missing_folder(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    with whole_checkpoint(run.checkpoints, 1, {}) as folder:
        (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(RunDirectoryError, match=f"restore {run.start} from a copy"):
        policies_of(run).policy("newest")
