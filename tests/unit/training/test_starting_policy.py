from __future__ import annotations

from pathlib import Path

import torch

from hgpo.config import Config
from hgpo.runs.assemble import build_suite
from hgpo.runs.folder import RunDirectory
from hgpo.runs.progress import Reporter
from hgpo.training.starting_policy import prepare_start


def test_the_threads_of_the_run_hold_from_the_warm_start_on(tmp_path: Path) -> None:
    settings = {"environment": {"options": {"train_games": 2}}, "policy": {"model": "x"}}
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            config = Config.model_validate({**settings, "run": {"threads": threads}})
            prepare_start(RunDirectory(tmp_path), config, build_suite(config), Reporter(quiet=True))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
