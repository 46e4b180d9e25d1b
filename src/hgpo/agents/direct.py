"""The published per-step prompt: task, the last K steps, what is seen now, one action asked for."""

from __future__ import annotations

from hgpo.agents.base import Agent, Surroundings
from hgpo.agents.prompts import get_template


def direct(surroundings: Surroundings) -> Agent:
    """Each step is a prompt of its own, with K steps of memory.

    Raises:
        ValueError: there is no template of that name.
    """
    return Agent(get_template(surroundings.template), surroundings.history_length)
