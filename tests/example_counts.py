"""How many examples of a property Hypothesis tries."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

COMPLETE = 100
"""Hypothesis' own number; the profile of quick tests has fewer."""


def at_length(examples: int, **options: list[HealthCheck]) -> settings:
    """Settings of a property that needs more examples than others, except in quick tests."""
    if settings.default.max_examples < COMPLETE:
        return settings(**options)
    return settings(max_examples=examples, **options)
