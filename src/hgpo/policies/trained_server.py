"""The backend "server": training on answers of a server that gives token ids and log-probs, as vLLM's does.

The server holds the model that training began with, and after every update it is handed the new adapter through a
folder that both see. vLLM does so when it is started like this:

    VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve MODEL --enable-lora --max-lora-rank 32

Whole weights cannot be handed over: training asks for `policy.lora.rank` above 0.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hgpo.conversation import Conversation
from hgpo.policies.adapters import has_adapter, save_adapter
from hgpo.policies.backends import Backend
from hgpo.policies.base import Request, Response
from hgpo.policies.language_model import LanguageModel
from hgpo.policies.server import Server, ServerPolicy, ServerRefused, missing_client, reason

_TOKENS = {"return_token_ids": True, "logprobs": True}


class TrainedServerPolicy(ServerPolicy):
    """Answers with the tokens that training needs, from the adapter that it was handed last."""

    def __init__(self, language_model: LanguageModel, server: Server, model: str, adapters: Path) -> None:
        """Ask for one token, and hand over the adapter.

        Args:
            language_model: what is trained.
            server: where the model is served.
            model: its name there.
            adapters: folder that the server sees under the same path.

        Raises:
            ServerRefused: the server gives no token ids or log-probs, or takes no adapters.
        """
        usage = language_model.usage
        super().__init__(
            server, model, max_response_tokens=usage.response_tokens, system_prompt=usage.chat.system_prompt
        )
        self.max_prompt_tokens = usage.prompt_tokens
        self._encoder = language_model.encoder
        self._base, self._adapters, self._handed_over = model, adapters.resolve(), 0
        self._check()
        self.take_weights(language_model.model)

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """Tokens each prompt takes, chat template included."""
        return self._encoder.count_prompt_tokens(prompts)

    def take_weights(self, model: Any) -> None:
        """Answer with the adapter of `model` from now on.

        Raises:
            ServerRefused: the server does not take it.
        """
        self._handed_over += 1
        name = f"hgpo-{self._handed_over}"
        folder = self._adapters / name
        shutil.rmtree(folder, ignore_errors=True)
        save_adapter(model, folder)
        self._post("/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        previous, self.model = self.model, name
        if previous != self._base:
            self._post("/unload_lora_adapter", {"lora_name": previous})
            shutil.rmtree(self._adapters / previous, ignore_errors=True)

    def body(self, request: Request, temperature: float) -> dict[str, Any]:
        """As `ServerPolicy.body`, with tokens and log-probs asked for."""
        asked = super().body(request, temperature)
        return {**asked, "extra_body": {**asked["extra_body"], **_TOKENS}}

    def read(self, completion: Any, requests: int, seconds: float) -> Response:
        """As `ServerPolicy.read`, with tokens and log-probs.

        Raises:
            ServerRefused: they are not there.
        """
        tokens = _tokens(completion)
        if tokens is None:
            raise ServerRefused(
                f"{self.server.url} gives no token ids and log-probs, without which nothing can be trained: evaluate "
                "through it, and train with another policy.backend, or serve the model with vLLM"
            )
        prompt_ids, token_ids, log_probs = tokens
        return replace(
            super().read(completion, requests, seconds),
            prompt_ids=np.asarray(prompt_ids, dtype=np.int32),
            token_ids=np.asarray(token_ids, dtype=np.int32),
            log_probs=np.asarray(log_probs, dtype=np.float32),
        )

    def _check(self) -> None:
        """One token, so that what cannot be trained with says so before anything is played."""
        asked = self.body(Request("?"), 0.0)
        asked["extra_body"] = {**asked["extra_body"], self.server.length_parameter: 1}
        import openai

        try:
            with self._blocking_client() as client:
                self.read(client.chat.completions.create(**asked), 1, 0.0)
        except openai.OpenAIError as error:
            raise ServerRefused(f"{self.server.url} does not serve {self.model!r}: {reason(error)}") from error

    def _post(self, path: str, body: Mapping[str, str]) -> None:
        import openai

        try:
            with self._blocking_client() as client:
                client.post(path, body=dict(body), cast_to=str)
        except openai.OpenAIError as error:
            raise ServerRefused(
                f"{self.server.url}{path}: {reason(error)}. The server must take adapters while it runs, and see "
                f"{self._adapters}; vLLM: VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve … --enable-lora"
            ) from error

    def _blocking_client(self) -> Any:
        from openai import OpenAI

        return OpenAI(**self.server.connection())


def _tokens(completion: Any) -> tuple[list[int], list[int], list[float]] | None:
    """Tokens of the prompt and of the response, and the log-probs of the latter; None where one is missing."""
    choice = completion.choices[0]
    prompt_ids, token_ids = getattr(completion, "prompt_token_ids", None), getattr(choice, "token_ids", None)
    scored = choice.logprobs.content if choice.logprobs is not None else None
    if not prompt_ids or not token_ids or not scored or len(scored) != len(token_ids):
        return None
    return prompt_ids, token_ids, [one.logprob for one in scored]


def make_server_policy(
    language_model: LanguageModel,
    *,
    url: str,
    adapters: str,
    served_model: str = "",
    key_variable: str = Server.key_variable,
    timeout: float = Server.timeout,
    retries: int = Server.retries,
) -> TrainedServerPolicy:
    """A policy that answers through a server, and can be trained.

    Args:
        language_model: what is trained; with an adapter.
        url: see `Server`.
        adapters: folder that the server sees under the same path.
        served_model: the model's name there; empty: where it was loaded from.
        key_variable: see `Server`.
        timeout: see `Server`.
        retries: see `Server`.

    Raises:
        ValueError: the weights themselves are trained, which cannot be handed over.
        ServerRefused: the server does not do what training needs.
    """
    if not has_adapter(language_model.model):
        raise ValueError(
            "policy.backend = 'server': a server cannot be handed whole weights, so train an adapter "
            "(policy.lora.rank above 0), or choose another policy.backend"
        )
    server = Server(url, key_variable, timeout, retries)
    return TrainedServerPolicy(language_model, server, served_model or language_model.source, Path(adapters))


BACKEND = Backend(make_server_policy, missing=missing_client)
