"""Prompts as tokens, exactly as the built-in policy writes them, for a process that has a tokenizer but no model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hgpo.policies.padding import TokenIds
from hgpo.policies.transformers import _control_token_pattern, _encodable


class PromptEncoder:
    """Each prompt becomes one user message; control tokens spelled out in it become ordinary text.

    ``hgpo.rollout.collect.fit_prompts`` takes one in place of a policy.
    """

    def __init__(self, tokenizer: Any, max_prompt_tokens: int) -> None:
        if not tokenizer.chat_template:
            raise ValueError("the tokenizer has no chat template; use an instruction-tuned model")
        self.tokenizer = tokenizer
        self.max_prompt_tokens = max_prompt_tokens
        self._control_tokens = _control_token_pattern(tokenizer)

    def encode_prompts(self, prompts: Sequence[str]) -> list[TokenIds]:
        """Token ids up to where the answer begins."""
        texts = self.tokenizer.apply_chat_template(
            [[{"role": "user", "content": self._defused(_encodable(prompt))}] for prompt in prompts],
            add_generation_prompt=True,
            tokenize=False,
        )
        encoded = self.tokenizer(texts, add_special_tokens=False, return_attention_mask=False)["input_ids"]
        return [np.asarray(ids, dtype=np.int32) for ids in encoded]

    def count_prompt_tokens(self, prompts: Sequence[str]) -> list[int]:
        """Tokens each prompt takes, chat template included."""
        return [len(ids) for ids in self.encode_prompts(prompts)]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a response, control tokens left out."""
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def ends(self, token_id: int) -> bool:
        """Whether a response that closes with this token ended by itself."""
        return bool(int(token_id) == self.tokenizer.eos_token_id)

    def _defused(self, text: str) -> str:
        return self._control_tokens.sub(lambda match: f"{match[0][:1]} {match[0][1:]}", text)
