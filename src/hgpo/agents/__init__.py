"""Agents: observations into prompts, responses into actions."""

from hgpo.agents.base import AGENTS, Agent, AgentSpec, make_agent
from hgpo.agents.prompts import AgentContext, ParsedAction, Template, get_template, template_names

__all__ = [
    "AGENTS",
    "Agent",
    "AgentContext",
    "AgentSpec",
    "ParsedAction",
    "Template",
    "get_template",
    "make_agent",
    "template_names",
]
