"""Templates for the household games (ALFWorld): a compact one for tiny models, the published structure for LLMs."""

from __future__ import annotations

import re

from hgpo.agents.prompts.base import Situation
from hgpo.agents.prompts.compact import CompactTemplate
from hgpo.agents.prompts.reasoning import ReasoningTemplate

_GO_TO = "go to "
_HARDLY_EVER_OF_USE = (_GO_TO, "examine ", "look", "inventory", "help")
_ARRIVAL = re.compile(r"^you arrive at [^.]*\. ")
_FILLER = re.compile(r"\b(?:you|see|the|an?|and|in it)\b|[,.]")


class HouseholdCompactTemplate(CompactTemplate):
    """Adds what can be done, told briefly, and drops the words that every observation repeats.

    Of the admissible commands, places to go to are listed by name; `examine`, `look`, `inventory` and `help`,
    which are hardly ever of use, are not listed.

    `You arrive at shelf 1. On the shelf 1, you see a mug 2, and a pen 1.` becomes `on shelf 1 mug 2 pen 1`
    and the opening description of the room, which `places` repeats, becomes `start`.
    """

    def head(self, situation: Situation) -> list[str]:
        """Task, then the places, in the engine's order."""
        places = [action.removeprefix(_GO_TO) for action in situation.admissible if action.startswith(_GO_TO)]
        return [*super().head(situation), *([f"places : {' '.join(places)}"] if places else [])]

    def tail(self, situation: Situation) -> list[str]:
        """The commands that change something where the agent stands."""
        useful = [action for action in situation.admissible if not action.startswith(_HARDLY_EVER_OF_USE)]
        return [f"can : {' , '.join(useful)}"] if useful else []

    def shorten(self, observation: str) -> str:
        """Lower case, without arrival sentence and filler words."""
        if "Welcome to TextWorld" in observation:
            return "start"
        if "Available commands:" in observation:
            return "help"
        return " ".join(_FILLER.sub(" ", _ARRIVAL.sub("", observation.lower())).split())


class HouseholdReasoningTemplate(ReasoningTemplate):
    """The published ALFWorld prompt: `help` is not offered, and 30 characters are sent on without a tag."""

    role = "You are a skilled agent in the ALFRED household environment."
    fallback_characters = 30

    def offered(self, situation: Situation) -> tuple[str, ...]:
        """Admissible commands but `help`."""
        return tuple(action for action in situation.admissible if action != "help")


HOUSEHOLD_COMPACT = HouseholdCompactTemplate()
HOUSEHOLD_REASONING = HouseholdReasoningTemplate()
