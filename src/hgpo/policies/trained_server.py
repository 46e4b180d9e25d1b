"""Adapters of a server that takes them while it runs, as vLLM's does: through a folder that it sees, too."""

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
from hgpo.policies.base import Request, Response
from hgpo.policies.language_model import LanguageModel, check_positions
from hgpo.policies.lora import base_model, has_adapter, save_adapter
from hgpo.policies.openai import AnswerFailed, Server, ServerPolicy, ServerRefused, missing_client, reason
from hgpo.policies.padding import TokenIds


class ServedAdapters:
    """Hands over one adapter after another; the server holds the last.

    A name is never used again, by no process: servers keep what they computed of a prompt under the adapter's name, and
    still hold the adapters of a run that was killed.

    Example: `ServedAdapters(Server("http://127.0.0.1:8000/v1"), Path("/tmp/adapters")).hand_over(model)` is
    "hgpo-3f9c01ab-1", a name that the server answers by.
    """

    def __init__(self, server: Server, folder: Path) -> None:
        """Nothing is asked, and nothing written, yet.

        Args:
            server: takes them.
            folder: where they lie, under the same path for the server.
        """
        self._server, self._folder = server, folder.resolve()
        self._process = uuid4().hex[:8]  # part of a name, and of nothing that is computed
        self._handed_over = 0
        self._held: str | None = None

    def hand_over(self, model: Any) -> str:
        """Give the server the adapter of `model`, and take the one before it away; returns the name of the new one.

        Raises:
            ServerRefused: the server does not take it.
        """
        self._handed_over += 1
        name = f"hgpo-{self._process}-{self._handed_over}"
        folder = self._folder / name
        try:
            save_adapter(model, folder)
            # In place, so that it may be sent again where an answer was lost; the name is new.
            self._post("/load_lora_adapter", {"lora_name": name, "lora_path": str(folder), "load_inplace": True})
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        previous, self._held = self._held, name
        if previous is not None:
            self._post("/unload_lora_adapter", {"lora_name": previous}, may_be_gone=True)
            shutil.rmtree(self._folder / previous, ignore_errors=True)  # what stays there harms nobody
        return name

    def _post(self, path: str, body: Mapping[str, Any], *, may_be_gone: bool = False) -> None:
        import openai

        try:
            with openai.OpenAI(**self._server.connection()) as client:
                client.post(path, body=dict(body), cast_to=str)
        except openai.OpenAIError as error:
            if may_be_gone and isinstance(error, openai.NotFoundError):  # the server was started anew
                return
            raise ServerRefused(
                f"{self._server.url}{path}: {reason(error)}. The server must take adapters of "
                f"policy.lora.rank while it runs, and see {self._folder}; vLLM: VLLM_ALLOW_RUNTIME_LORA_UPDATING=True "
                "vllm serve … --enable-lora --max-lora-rank …"
            ) from error


# The backend "server": training on answers of a server that gives token ids and log-probs, as vLLM's does.
#
# The server holds the model that training began with, and after every update it is handed the new adapter. vLLM does
# so
# when it is started like this:
#
#     VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve MODEL --enable-lora --max-lora-rank 16 \
#         --logprobs-mode processed_logprobs
#
# What is trusted of its answers: docs/decisions/015-asking-servers.md.
#
# Shape suffix: T tokens.


_TOKENS = {"return_token_ids": True, "logprobs": True}
_WHOLE_DISTRIBUTION = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Said outright: servers take what is left out from the generation_config.json of the model's author."""
_NEEDED = (
    "Training needs the tokens of prompt and response and their log-probs: serve the model with vLLM, or train with "
    "another policy.backend"
)
_SOMETHING = Request("?")
_ROUNDING = 1e-3  # of a log-prob, which is 0 at most
_SAME = 0.02  # log-probs of the likeliest token at two temperatures that are relatively nearer were made at one


