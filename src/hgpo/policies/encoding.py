"""Prompts as tokens: what the model sees, computed without the model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from hgpo.policies.padding import TokenIds

_KEPT_PROMPTS = 1024


class PromptEncoder:
    """Each prompt becomes one user message of the tokenizer's chat template.

    Prompts are untrusted: a control token spelled out in one becomes ordinary text.
    `hgpo.rollout.prompts.fit_prompts` takes an encoder in place of a policy.

    Example: `PromptEncoder(AutoTokenizer.from_pretrained(folder), 4096).encode_prompts(["Say hello."])`.
    """

    def __init__(self, tokenizer: Any, max_prompt_tokens: int) -> None:
        """`tokenizer` is one of transformers'. ValueError: it has no chat template."""
        if not tokenizer.chat_template:
            raise ValueError("the tokenizer has no chat template; use an instruction-tuned model")
        self.tokenizer = tokenizer
        self.max_prompt_tokens = max_prompt_tokens
        self._control_tokens = _control_token_pattern(tokenizer)
        self._recent: dict[str, TokenIds] = {}

    def encode_prompts(self, prompts: Sequence[str]) -> list[TokenIds]:
        """Token ids of each prompt as the model sees it, up to where its answer begins; not to be written to.

        A prompt is counted before it is sent, and all rollouts of a group begin with the same one: what was encoded
        lately is kept.
        """
        fresh = list(dict.fromkeys(prompt for prompt in prompts if prompt not in self._recent))
        encoded = self._recent | dict(zip(fresh, self._encode(fresh), strict=True))
        self._recent = dict(islice(encoded.items(), max(0, len(encoded) - _KEPT_PROMPTS), None))
        return [encoded[prompt] for prompt in prompts]

    def _encode(self, prompts: list[str]) -> list[TokenIds]:
        if not prompts:
            return []
        texts = self.tokenizer.apply_chat_template(
            [[{"role": "user", "content": self._defused(_encodable(prompt))}] for prompt in prompts],
            add_generation_prompt=True,
            tokenize=False,
        )
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

    def count_prompt_tokens(self, prompts: Sequence[str]) -> list[int]:
        """Tokens each prompt takes, chat template included."""
        return [len(ids) for ids in self.encode_prompts(prompts)]

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
