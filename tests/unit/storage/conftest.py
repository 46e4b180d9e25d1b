"""A small house's rollouts."""

from __future__ import annotations

import pytest

from house import Rows, house


@pytest.fixture
def rows() -> Rows:
    return house(1)
