"""A finished run that commands can play."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rich.console import Console

from hgpo.assemble import train
from hgpo.config import load_config
from hgpo.utils.progress import Reporter

RECIPE = Path(__file__).parents[2] / "corridor.toml"
OVERRIDES = ("training.updates=2", "training.checkpoint_every=1", "warm_start.max_updates=1")


@pytest.fixture(scope="session")
def _trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs")
    config = load_config(RECIPE, [f"run.directory={str(directory)!r}", *OVERRIDES])
    return train(config, Reporter(Console(quiet=True))).path


@pytest.fixture
def trained_run(_trained: Path, tmp_path: Path) -> Path:
    """A copy of its folder, so that a test may damage it. It has the checkpoints 1 and 2."""
    return Path(shutil.copytree(_trained, tmp_path / "corridor"))


@pytest.fixture
def three_threads(trained_run: Path) -> Iterator[Path]:
    """The run with `run.threads` at a number that nothing else here sets; afterwards threads are as they were."""
    before = torch.get_num_threads()
    path = trained_run / "config.toml"
    path.write_text(path.read_text().replace("threads = 1", "threads = 3"))
    yield trained_run
    torch.set_num_threads(before)
