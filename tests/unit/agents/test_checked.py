"""Templates and agents of the user's: what they return is checked, and errors name them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hgpo.agents import Agent, AgentContext, AgentSpec, make_agent
from hgpo.agents.prompts import COMPACT, CompactTemplate, ParsedAction

CONTEXT = AgentContext(task="t", observation="a hall", step=0)


class Own(CompactTemplate):
    """A template that returns what it is told."""

    def __init__(self, rendered: Any = "a prompt", read: Any = None, written: Any = None) -> None:
        self.rendered, self.read, self.written = rendered, read, written

    def render(self, context: AgentContext) -> Any:
        if isinstance(self.rendered, Exception):
            raise self.rendered
        return self.rendered

    def parse(self, response: str) -> Any:
        return self.read or super().parse(response)

    def respond(self, action: str) -> Any:
        return self.written or action


def own_agent(spec: AgentSpec, *, template: Any = COMPACT) -> Any:
    return None if template is None else Agent(template, spec.history_length)


def template_of(template: Any) -> Any:
    return make_agent(f"{__name__}:own_agent", AgentSpec("corridor", "compact", 2), {"template": template}).template


def test_valid_results_pass() -> None:
    own = template_of(Own())
    assert own.render(CONTEXT) == "a prompt"
    assert own.parse("Open Door") == ParsedAction("open door", True)
    assert own.respond("Open  the door") == "Open  the door"  # parse writes lower case and single spaces
    assert template_of(COMPACT) is COMPACT


@pytest.mark.parametrize(
    ("own", "method", "argument", "message"),
    [
        (
            Own(rendered=None),
            "render",
            CONTEXT,
            "render() has to return text or a tuple of messages, and returned None",
        ),
        (Own(rendered=KeyError("x")), "render", CONTEXT, "render() raised KeyError: 'x' (test_checked.py, line 24)"),
        (Own(read="go"), "parse", "go", "parse() has to return a ParsedAction, and returned 'go'"),
        (Own(written=3), "respond", "go", "respond() has to return text, and returned 3"),
        (Own(written="I go"), "respond", "go", "parse(respond('go')) has the action 'i go', but respond has to be the"),
    ],
)
def test_other_results_and_errors_name_the_template(own: Own, method: str, argument: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"the template Own of agent '{__name__}:own_agent': {message}")):
        getattr(template_of(own), method)(argument)


def test_a_function_that_returns_no_agent_is_named() -> None:
    with pytest.raises(ValueError, match=r"own_agent' has to return an hgpo\.agents\.Agent, and returned None"):
        template_of(None)
