from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hgpo.config import ConfigError
from hgpo.integrations.verl.checkpoints import OWNER_FILE, claim, claim_empty, release

HERE, THERE = Path("/runs/alfworld/k2"), Path("/runs/webshop/k2")


def test_the_first_run_gets_the_folder_and_keeps_it(tmp_path: Path) -> None:
    folder = tmp_path / "k2"
    assert claim_empty(folder, HERE)
    assert not claim(folder, HERE)  # a resume
    for take in (claim, claim_empty):
        with pytest.raises(
            ConfigError, match=r"belongs to the run /runs/alfworld/k2: choose another run\.name or CHECK"
        ):
            take(folder, THERE)


def test_of_runs_that_begin_at_once_one_gets_the_folder(tmp_path: Path) -> None:
    def begin(number: int) -> bool:
        try:
            return claim_empty(tmp_path / "k2", Path(f"/runs/{number}"))
        except ConfigError:
            return False

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(begin, range(8))) == 1


def test_checkpoints_that_are_there_already_are_not_continued_from(tmp_path: Path) -> None:
    (tmp_path / "global_step_40").mkdir()
    with pytest.raises(ConfigError, match="which this one would continue from"):
        claim_empty(tmp_path, HERE)
    assert not (tmp_path / OWNER_FILE).exists()


def test_not_even_those_of_an_earlier_run_in_the_same_place(tmp_path: Path) -> None:
    claim_empty(tmp_path, HERE)
    (tmp_path / "global_step_40").mkdir()
    with pytest.raises(ConfigError, match="which this one would continue from"):
        claim_empty(tmp_path, HERE)


def test_a_run_from_before_there_were_owners_is_continued(tmp_path: Path) -> None:
    (tmp_path / "global_step_40").mkdir()
    assert claim(tmp_path, HERE)


def test_a_start_that_was_given_up_leaves_the_folder_to_others(tmp_path: Path) -> None:
    claim_empty(tmp_path, HERE)
    release(tmp_path)
    assert claim_empty(tmp_path, THERE)


def test_a_claim_that_was_cut_off_is_named(tmp_path: Path) -> None:
    (tmp_path / OWNER_FILE).touch()
    with pytest.raises(ConfigError, match=f"delete .*{OWNER_FILE}"):
        claim(tmp_path, HERE)
