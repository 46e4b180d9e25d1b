"""The themes by name, and how the time is shared among them."""

from __future__ import annotations

import importlib

import torch

from torture.corruptions import corruptions
from torture.disks import disks
from torture.hostile import hostile
from torture.kills import kills
from torture.outcomes import Theme
from torture.readers import readers
from torture.strangers import strangers
from torture.traps import traps

for _module in ("hgpo.cli.main", "hgpo.training.trainer", "pyarrow.parquet", "transformers"):
    importlib.import_module(_module)  # loaded once, and forked
torch.set_num_threads(1)

THEMES: dict[str, Theme] = {
    "kills": kills,
    "disks": disks,
    "corruptions": corruptions,
    "readers": readers,
    "hostile": hostile,
    "strangers": strangers,
    "traps": traps,
}
SHARES = {
    "kills": 3.0,
    "disks": 1.5,
    "corruptions": 6.0,
    "readers": 1.0,
    "hostile": 2.5,
    "strangers": 1.0,
    "traps": 0.8,
}
