"""The shortest prompt that says everything, for tiny models: task, remembered pairs, current observation."""

from __future__ import annotations

from hgpo.agents.actions import ParsedAction, parse_bare
from hgpo.agents.prompts.base import Situation


class CompactTemplate:
    """`task : … . past : observation > action . … now : observation`; the answer is the bare action."""

    def render(self, situation: Situation) -> str:
        """One line; nothing is cut, only white space is folded."""
        past = [f"past : {self.shorten(seen)} > {done}" for seen, done in situation.history]
        now = f"now : {self.shorten(situation.observation)}"
        return " ".join([*self.head(situation), *past, now, *self.tail(situation)])

    def head(self, situation: Situation) -> list[str]:
        """What stands before the history."""
        return [f"task : {' '.join(situation.task.split())}"]

    def tail(self, situation: Situation) -> list[str]:
        """What stands after the observation."""
        return []

    def shorten(self, observation: str) -> str:
        """Environment-specific shortening; here only white space."""
        return " ".join(observation.split())

    def parse(self, response: str) -> ParsedAction:
        """The whole response is the action."""
        return parse_bare(response)

    def respond(self, action: str) -> str:
        """The action itself."""
        return action


COMPACT = CompactTemplate()
