"""Shared fixtures: small real parts, made by the project itself."""

from __future__ import annotations

import pytest

from corridor import Corridor, CorridorSuite


@pytest.fixture
def corridor_suite() -> CorridorSuite:
    return CorridorSuite()


@pytest.fixture
def corridor() -> Corridor:
    return Corridor(goal=2)
