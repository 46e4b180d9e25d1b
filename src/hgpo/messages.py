"""The input of a model (one message or the turns of a conversation), and the thoughts in its responses.

Thinking models write thoughts between tags before the answer. If the chat template writes the opening tag, the response
has only the closing tag; a response that is cut at the token limit has only the opening tag.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

THOUGHT_TAG = re.compile(r"<(/?)(think|thinking|thought|thoughts|reasoning|seed:think)>|\[(/?)(THINK)\]", re.IGNORECASE)
"""The tags that models put around a thought."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation.

    Attributes:
        role: who wrote the turn.
        text: the whole text of the turn, including the description of the tools.
        tools: the tools that `text` begins with (`hgpo.tool_calls.describe`), as a JSON list; "" without tools.
    """

    role: Literal["user", "assistant"]
    text: str
    tools: str = ""


Conversation = str | tuple[Message, ...]
"""A prompt: the text of one user message, or turns, of which the user wrote the first and the last. Untrusted.

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


def encodable(text: str) -> str:
    """Replace lone surrogates, which tokenizers and UTF-8 reject, by "?"."""
    return text.encode("utf-8", "replace").decode()


def thought_spans(text: str) -> list[tuple[int, int]]:
    """Start and end of each thought in `text`, tags included.

    A thought ends at the closing tag that balances its opening tag, because thoughts quote tags. If there is none, it
    ends at the next closing tag of that name, else at the end of the text. A closing tag without an opening tag ends a
    thought that began in the prompt, except if the text begins with an opening tag, or if other tags precede the
    closing tag and no text follows it.

    Example: `thought_spans("I look.</think> Action: look") == [(0, 15)]`.
    """
    tags = [
        (tag.start(), tag.end(), (tag[2] or tag[4]).lower(), bool(tag[1] or tag[3]))
        for tag in THOUGHT_TAG.finditer(text)
    ]
    if not tags:
        return []
    spans: list[tuple[int, int]] = []
    position = _end_of_begun(text, tags)
    if position:
        spans.append((0, position))
    closings = _closings(tags)
    for index, (start, _, _, closes) in enumerate(tags):
        if closes or start < position:
            continue
        position = closings.get(index, len(text))
        spans.append((start, position))
    return spans


def _end_of_begun(text: str, tags: list[tuple[int, int, str, bool]]) -> int:
    """The end of a thought whose opening tag is part of the prompt; 0 if there is none."""
    if not tags[0][3] and not text[: tags[0][0]].strip():
        return 0
    depths: dict[str, int] = {}
    for index, (_, end, name, closes) in enumerate(tags):
        depths[name] = depths.get(name, 0) + (-1 if closes else 1)
        if depths[name] < 0:
            return end if index == 0 or text[end:].strip() else 0
    return 0


def _closings(tags: list[tuple[int, int, str, bool]]) -> dict[int, int]:
    """Index of an opening tag -> end of its thought; opening tags that are never closed are left out."""
    ends: dict[int, int] = {}
    open_tags: dict[str, list[int]] = {}
    for index, (_, end, name, closes) in enumerate(tags):
        if not closes:
            open_tags.setdefault(name, []).append(index)
        elif open_tags.get(name):
            ends[open_tags[name].pop()] = end
    following: dict[str, int] = {}
    for index in reversed(range(len(tags))):
        _, end, name, closes = tags[index]
        if closes:
            following[name] = end
        elif index not in ends and name in following:
            ends[index] = following[name]
    return ends


def without_thoughts(text: str) -> str:
    """The text with each thought replaced by a line break; unchanged if it has none."""
    parts, position = [], 0
    for start, end in thought_spans(text):
        parts.append(text[position:start])
        position = end
    return "\n".join([*parts, text[position:]])


def closes_thought(text: str) -> bool:
    """Whether a closing tag is in the text."""
    return any(tag[1] or tag[3] for tag in THOUGHT_TAG.finditer(text))


def opened_thought(prompt: str) -> str:
    """The opening tag that a prompt ends with, which the chat templates of some thinking models write; "" if none."""
    tags = list(THOUGHT_TAG.finditer(prompt))
    opens = tags and not (tags[-1][1] or tags[-1][3]) and not prompt[tags[-1].end() :].strip()
    return tags[-1][0] if opens else ""


def closing_thought(response: str, opened: str) -> str:
    """A response without a thought, to a prompt that ends with the opening tag `opened`: it closes the thought first.

    Example: `closing_thought("go to shelf 1", "<think>") == "</think>\\n\\ngo to shelf 1"`.
    """
    rest = response.removeprefix(opened)
    return rest if closes_thought(rest) or not opened else f"{opened[0]}/{opened[1:]}\n\n{rest}"
