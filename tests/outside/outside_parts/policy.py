"""A backend with weights of its own, as a server has: it answers each request by itself, and is told of new weights."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from typing import Any

import torch

from hgpo.policies.backends import Backend
from hgpo.policies.base import Request, Response
from hgpo.policies.language_model import LanguageModel
from hgpo.policies.local import TransformersPolicy


class OwnCopyPolicy:
    """Notes every hand-over of weights in a file, one line each."""

    def __init__(self, language_model: LanguageModel, *, journal: str) -> None:
        self._journal = journal
        model = copy.deepcopy(language_model.model)
        self._copy = TransformersPolicy(LanguageModel.of(model, language_model.tokenizer, language_model.limits))
        self._model = model

    @property
    def max_prompt_tokens(self) -> int:
        return self._copy.max_prompt_tokens

    @property
    def numbers_per_response(self) -> int:
        return self._copy.numbers_per_response

    def count_prompt_tokens(self, prompts: Sequence[str]) -> list[int]:
        return self._copy.count_prompt_tokens(prompts)

    def take_weights(self, model: Any) -> None:
        changed = any(
            not torch.equal(mine, theirs)
            for mine, theirs in zip(self._model.parameters(), model.parameters(), strict=True)
        )
        self._model.load_state_dict(model.state_dict())
        with open(self._journal, "a") as lines:
            lines.write(f"{'new' if changed else 'same'}\n")

    async def respond(self, request: Request, *, temperature: float) -> Response:
        await asyncio.sleep(0)
        [response] = self._copy.generate([request], temperature=temperature)
        return response


BACKEND = Backend(OwnCopyPolicy)
