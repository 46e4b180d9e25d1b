"""Prompts as tokens: what the model sees, computed without the model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from hgpo.messages import Conversation, Message, as_text, messages_of
from hgpo.policies.base import PromptTooLong
from hgpo.policies.padding import TokenIds

_KEPT_PROMPTS = 1024


@dataclass(frozen=True, slots=True)
class Chat:
    """What stands around every prompt, besides what the tokenizer's chat template puts there by itself.

    Attributes:
        system_prompt: text of a system message before the prompt; empty: none, or the template's own.
        options: keywords that the template reads.
    """

    system_prompt: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


class PromptEncoder:
    """Each prompt becomes the messages of the tokenizer's chat template; one alone where that takes no conversations.

    Prompts are untrusted: a control token spelled out in one becomes ordinary text.
    `hgpo.rollout.prompts.fit_prompts` takes an encoder in place of a policy.
    """

    def __init__(self, tokenizer: Any, max_prompt_tokens: int, chat: Chat | None = None) -> None:
        """Check the template once, with the chat's options and system message.

        Args:
            tokenizer: one of transformers'.
            max_prompt_tokens: the longest prompt, chat template included.
            chat: what stands around every prompt.

        Raises:
            ValueError: there is no chat template, or it does not take the options or a system message.
        """
        if not tokenizer.chat_template:
            raise ValueError("the tokenizer has no chat template; use an instruction-tuned model")
        self.tokenizer = tokenizer
        self.max_prompt_tokens = max_prompt_tokens
        self._chat = chat or Chat()
        _check_chat(tokenizer, self._chat)
        self._control_tokens = _control_token_pattern(tokenizer)
        self._takes_turns = _takes_turns(tokenizer, self._chat)
        self._recent: dict[Conversation, TokenIds] = {}

    def encode_prompts(self, prompts: Sequence[Conversation]) -> list[TokenIds]:
        """Token ids of each prompt as the model sees it, up to where its answer begins; not to be written to.

        A prompt is counted before it is sent, and all rollouts of a group begin with the same one: what was encoded
        lately is kept.
        """
        fresh = list(dict.fromkeys(prompt for prompt in prompts if prompt not in self._recent))
        self._recent.update(zip(fresh, self._encode(fresh), strict=True))
        encoded = [self._recent[prompt] for prompt in prompts]
        for oldest in list(islice(self._recent, max(0, len(self._recent) - _KEPT_PROMPTS))):
            del self._recent[oldest]
        return encoded

    def encode_fitting(self, prompts: Sequence[Conversation]) -> list[TokenIds]:
        """As `encode_prompts`, where each prompt is short enough.

        Raises:
            PromptTooLong: one exceeds `max_prompt_tokens`. Prompts are never cut.
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
        """Token ids of each response as the model would write it, closed by `end_token`."""
        if not responses:
            return []
        texts = [_encodable(response) for response in responses]
        return [np.asarray([*ids, end_token], dtype=np.int32) for ids in self._ids(texts)]

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """Tokens each prompt takes, chat template included."""
        return [len(ids) for ids in self.encode_prompts(prompts)]

    def messages(self, prompt: Conversation) -> tuple[Message, ...]:
        """The turns that the chat template is given, for whoever has another program fill it in."""
        taken = messages_of(prompt if self._takes_turns else as_text(prompt))
        return tuple(Message(message.role, self._defused(_encodable(message.text))) for message in taken)

    def decode(self, responses: Sequence[TokenIds]) -> list[str]:
        """The text of each response, control tokens left out."""
        texts: list[str] = self.tokenizer.batch_decode(
            [ids.tolist() for ids in responses], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return texts

    def ends(self, response_ids: TokenIds) -> bool:
        """Whether a response closes with the tokenizer's end token, so that it was not cut."""
        return bool(response_ids[-1] == self.tokenizer.eos_token_id)

    def _ids(self, texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = self.tokenizer(texts, add_special_tokens=False, return_attention_mask=False)["input_ids"]
        return ids

    def _defused(self, text: str) -> str:
        """A control token spelled out in untrusted text becomes ordinary text: "<|end|>" -> "< |end|>"."""
        return self._control_tokens.sub(lambda match: f"{match[0][:1]} {match[0][1:]}", text)


def _as_chats(tokenizer: Any, prompts: Sequence[tuple[Message, ...]], chat: Chat) -> list[str]:
    """Each prompt as the whole text that the model reads, up to where its answer begins."""
    before = [{"role": "system", "content": chat.system_prompt}] if chat.system_prompt else []
    texts: list[str] = tokenizer.apply_chat_template(
        [[*before, *({"role": one.role, "content": one.text} for one in prompt)] for prompt in prompts],
        add_generation_prompt=True,
        tokenize=False,
        **chat.options,
    )
    return texts


def _check_chat(tokenizer: Any, chat: Chat) -> None:
    """Refuse what the template does not read: it would pass over an option without a word."""
    unread = [name for name in chat.options if not re.search(rf"\b{re.escape(name)}\b", str(tokenizer.chat_template))]
    if unread:
        raise ValueError(
            f"policy.chat_template_options: the model's chat template does not read {', '.join(unread)}; leave it out"
        )
    try:
        [text] = _as_chats(tokenizer, [messages_of("?")], chat)
    except Exception as error:  # a template is a program of the model's author, and raises what it likes
        raise ValueError(
            f"the model's chat template fails ({type(error).__name__}: {error}); check policy.chat_template_options "
            "and policy.system_prompt, which not every template takes"
        ) from error
    if chat.system_prompt and chat.system_prompt not in text:
        raise ValueError("policy.system_prompt: the model's chat template leaves a system message out; do without it")


def _takes_turns(tokenizer: Any, chat: Chat) -> bool:
    """Whether the template shows a conversation as it was, every turn in its place."""
    turns = (Message("user", "first?"), Message("assistant", "second."), Message("user", "third?"))
    try:
        [text] = _as_chats(tokenizer, [turns], chat)
    except Exception:  # templates refuse in ways of their own
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
    """What fills the rows of a batch: the tokenizer's own padding token, or else the first end token."""
    return int(tokenizer.pad_token_id if tokenizer.pad_token_id is not None else min(ends))


def _control_token_pattern(tokenizer: Any) -> re.Pattern[str]:
    """Matches every special token's text; longest first, so that none hides inside another."""
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    texts = sorted(
        (text for text in special | set(tokenizer.all_special_tokens) if len(text) > 1), key=len, reverse=True
    )
    return re.compile("|".join(map(re.escape, texts)) or r"(?!)")


def _encodable(text: str) -> str:
    """Lone surrogates, which Python strings may hold and tokenizers refuse, become "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")
