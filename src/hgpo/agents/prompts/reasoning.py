"""The published structure, for instruction-tuned models: role, task, memory, observation, actions, answer format."""

from __future__ import annotations

from hgpo.agents.actions import ParsedAction, parse_tagged
from hgpo.agents.prompts.base import Situation


class ReasoningTemplate:
    """Asks for reasoning in `<think>` and one action in `<action>`; fits any text environment."""

    role = "You act in an interactive text environment and choose one action at a time."
    fallback_characters = 20

    def render(self, situation: Situation) -> str:
        """The full user message."""
        parts = [self.role]
        if situation.task:
            parts.append(f"Your task: {situation.task}")
        if situation.step:
            parts.append(self.progress(situation))
        parts.append(f"This is step {situation.step + 1}. You now observe:\n{situation.observation.strip()}")
        actions = self.offered(situation)
        if actions:
            parts.append("You may choose one of these actions:\n" + "\n".join(f"- {action}" for action in actions))
        parts.append(
            "First reason step by step about the situation inside <think> </think>. "
            "Then give exactly one action inside <action> </action>."
        )
        return "\n\n".join(parts)

    def progress(self, situation: Situation) -> str:
        """Step count and the remembered pairs, each with its step number."""
        head = f"You have taken {situation.step} steps so far."
        if not situation.history:
            return head
        first = situation.step - len(situation.history) + 1
        lines = [
            f"[Step {first + offset}] observation: {seen.strip()}\n[Step {first + offset}] action: {done}"
            for offset, (seen, done) in enumerate(situation.history)
        ]
        return f"{head} The last {len(situation.history)}:\n" + "\n".join(lines)

    def offered(self, situation: Situation) -> tuple[str, ...]:
        """Which admissible actions are shown."""
        return situation.admissible

    def parse(self, response: str) -> ParsedAction:
        """The published validity rules."""
        return parse_tagged(response, fallback_characters=self.fallback_characters)

    def respond(self, action: str) -> str:
        """A well-formed response without content in its reasoning."""
        return f"<think></think><action>{action}</action>"


REASONING = ReasoningTemplate()
