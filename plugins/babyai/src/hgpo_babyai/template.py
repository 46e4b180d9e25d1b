"""The template for BabyAI: compact, for tiny models."""

from __future__ import annotations

import re

from hgpo.agents.prompts import AgentContext, CompactTemplate

_FILLER = re.compile(r"\b(?:you|see|an?|and|nothing)\b|[.]")


class BabyAICompactTemplate(CompactTemplate):
    """Drops the words that every observation repeats, and lists the admissible commands.

    `You see a red ball 2 ahead and 1 left. You carry nothing.` becomes `red ball 2 ahead 1 left carry`.
    """

    def tail(self, context: AgentContext) -> list[str]:
        """The admissible commands."""
        return [f"can : {' ; '.join(context.admissible)}"] if context.admissible else []

    def shorten(self, observation: str) -> str:
        """Lower case, without filler words."""
        return " ".join(_FILLER.sub(" ", observation.lower()).replace(",", " ,").split())


BABYAI_COMPACT = BabyAICompactTemplate()
