"""The data set that verl insists on. It is never read: the trainer hands out tasks itself, by explicit ids."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Dataset


class TaskRows(Dataset[dict[str, int]]):
    """As many rows as an update has tasks, so that verl counts one update per pass."""

    def __init__(self, data_files: Any, tokenizer: Any, config: Any, **_: Any) -> None:
        self._rows = int(config.train_batch_size)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> dict[str, int]:
        raise NotImplementedError("tasks come from hgpo.integrations.verl.tasks, not from verl's data loader")