class TrainedServerPolicy(ServerPolicy):
    """Answers with the tokens that training needs, from the adapter that it was handed last."""

    max_prompt_tokens: int  # as the trainer counts them

    def __init__(self, language_model: LanguageModel, server: Server, model: str, adapters: ServedAdapters) -> None:
        """Nothing is asked yet, and no weights are loaded.

        Args:
            language_model: what is trained.
            server: where the model is served.
            model: its name there.
            adapters: how the server gets an adapter.
        """
        limits = language_model.limits
        super().__init__(
            server, model, max_response_tokens=limits.response_tokens, system_prompt=limits.chat.system_prompt
        )
        self.max_prompt_tokens = limits.prompt_tokens
        self._encoder, self._template_options = language_model.encoder, limits.chat.options
        self._vocabulary = len(language_model.tokenizer)  # the model may have more
        self._adapters = adapters

    def check(self) -> None:
        """Ask for two tokens, so that what cannot be trained with says so before anything is played.

        Raises:
            ServerRefused: it gives no token ids or log-probs, reads prompts as other tokens than the trainer does, or
                leaves the temperature out of its log-probs.
        """
        with ThreadPoolExecutor(1) as thread:  # this one may run an event loop, as in a notebook
            at_one, at_two = thread.submit(asyncio.run, self._highest_log_probs(1.0, 2.0)).result()
        if abs(at_one - at_two) < _SAME * abs(at_one):
            raise ServerRefused(
                f"{self.server.url} leaves the temperature out of its log-probs, which then are not those of what it "
                "draws: start it with --logprobs-mode processed_logprobs (vLLM)"
            )

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """Tokens each prompt takes, chat template included."""
        return self._encoder.count_prompt_tokens(prompts)

    def take_weights(self, model: Any) -> None:
        """Answer with the adapter of `model` from now on.

        Raises:
            ServerRefused: the server does not take it.
        """
        self._vocabulary = base_model(model).config.get_text_config().vocab_size
        self.model = self._adapters.hand_over(model)

    async def respond(self, request: Request, *, temperature: float) -> Response:
        """As `ServerPolicy.respond`.

        Raises:
            AnswerFailed: see there; says which server.
            ServerRefused: see there; or the answer cannot be trained on.
        """
        try:
            return await super().respond(request, temperature=temperature)
        except AnswerFailed as error:
            raise AnswerFailed(f"{self.server.url}: {error}") from error

    def body(self, request: Request, temperature: float) -> dict[str, Any]:
        """As `ServerPolicy.body`, with tokens and log-probs asked for, and the prompt as the trainer reads it."""
        asked = super().body(replace(request, prompt=self._encoder.messages(request.prompt)), temperature)
        options = {"chat_template_kwargs": dict(self._template_options)} if self._template_options else {}
        return {**asked, "extra_body": {**asked["extra_body"], **_WHOLE_DISTRIBUTION, **_TOKENS, **options}}

    def read(self, completion: Any, requests: int, seconds: float) -> Response:
        """As `ServerPolicy.read`, with tokens and log-probs. The text is made of the tokens.

        Raises:
            ServerRefused: they are not there, or cannot be true.
        """
        answer = super().read(completion, requests, seconds)
        prompt_ids, token_ids, log_probs = self._trained_on(completion)
        [text] = self._encoder.decode([token_ids])
        return replace(answer, text=text, prompt_ids=prompt_ids, token_ids=token_ids, log_probs=log_probs)

    def _trained_on(self, completion: Any) -> tuple[TokenIds, TokenIds, NDArray[np.float32]]:
        """Tokens of the prompt and of the response, and the log-probs of the latter."""
        choice, url = completion.choices[0], self.server.url
        found = {
            "prompt token ids": getattr(completion, "prompt_token_ids", None),
            "token ids": getattr(choice, "token_ids", None),
            "log-probs": getattr(getattr(choice, "logprobs", None), "content", None),
        }
        if missing := [name for name, values in found.items() if not values]:
            raise ServerRefused(f"{url} gives no {', '.join(missing)}. {_NEEDED}")
        prompt_T = self._ids("prompt", found["prompt token ids"], self.max_prompt_tokens)
        token_T = self._ids("response", found["token ids"], self._max_response_tokens)
        log_prob_T = _log_probs(found["log-probs"])
        if log_prob_T is None:
            raise ServerRefused(f"{url} gives log-probs that are none: each must be a number, and 0 at most")
        if len(log_prob_T) != len(token_T):
            raise ServerRefused(f"{url} gives {len(log_prob_T)} log-probs for {len(token_T)} tokens")
        return prompt_T, token_T, log_prob_T

    def _ids(self, whose: str, values: Any, most: int) -> TokenIds:
        """Token ids that the trainer can take."""
        id_T, gives = _array(values), f"{self.server.url} gives"
        if id_T is None or id_T.dtype.kind != "i":
            raise ServerRefused(f"{gives} {whose} token ids that are no whole numbers")
        if len(id_T) > most:
            raise ServerRefused(f"{gives} a {whose} of {len(id_T)} tokens where {most} are the most")
        if id_T.min() < 0 or id_T.max() >= self._vocabulary:
            raise ServerRefused(f"{gives} {whose} token ids that the model does not have: it must serve the same model")
        return id_T.astype(np.int32)

    async def _highest_log_probs(self, *temperatures: float) -> list[float]:
        """Log-prob of the likeliest first token at each temperature, as the server tells it."""
        return [await self._highest_log_prob(temperature) for temperature in temperatures]

    async def _highest_log_prob(self, temperature: float) -> float:
        asked = self.body(_SOMETHING, temperature)
        # Two, since some servers count the token that was drawn among them.
        asked["extra_body"] |= {self.server.length_parameter: 1, "top_logprobs": 2}
        try:
            completion, _ = await self._ask(asked)
        except AnswerFailed as error:
            raise ServerRefused(f"{self.server.url} does not answer what training asks: {error}. {_NEEDED}") from error
        if completion is None:
            raise ServerRefused(f"{self.server.url} does not answer what training asks: it made no sense. {_NEEDED}")
        self._refuse_other_prompt(self.read(completion, 1, 0.0).prompt_ids)
        first = completion.choices[0].logprobs.content[0]
        told = _log_probs([first, *(getattr(first, "top_logprobs", None) or [])])
        return float("nan") if told is None else float(told.max())

    def _refuse_other_prompt(self, prompt_ids: TokenIds) -> None:
        [expected] = self._encoder.encode_prompts([_SOMETHING.prompt])
        if prompt_ids.tolist() != expected.tolist():
            raise ServerRefused(
                f"{self.server.url} reads prompts as other tokens ({prompt_ids.tolist()}) than the trainer does "
                f"({expected.tolist()}): it must serve the same model, with that model's chat template"
            )


