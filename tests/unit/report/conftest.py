"""Two updates of a small house."""

from __future__ import annotations

from pathlib import Path

import pytest

from house import Rows, house, write_rows


@pytest.fixture
def rows() -> Rows:
    return house(1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with updates 1 and 2."""
    for update in (1, 2):
        write_rows(tmp_path / "house" / f"{update:05d}.jsonl", house(update))
    return tmp_path / "house"
