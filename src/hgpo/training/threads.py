"""How many CPU threads tensor work takes."""

from __future__ import annotations

import torch

from hgpo.config import Config


def use_threads(config: Config) -> None:
    """Take `run.threads` threads from here on, or PyTorch's choice where the setting is left out.

    Whoever computes for a run calls this first: with another number sums are rounded differently.
    """
    if config.run.threads is not None:
        torch.set_num_threads(config.run.threads)
