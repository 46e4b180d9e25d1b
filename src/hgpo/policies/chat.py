"""Prompts as token ids, with the tokenizer's chat template."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from hgpo.messages import Conversation, Message, as_text, closing_thought, encodable, messages_of, opened_thought
from hgpo.policies.base import PromptTooLong, TokenIds

_KEPT_PROMPTS = 1024
_PROBES = 200  # sentences in the probe of a template: some cut long texts


@dataclass(frozen=True, slots=True)
class Chat:
    """Settings of the chat template.

    Attributes:
        system_prompt: text of a system message before the prompt; empty: none, or the template's own.
        options: keywords for the template.
    """

    system_prompt: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


class PromptEncoder:
    """Encodes prompts with a chat template. If the template leaves out turns of a conversation, it is one user message.

    Prompts are untrusted: a control token in their text becomes ordinary text. An encoder is a `PromptCounter`.

    Attributes:
        tokenizer: a tokenizer of transformers.
        max_prompt_tokens: most tokens of a prompt.
        opens_thought: whether prompts end with the opening tag of a thought.
    """

    def __init__(self, tokenizer: Any, max_prompt_tokens: int, chat: Chat | None = None) -> None:
        """Check the template with the options and system message.

        Args:
            tokenizer: a tokenizer of transformers.
            max_prompt_tokens: most tokens of a prompt, chat template included.
            chat: system prompt and template options.

        Raises:
            ValueError: there is no chat template, it ignores an option or the system message, or it leaves out or
                changes the prompt.
        """
        if not tokenizer.chat_template:
            raise ValueError(f"{_called(tokenizer)} has no chat template; use an instruction-tuned model")
        self.tokenizer = tokenizer
        self.max_prompt_tokens = max_prompt_tokens
        self._chat = chat or Chat()
        self._as_parts = _check_chat(tokenizer, self._chat)
        [shown] = _as_chats(tokenizer, [messages_of("?")], self._chat, self._as_parts)
        self._opened = opened_thought(shown)
        self.opens_thought = bool(self._opened)
        self._control_tokens = _control_token_pattern(tokenizer)
        self._keeps_turns: dict[tuple[str, ...], bool] = {}  # by the roles of a conversation
        self._recent: dict[Conversation, TokenIds] = {}
        if not self._ids([_probe(0, 1)])[0]:
            raise ValueError(f"{_called(tokenizer)}'s tokenizer has no vocabulary: tokenizer.json is missing or empty")

    def encode_prompts(self, prompts: Sequence[Conversation]) -> list[TokenIds]:
        """Token ids of each prompt, up to the start of the response. The arrays are read-only.

        The newest prompts are cached: a prompt is first counted and then sent, and a group has one first prompt.
        """
        fresh = list(dict.fromkeys(prompt for prompt in prompts if prompt not in self._recent))
        self._recent.update(zip(fresh, self._encode(fresh), strict=True))
        encoded = [self._recent[prompt] for prompt in prompts]
        for oldest in list(islice(self._recent, max(0, len(self._recent) - _KEPT_PROMPTS))):
            del self._recent[oldest]
        return encoded

    def encode_fitting(self, prompts: Sequence[Conversation]) -> list[TokenIds]:
        """As `encode_prompts`, with a check of the lengths.

        Raises:
            PromptTooLong: a prompt exceeds `max_prompt_tokens`.
        """
        encoded = self.encode_prompts(prompts)
        for index, ids in enumerate(encoded):
            if len(ids) > self.max_prompt_tokens:
                raise PromptTooLong(index=index, tokens=len(ids), limit=self.max_prompt_tokens)
        return encoded

    def _encode(self, prompts: list[Conversation]) -> list[TokenIds]:
        if not prompts:
            return []
        texts = _as_chats(self.tokenizer, [self.messages(prompt) for prompt in prompts], self._chat, self._as_parts)
        encoded = [np.asarray(ids, dtype=np.int32) for ids in self._ids(texts)]
        for ids in encoded:
            ids.setflags(write=False)
        return encoded

    def encode_responses(self, responses: Sequence[str], end_token: int) -> list[TokenIds]:
        """Token ids of each demonstrated response, with `end_token` at the end; it first closes an open thought."""
        if not responses:
            return []
        texts = [encodable(closing_thought(response, self._opened)) for response in responses]
        return [np.asarray([*ids, end_token], dtype=np.int32) for ids in self._ids(texts)]

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """The number of tokens of each prompt, chat template included."""
        return [len(ids) for ids in self.encode_prompts(prompts)]

    def messages(self, prompt: Conversation) -> tuple[Message, ...]:
        """The messages of a prompt for the chat template."""
        turns = messages_of(prompt)
        if len(turns) > 1 and not self._keeps(tuple(turn.role for turn in turns)):
            turns = messages_of(as_text(prompt))
        return tuple(Message(message.role, self._escaped(encodable(message.text))) for message in turns)

    def _keeps(self, roles: tuple[str, ...]) -> bool:
        """Whether the template shows all turns of a conversation with these roles, in their order."""
        if roles not in self._keeps_turns:
            turns = tuple(Message(role, _probe(index, 1)) for index, role in enumerate(roles))  # type: ignore[arg-type]
            try:
                [text] = _as_chats(self.tokenizer, [turns], self._chat, self._as_parts)
            except Exception:  # templates raise any exception
                text = ""
            places = [text.find(turn.text) for turn in turns]
            self._keeps_turns[roles] = -1 not in places and places == sorted(places)
        return self._keeps_turns[roles]

    def decode(self, responses: Sequence[TokenIds]) -> list[str]:
        """The text of each response without control tokens."""
        texts: list[str] = self.tokenizer.batch_decode(
            list(responses), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return texts

    def ends(self, response_ids: TokenIds) -> bool:
        """Whether a response ends with the tokenizer's end token, so that it was not cut."""
        return bool(response_ids[-1] == self.tokenizer.eos_token_id)

    def _ids(self, texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = self.tokenizer(texts, add_special_tokens=False, return_attention_mask=False)["input_ids"]
        return ids

    def _escaped(self, text: str) -> str:
        """Control tokens in untrusted text as ordinary text: "<|end|>" -> "< |end|>"."""
        return self._control_tokens.sub(lambda match: f"{match[0][:1]} {match[0][1:]}", text)


def _as_chats(tokenizer: Any, prompts: Sequence[tuple[Message, ...]], chat: Chat, as_parts: bool) -> list[str]:
    """The whole text of each prompt, up to the start of the response; `as_parts`: content is a list of parts."""

    def entry(role: str, text: str) -> dict[str, Any]:
        return {"role": role, "content": [{"type": "text", "text": text}] if as_parts else text}

    before = [entry("system", chat.system_prompt)] if chat.system_prompt else []
    texts: list[str] = tokenizer.apply_chat_template(
        [[*before, *(entry(one.role, one.text) for one in prompt)] for prompt in prompts],
        add_generation_prompt=True,
        tokenize=False,
        **chat.options,
    )
    return texts


def _check_chat(tokenizer: Any, chat: Chat) -> bool:
    """Reject options, a system message and prompts that the template would ignore or change.

    Templates may trim spaces around a text.

    Returns:
        Whether the template shows a message only if its content is a list of parts, as those of vision models do.
    """
    template = str(tokenizer.chat_template)  # or several by name
    unread = [option for option in chat.options if not re.search(rf"\b{re.escape(option)}\b", template)]
    if unread:
        raise ValueError(
            f"policy.chat_template_options: {_called(tokenizer)}'s chat template does not read {', '.join(unread)}; "
            "leave it out"
        )
    if not (problem := _problem(tokenizer, chat, as_parts=False)):
        return False
    if not _problem(tokenizer, chat, as_parts=True):
        return True
    raise ValueError(problem)


def _problem(tokenizer: Any, chat: Chat, *, as_parts: bool) -> str:
    """The error of a template that fails, or leaves out or changes the prompt or the system message; empty if none."""
    name = f"{_called(tokenizer)}'s chat template"
    try:
        [text] = _as_chats(tokenizer, [messages_of(_probe(0, _PROBES))], chat, as_parts)
    except Exception as error:  # templates raise any exception
        return (
            f"{name} fails ({type(error).__name__}: {error}); check policy.chat_template_options "
            "and policy.system_prompt, which not every template supports"
        )
    if _probe(0, _PROBES) not in text:
        return (
            f"{name} leaves out or changes the prompt (the text of a message with role user) or a part of it. "
            "Correct chat_template.jinja in the model's folder, or use another model"
        )
    if chat.system_prompt.strip() not in text:
        return f"policy.system_prompt: {name} leaves out or changes a system message; leave it out"
    return ""


def _probe(index: int, sentences: int) -> str:
    """A text that no template contains; truncation, changed spaces or changed case can be detected in it."""
    return " ".join(f"Put Mug {index}.{number}  on\nthe Desk." for number in range(sentences))


def _called(tokenizer: Any) -> str:
    """A tokenizer's folder or hub name."""
    return str(getattr(tokenizer, "name_or_path", "") or "the model")


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """All tokens that end a turn, ascending: chat models list several in their generation config.

    Raises:
        ValueError: none is named, or one is not a token id.
    """
    configured = getattr(model.generation_config, "eos_token_id", None)
    if configured is None and (config := getattr(model, "config", None)) is not None:
        configured = getattr(config.get_text_config(), "eos_token_id", None)
    listed = [*(configured if isinstance(configured, list) else [configured]), tokenizer.eos_token_id]
    if wrong := [token for token in listed if not isinstance(token, int | None)]:
        raise ValueError(f"{_called(tokenizer)}: generation_config.json: eos_token_id {wrong[0]!r} is not a token id")
    tokens = {token for token in listed if token is not None and token >= 0}  # some models have -1 for none
    if not tokens:
        raise ValueError(
            f"{_called(tokenizer)}: neither generation_config.json nor the tokenizer names an end-of-sequence token; "
            "set eos_token_id in generation_config.json"
        )
    return sorted(tokens)


def pad_token(tokenizer: Any, ends: Sequence[int]) -> int:
    """The tokenizer's padding token, or else the first end token."""
    return int(tokenizer.pad_token_id if tokenizer.pad_token_id is not None else min(ends))


def _control_token_pattern(tokenizer: Any) -> re.Pattern[str]:
    """Matches every special token's text, longest first."""
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    texts = sorted(
        (text for text in special | set(tokenizer.all_special_tokens) if len(text) > 1), key=len, reverse=True
    )
    return re.compile("|".join(map(re.escape, texts)) or r"(?!)")
