"""The input of a model: one message, or the turns of a conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Literal["user", "assistant"]
    text: str


Conversation = str | tuple[Message, ...]
"""A prompt: the text of one user message, or turns that begin and end with the user's. Untrusted.

The policy adds the chat template and system messages.
"""


def messages_of(prompt: Conversation) -> tuple[Message, ...]:
    """The turns of a prompt; text is one user turn."""
    return (Message("user", prompt),) if isinstance(prompt, str) else prompt


def as_text(prompt: Conversation) -> str:
    """A prompt as one text with named turns, for display and for chat templates that accept only one message."""
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(f"[{message.role}]\n{message.text}" for message in prompt)
