"""The backend "server": training with a server that returns token ids and log-probs and loads adapters, such as vLLM's.

The server has the initial model; after every update it loads the new adapter from a folder that it shares with the
trainer. For vLLM:

    VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve MODEL --enable-lora --max-lora-rank 16 \
        --logprobs-mode processed_logprobs

The server's answers are checked, see docs/decisions/015-asking-servers.md. Shape suffix: T tokens.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from hgpo.messages import Conversation
from hgpo.policies.backends import Backend
from hgpo.policies.base import AnswerFailed, Request, Response, TokenIds
from hgpo.policies.language_model import LanguageModel, check_positions
from hgpo.policies.openai import (
    Retries,
    Seconds,
    Server,
    ServerPolicy,
    ServerRefused,
    UnreadableAnswer,
    is_finished,
    missing_client,
    reason,
)
from hgpo.policies.weights import base_model, save_adapter


class ServedAdapters:
    """The adapters of a server, of which only the newest stays loaded.

    Names such as "hgpo-3f9c01ab-1" are unique across processes, because servers cache prompts by the adapter's name and
    keep the adapters of a killed run.
    """

    def __init__(self, server: Server, folder: Path) -> None:
        """Set up without contacting the server.

        Args:
            server: the server.
            folder: where adapters are written; the same path on the server.
        """
        self._server, self._folder = server, folder.resolve()
        self._process = uuid4().hex[:8]  # affects names only, no results
        self._count = 0
        self._loaded: str | None = None

    def load(self, model: Any) -> str:
        """Load the adapter of `model` on the server, unload the previous one, and return the new adapter's name.

        Raises:
            ServerRefused: the server rejects the adapter.
        """
        self._count += 1
        name = f"hgpo-{self._process}-{self._count}"
        folder = self._folder / name
        try:
            save_adapter(model, folder)
            # In place, so that the client may retry after a lost answer; the name is new.
            self._post("/load_lora_adapter", {"lora_name": name, "lora_path": str(folder), "load_inplace": True})
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        previous, self._loaded = self._loaded, name
        if previous is not None:
            self._post("/unload_lora_adapter", {"lora_name": previous}, may_be_gone=True)
            shutil.rmtree(self._folder / previous, ignore_errors=True)  # leftover files do no harm
        return name

    def _post(self, path: str, body: Mapping[str, Any], *, may_be_gone: bool = False) -> None:
        import openai

        try:
            with openai.OpenAI(**self._server.connection()) as client:
                client.post(path, body=dict(body), cast_to=str)
        except openai.OpenAIError as error:
            if may_be_gone and isinstance(error, openai.NotFoundError):  # the server was restarted
                return
            raise ServerRefused(
                f"{self._server.url}{path}: {reason(error)}. The server must load adapters of rank policy.lora.rank "
                f"while it runs, and read {self._folder}; with vLLM: VLLM_ALLOW_RUNTIME_LORA_UPDATING=True "
                "vllm serve MODEL --enable-lora --max-lora-rank RANK"
            ) from error


_TOKENS = {"return_token_ids": True, "logprobs": True}
_WHOLE_DISTRIBUTION = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Sent explicitly, because servers take defaults from the model's generation_config.json."""
_NEEDED = (
    "Training needs the tokens of prompt and response and their log-probs: serve the model with vLLM, or train with "
    "another policy.backend"
)
_PROBE = Request("?")
_ROUNDING = 1e-3  # largest log-prob that is accepted; above 0 because of rounding
_SAME = 0.02  # relative difference of log-probs at two temperatures; a smaller one shows that temperature is ignored


