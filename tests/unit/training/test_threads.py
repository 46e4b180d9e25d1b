from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

from hgpo import assemble
from hgpo.config import load_config
from hgpo.training.load import use_threads
from hgpo.utils.progress import Reporter
from killed import Killed

RECIPE = Path(__file__).parents[2] / "corridor.toml"


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_runs_number_is_taken_and_else_it_is_left_alone() -> None:
    use_threads(3)
    assert torch.get_num_threads() == 3
    use_threads(None)
    assert torch.get_num_threads() == 3
    use_threads(2)
    assert torch.get_num_threads() == 2


def test_a_run_takes_them_from_the_warm_start_on_and_when_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def warm_start(*_: object) -> None:
        seen.append(torch.get_num_threads())
        raise Killed

    monkeypatch.setattr(assemble, "prepare_start", warm_start)
    reporter = Reporter(Console(quiet=True))
    config = load_config(RECIPE, [f"run.directory={str(tmp_path)!r}", "run.threads=3"])
    with pytest.raises(Killed):
        assemble.train(config, reporter)
    torch.set_num_threads(1)
    with pytest.raises(Killed):
        assemble.resume(config.run_directory, reporter)
    assert seen == [3, 3]
