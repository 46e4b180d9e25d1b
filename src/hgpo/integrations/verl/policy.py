"""verl's rollout engine as a policy: tokens in, tokens out, each request in its own time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import numpy as np

from hgpo.integrations.verl.env_pool import EpisodeLost
from hgpo.messages import Conversation
from hgpo.policies.base import Request, Response
from hgpo.policies.chat import PromptEncoder


class EnginePolicy:
    """Answers the requests of one episode through verl's `server_manager`.

    The engine draws by itself, from the seed in verl's settings, and gets its weights from verl.
    """

    numbers_per_response = 0

    def __init__(
        self, server_manager: Any, encoder: PromptEncoder, sampling: Mapping[str, Any], max_response_tokens: int
    ) -> None:
        """`sampling` are verl's sampling parameters but the temperature."""
        self._server_manager, self._encoder = server_manager, encoder
        self._sampling = {**sampling, "max_tokens": max_response_tokens}
        self._limit = max_response_tokens
        self._request_id = uuid4().hex  # one for all turns: the engine keeps an episode where its prefix is cached

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt it takes, chat template included."""
        return self._encoder.max_prompt_tokens

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """Tokens each prompt takes, chat template included."""
        return self._encoder.count_prompt_tokens(prompts)

    def take_weights(self, model: Any) -> None:
        """verl hands them over."""

    async def respond(self, request: Request, *, temperature: float) -> Response:
        """The engine's answer, with what verl wants back of it in `details`.

        Raises:
            EpisodeLost: the engine answered nothing.
            PromptTooLong: the prompt exceeds `max_prompt_tokens`. Prompts are never cut.
            RuntimeError: it gave another number of log-probs than of tokens.
        """
        [prompt_ids] = self._encoder.encode_fitting([request.prompt])
        output = await self._server_manager.generate(
            request_id=self._request_id,
            prompt_ids=prompt_ids.tolist(),
            sampling_params={**self._sampling, "temperature": temperature},
        )
        tokens = np.asarray(output.token_ids[: self._limit], dtype=np.int32)
        log_probs = np.asarray((output.log_probs or [])[: self._limit], dtype=np.float32)
        if not len(tokens):
            raise EpisodeLost("the engine answered no token")
        if log_probs.shape != tokens.shape:
            raise RuntimeError(f"the engine gave {len(log_probs)} log-probs for {len(tokens)} tokens")
        [text] = self._encoder.decode([tokens])
        finished = len(tokens) < self._limit or self._encoder.ends(tokens)
        return Response(text, prompt_ids, tokens, log_probs, finished, output.extra_fields)
