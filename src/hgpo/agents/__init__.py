"""What turns an observation into a prompt and a response into an action."""

from hgpo.agents.base import AGENTS, Agent, Memory, Surroundings, make_agent
from hgpo.agents.parsing import ParsedAction
from hgpo.agents.prompts import Situation, Template, get_template, template_names

__all__ = [
    "AGENTS",
    "Agent",
    "Memory",
    "ParsedAction",
    "Situation",
    "Surroundings",
    "Template",
    "get_template",
    "make_agent",
    "template_names",
]
