"""Reads stored steps as one table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from hgpo.storage.discover import find_step_files
from hgpo.storage.reading import read_batch
from hgpo.storage.tables import join_tables


def read_rollouts(path: Path, format: str = "auto", columns: Mapping[str, str] | None = None) -> pa.Table:
    """The rows of all files in `path`, which must be valid, as `hgpo advantages -o` joins them."""
    files = find_step_files(path, format, columns=columns or ())
    return join_tables([read_batch(file, columns).table for file in files], [file.path for file in files])
