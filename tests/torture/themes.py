"""The themes by name, and how the time is shared among them."""

from __future__ import annotations

import importlib

import torch

from torture.corruptions import corruptions
from torture.disks import disks
from torture.kills import kills
from torture.outcomes import Theme

for _module in ("hgpo.cli", "hgpo.training.trainer", "pyarrow.parquet", "transformers"):
    importlib.import_module(_module)  # loaded once, and forked
torch.set_num_threads(1)

THEMES: dict[str, Theme] = {"kills": kills, "disks": disks, "corruptions": corruptions}
SHARES = {"kills": 4.0, "disks": 2.0, "corruptions": 4.0}
