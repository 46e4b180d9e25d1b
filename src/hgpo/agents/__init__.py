"""Agents: observations into prompts, responses into actions."""

from hgpo.agents.base import AGENTS, Agent, AgentSpec, make_agent
from hgpo.agents.prompts import TEMPLATES, AgentContext, ParsedAction, Template

__all__ = [
    "AGENTS",
    "TEMPLATES",
    "Agent",
    "AgentContext",
    "AgentSpec",
    "ParsedAction",
    "Template",
    "make_agent",
]
