"""The template for ScienceWorld: compact, for tiny models."""

from __future__ import annotations

import re

from hgpo.agents.prompts import AgentContext, CompactTemplate

_FILLER = re.compile(
    r"this (room|outside location) is called|\b(in it|here)?,? ?you (also )?see\b|a substance called|^the agent$"
    r"|containing nothing|that is|\ba\(n\)|\b(an?|the|your|is|are)\b|[().:]"
)


class ScienceWorldCompactTemplate(CompactTemplate):
    """Task, past commands, and the newest observation without filler words."""

    def render(self, context: AgentContext) -> str:
        """One line. Past observations are left out: the newest shows room and inventory."""
        past = [f"past : {' ; '.join(done for _, done in context.history)}"] if context.history else []
        return " ".join([f"task : {self.shorten(context.task)}", *past, f"now : {self.shorten(context.observation)}"])

    def shorten(self, observation: str) -> str:
        """Lower case, with a semicolon between lines."""
        lines = (" ".join(_FILLER.sub(" ", line.strip()).split()) for line in observation.lower().splitlines())
        return " ; ".join(filter(None, lines))


SCIENCEWORLD_COMPACT = ScienceWorldCompactTemplate()
