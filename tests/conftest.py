"""Shared fixtures: small real parts, made by the project itself."""

from __future__ import annotations

import pytest
from hypothesis import settings

from corridor import Corridor, CorridorSuite

# No deadline: on a busy machine one slow example says nothing about the code.
settings.register_profile("project", deadline=None)
settings.load_profile("project")


@pytest.fixture
def corridor_suite() -> CorridorSuite:
    return CorridorSuite()


@pytest.fixture
def corridor() -> Corridor:
    return Corridor(goal=2)
