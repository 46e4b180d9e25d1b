"""A small house's rollouts."""

from __future__ import annotations

from typing import Any

import pytest

from house import Rows, house, write_rows


@pytest.fixture
def rows() -> Rows:
    return house(1)


@pytest.fixture
def write() -> Any:
    return write_rows