def _array(values: Any) -> NDArray[Any] | None:
    """A list of numbers as an array; None where it is none."""
    try:
        array = np.asarray(values)
    except ValueError:  # lists of several lengths
        return None
    return array if array.ndim == 1 else None


def _log_probs(scored: Any) -> NDArray[np.float32] | None:
    """The log-probs of the protocol's tokens; None where one is no log-prob."""
    log_prob_T = _array([getattr(one, "logprob", None) for one in scored]) if isinstance(scored, list) else None
    if log_prob_T is None or log_prob_T.dtype.kind not in "fi":
        return None
    known = np.isfinite(log_prob_T) & (log_prob_T <= _ROUNDING)
    return log_prob_T.astype(np.float32) if known.all() else None


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
        ValueError: the weights themselves are trained, which cannot be handed over; or the lengths exceed the model's
            positions.
        ServerRefused: the server does not do what training needs.
    """
    if not has_adapter(language_model.model):
        raise ValueError(
            "policy.backend = 'server': a server cannot be handed whole weights, so train an adapter "
            "(policy.lora.rank above 0), or choose another policy.backend"
        )
    check_positions(language_model)
    policy = _unasked(language_model, Server(url, key_variable, timeout, retries), served_model, adapters)
    policy.check()
    policy.take_weights(language_model.model)
    return policy


def check_server(
    language_model: LanguageModel, *, url: str, adapters: str, served_model: str = "", **connection: Any
) -> None:
    """Ask the server whether it can be trained with, and hand nothing over; no weights are loaded.

    Args:
        language_model: what is trained.
        url: see `Server`.
        adapters: see `make_server_policy`.
        served_model: see `make_server_policy`.
        connection: other fields of `Server`.

    Raises:
        ServerRefused: it cannot.
    """
    _unasked(language_model, Server(url, **connection), served_model, adapters).check()


def _unasked(language_model: LanguageModel, server: Server, served_model: str, adapters: str) -> TrainedServerPolicy:
    name = served_model or language_model.source
    return TrainedServerPolicy(language_model, server, name, ServedAdapters(server, Path(adapters)))


BACKEND = Backend(make_server_policy, missing=missing_client, check=check_server, adapters_only=True)
