from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

from hgpo.config import Config, load_config
from hgpo.training import trainer
from hgpo.training.load import use_threads
from hgpo.utils.progress import Reporter
from killed import Killed

RECIPE = Path(__file__).parents[2] / "corridor.toml"


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def threads(number: int | None) -> Config:
    return Config.model_validate({"run": {} if number is None else {"threads": number}, "policy": {"model": "x"}})


def test_the_runs_number_is_taken_and_else_it_is_left_alone() -> None:
    use_threads(threads(3))
    assert torch.get_num_threads() == 3
    use_threads(threads(None))
    assert torch.get_num_threads() == 3
    use_threads(threads(2))
    assert torch.get_num_threads() == 2


def test_a_run_takes_them_from_the_warm_start_on_and_when_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def warm_start(*_: object) -> None:
        seen.append(torch.get_num_threads())
        raise Killed

    monkeypatch.setattr(trainer, "prepare_start", warm_start)
    reporter = Reporter(Console(quiet=True))
    config = load_config(RECIPE, [f"run.directory={str(tmp_path)!r}", "run.threads=3"])
    with pytest.raises(Killed):
        trainer.train(config, reporter)
    torch.set_num_threads(1)
    with pytest.raises(Killed):
        trainer.resume(config.run_directory, reporter)
    assert seen == [3, 3]
