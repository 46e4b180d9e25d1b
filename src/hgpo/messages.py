"""What a model is told: one message, or the turns of a conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Literal["user", "assistant"]
    text: str


Conversation = str | tuple[Message, ...]
"""What a policy is asked: the text of one user message, or turns that begin and end with the user's. Chat templates and
system messages are the policy's business. Untrusted."""


def messages_of(prompt: Conversation) -> tuple[Message, ...]:
    """The turns of a prompt; a text is one."""
    return (Message("user", prompt),) if isinstance(prompt, str) else prompt


def as_text(prompt: Conversation) -> str:
    """A prompt as one text, for people and for chat templates that take one message alone; the turns are named."""
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(f"[{message.role}]\n{message.text}" for message in prompt)