class TrainedServerPolicy(ServerPolicy):
    """A `ServerPolicy` whose responses have the tokens and log-probs that training needs."""

    max_prompt_tokens: int  # counted with the trainer's tokenizer
    adapts = False  # training needs every parameter

    def __init__(self, language_model: LanguageModel, server: Server, model: str, adapters: ServedAdapters) -> None:
        """Set up without contacting the server or loading weights.

        Args:
            language_model: the trained model.
            server: the server of the model.
            model: name of the model on the server.
            adapters: the adapters of the server.
        """
        limits = language_model.limits
        super().__init__(
            server, model, max_response_tokens=limits.response_tokens, system_prompt=limits.chat.system_prompt
        )
        self.max_prompt_tokens = limits.prompt_tokens
        self._encoder, self._template_options = language_model.encoder, limits.chat.options
        self._vocabulary = len(language_model.tokenizer)  # the model, once loaded, may have more
        self._adapters = adapters

    def check(self) -> None:
        """Test the server with two requests of one token.

        Raises:
            ServerRefused: it returns no token ids or log-probs, encodes prompts differently, or its log-probs ignore
                the temperature.
        """
        with ThreadPoolExecutor(1) as thread:  # the current thread may run an event loop, as in a notebook
            at_one, at_two = (thread.submit(asyncio.run, self._highest_log_prob(at)).result() for at in (1.0, 2.0))
        if abs(at_one - at_two) < _SAME * abs(at_one):
            raise ServerRefused(
                f"{self.server.url} returns log-probs that ignore the temperature, so they are not of the sampled "
                "distribution: start it with --logprobs-mode processed_logprobs (vLLM)"
            )

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """The number of tokens of each prompt, chat template included."""
        return self._encoder.count_prompt_tokens(prompts)

    def take_weights(self, model: Any) -> None:
        """Use the adapter of `model` from now on.

        Raises:
            ServerRefused: the server rejects the adapter.
        """
        self._vocabulary = base_model(model).config.get_text_config().vocab_size
        self.model = self._adapters.load(model)

    async def respond(self, request: Request, *, temperature: float) -> Response:
        """As `ServerPolicy.respond`.

        Raises:
            AnswerFailed: as `ServerPolicy.respond`, with the server's address in the message.
            ServerRefused: as `ServerPolicy.respond`, or the answer lacks valid tokens or log-probs.
        """
        try:
            return await super().respond(request, temperature=temperature)
        except AnswerFailed as error:
            raise type(error)(f"{self.server.url}: {error}", error.usage) from error

    def body(self, request: Request, temperature: float) -> dict[str, Any]:
        """As `ServerPolicy.body`, with requests for tokens and log-probs, and control tokens escaped."""
        body = super().body(replace(request, prompt=self._encoder.messages(request.prompt)), temperature)
        options = {"chat_template_kwargs": dict(self._template_options)} if self._template_options else {}
        return {**body, "extra_body": {**body["extra_body"], **_WHOLE_DISTRIBUTION, **_TOKENS, **options}}

    def read(self, completion: Mapping[str, Any], body: Mapping[str, Any], requests: int, seconds: float) -> Response:
        """As `ServerPolicy.read`, with tokens and log-probs; the text is decoded from the tokens.

        Raises:
            ServerRefused: tokens or log-probs are missing or invalid.
        """
        prompt_ids, token_ids, log_probs = self._tokens(completion)
        [text] = self._encoder.decode([token_ids])
        usage = self._usage(completion, body, text, requests, seconds)
        if usage.estimated:
            usage = replace(usage, prompt_tokens=len(prompt_ids), response_tokens=len(token_ids), estimated=False)
        return Response(
            text=text,
            prompt_ids=prompt_ids,
            token_ids=token_ids,
            log_probs=log_probs,
            finished=is_finished(completion["choices"][0]),
            usage=usage,
            in_thought=self._encoder.opens_thought,
        )

    def _tokens(self, completion: Mapping[str, Any]) -> tuple[TokenIds, TokenIds, NDArray[np.float32]]:
        """Tokens of the prompt and of the response, and log-probs of the response."""
        choice, url = completion["choices"][0], self.server.url
        scores = choice.get("logprobs")
        found = {
            "prompt token ids": completion.get("prompt_token_ids"),
            "token ids": choice.get("token_ids"),
            "log-probs": scores.get("content") if isinstance(scores, dict) else None,
        }
        if missing := [name for name, values in found.items() if not values]:
            raise ServerRefused(f"{url} gives no {', '.join(missing)}. {_NEEDED}")
        prompt_T = self._ids("prompt", found["prompt token ids"], self.max_prompt_tokens)
        token_T = self._ids("response", found["token ids"], self._max_response_tokens)
        log_prob_T = self._log_probs(found["log-probs"])
        if len(log_prob_T) != len(token_T):
            raise ServerRefused(f"{url} gives {len(log_prob_T)} log-probs for {len(token_T)} tokens")
        return prompt_T, token_T, log_prob_T

    def _ids(self, whose: str, values: Any, most: int) -> TokenIds:
        """Checked token ids."""
        gives = f"{self.server.url} gives"
        if not isinstance(values, list) or any(type(value) is not int for value in values):
            raise ServerRefused(f"{gives} {whose} token ids that are not integers")
        if len(values) > most:
            raise ServerRefused(f"{gives} a {whose} of {len(values)} tokens; the limit is {most}")
        if min(values) < 0 or max(values) >= self._vocabulary:
            raise ServerRefused(
                f"{gives} {whose} token ids outside the model's vocabulary: it must serve the same model"
            )
        return np.array(values, dtype=np.int32)

    def _log_probs(self, scored: Any) -> NDArray[np.float32]:
        """The log-probs in the protocol's list of tokens."""
        try:
            log_prob_T = np.array([float(one["logprob"]) for one in scored], dtype=np.float32)
        except (TypeError, ValueError, KeyError, OverflowError):
            log_prob_T = np.array([np.nan], dtype=np.float32)
        if not (np.isfinite(log_prob_T) & (log_prob_T <= _ROUNDING)).all():
            raise ServerRefused(f"{self.server.url} gives invalid log-probs: each must be a number, and 0 at most")
        return log_prob_T

    async def _highest_log_prob(self, temperature: float) -> float:
        """Log-prob of the likeliest first token."""
        body = self.body(_PROBE, temperature)
        # Two, since some servers count the drawn token among them.
        body["extra_body"] |= {self.server.length_parameter: 1, "top_logprobs": 2}
        try:
            completion, _ = await self._send(body)
        except UnreadableAnswer as error:
            raise ServerRefused(f"{self.server.url} gives an unreadable answer: {error}. {_NEEDED}") from error
        except AnswerFailed as error:
            raise ServerRefused(f"{self.server.url} rejects the request of training: {error}. {_NEEDED}") from error
        self._refuse_other_prompt(self.read(completion, body, 1, 0.0).prompt_ids)
        first = completion["choices"][0]["logprobs"]["content"][0]
        likeliest = first.get("top_logprobs")
        return float(self._log_probs([first, *(likeliest if isinstance(likeliest, list) else ())]).max())

    def _refuse_other_prompt(self, prompt_ids: TokenIds) -> None:
        [expected] = self._encoder.encode_prompts([_PROBE.prompt])
        if prompt_ids.tolist() != expected.tolist():
            raise ServerRefused(
                f"{self.server.url} encodes a prompt as {prompt_ids.tolist()}, and the trainer as "
                f"{expected.tolist()}: it must serve the same model, with that model's chat template"
            )


