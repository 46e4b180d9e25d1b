"""Prompts as token ids, with the tokenizer's chat template."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from hgpo.messages import Conversation, Message, as_text, messages_of
from hgpo.policies.base import PromptTooLong, TokenIds
from hgpo.utils.thoughts import opens_thought

_KEPT_PROMPTS = 1024


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
    """Encodes prompts with a chat template; if it does not support conversations, as one user message.

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
            ValueError: there is no chat template, or it ignores an option or the system message.
        """
        if not tokenizer.chat_template:
            raise ValueError("the tokenizer has no chat template; use an instruction-tuned model")
        self.tokenizer = tokenizer
        self.max_prompt_tokens = max_prompt_tokens
        self._chat = chat or Chat()
        self.opens_thought = opens_thought(_check_chat(tokenizer, self._chat))
        self._control_tokens = _control_token_pattern(tokenizer)
        self._takes_turns = _takes_turns(tokenizer, self._chat)
        self._recent: dict[Conversation, TokenIds] = {}

    def encode_prompts(self, prompts: Sequence[Conversation]) -> list[TokenIds]:
        """Token ids of each prompt, up to the start of the response. The arrays are read-only.

        The newest prompts are cached, since a prompt is first counted and then sent, and a group shares its first one.
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
        texts = _as_chats(self.tokenizer, [self.messages(prompt) for prompt in prompts], self._chat)
        encoded = [np.asarray(ids, dtype=np.int32) for ids in self._ids(texts)]
        for ids in encoded:
            ids.setflags(write=False)
        return encoded

    def encode_responses(self, responses: Sequence[str], end_token: int) -> list[TokenIds]:
        """Token ids of each response, with `end_token` at the end."""
        if not responses:
            return []
        texts = [encodable(response) for response in responses]
        return [np.asarray([*ids, end_token], dtype=np.int32) for ids in self._ids(texts)]

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """The number of tokens of each prompt, chat template included."""
        return [len(ids) for ids in self.encode_prompts(prompts)]

    def messages(self, prompt: Conversation) -> tuple[Message, ...]:
        """The messages of a prompt for the chat template."""
        turns = messages_of(prompt if self._takes_turns else as_text(prompt))
        return tuple(Message(message.role, self._escaped(encodable(message.text))) for message in turns)

    def decode(self, responses: Sequence[TokenIds]) -> list[str]:
        """The text of each response without control tokens."""
        texts: list[str] = self.tokenizer.batch_decode(
            [ids.tolist() for ids in responses], skip_special_tokens=True, clean_up_tokenization_spaces=False
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


def _as_chats(tokenizer: Any, prompts: Sequence[tuple[Message, ...]], chat: Chat) -> list[str]:
    """The whole text of each prompt, up to the start of the response."""
    before = [{"role": "system", "content": chat.system_prompt}] if chat.system_prompt else []
    texts: list[str] = tokenizer.apply_chat_template(
        [[*before, *({"role": one.role, "content": one.text} for one in prompt)] for prompt in prompts],
        add_generation_prompt=True,
        tokenize=False,
        **chat.options,
    )
    return texts


def _check_chat(tokenizer: Any, chat: Chat) -> str:
    """A prompt; options and a system message that the template would ignore are rejected."""
    unread = [name for name in chat.options if not re.search(rf"\b{re.escape(name)}\b", str(tokenizer.chat_template))]
    if unread:
        raise ValueError(
            f"policy.chat_template_options: the model's chat template does not read {', '.join(unread)}; leave it out"
        )
    try:
        [text] = _as_chats(tokenizer, [messages_of("?")], chat)
    except Exception as error:  # templates raise any exception
        raise ValueError(
            f"the model's chat template fails ({type(error).__name__}: {error}); check policy.chat_template_options "
            "and policy.system_prompt, which not every template takes"
        ) from error
    if chat.system_prompt and chat.system_prompt not in text:
        raise ValueError("policy.system_prompt: the model's chat template ignores a system message; leave it out")
    return text


def _takes_turns(tokenizer: Any, chat: Chat) -> bool:
    """Whether the template keeps all turns of a conversation in their order."""
    turns = (Message("user", "first?"), Message("assistant", "second."), Message("user", "third?"))
    try:
        [text] = _as_chats(tokenizer, [turns], chat)
    except Exception:  # templates raise any exception
        return False
    places = [text.find(turn.text) for turn in turns]
    return -1 not in places and places == sorted(places)


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """All tokens that end a turn, ascending: chat models list several in their generation config.

    Raises:
        ValueError: neither names one.
    """
    configured = getattr(model.generation_config, "eos_token_id", None)
    tokens = set(configured if isinstance(configured, list) else [configured]) | {tokenizer.eos_token_id}
    tokens.discard(None)
    if not tokens:
        raise ValueError("neither the model nor its tokenizer names an end-of-sequence token")
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


def encodable(text: str) -> str:
    """Replace lone surrogates, which tokenizers reject, by "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")