def make_server_policy(
    language_model: LanguageModel,
    *,
    url: str,
    adapters: str,
    served_model: str = "",
    key_variable: str = Server.key_variable,
    timeout: Seconds = Server.timeout,
    retries: Retries = Server.retries,
) -> TrainedServerPolicy:
    """A policy that generates with a server, for training an adapter.

    Args:
        language_model: the trained model, with an adapter.
        url, key_variable, timeout, retries: see `Server`.
        adapters: folder for adapters, the same path on the server.
        served_model: the model's name on the server; empty: its source.

    Raises:
        ValueError: the lengths exceed the model's positions.
        ServerRefused: the server lacks a feature that training needs.
    """
    check_positions(language_model)
    policy = _policy(language_model, Server(url, key_variable, timeout, retries), served_model, adapters)
    policy.check()
    policy.take_weights(language_model.model)
    return policy


def check_server(
    language_model: LanguageModel, *, url: str, adapters: str, served_model: str = "", **connection: Any
) -> None:
    """Test the server without loading weights; arguments and errors as for `make_server_policy`."""
    _policy(language_model, Server(url, **connection), served_model, adapters).check()


def _policy(language_model: LanguageModel, server: Server, served_model: str, adapters: str) -> TrainedServerPolicy:
    name = served_model or language_model.source
    return TrainedServerPolicy(language_model, server, name, ServedAdapters(server, Path(adapters)))


BACKEND = Backend(make_server_policy, missing=missing_client, check=check_server, adapters_only=True)
