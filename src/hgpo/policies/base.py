"""The interface of policies, in two forms, both accepted by `hgpo.rollout.runner`.

A `BatchPolicy` answers many requests in one call: one step of all running episodes is one batch. An `AsyncPolicy`
answers requests independently, as servers and engines with continuous batching do, so that an episode continues as soon
as its own response is complete.

Each request carries its own random numbers, from which servers get a seed.

Shape suffixes: B requests, T numbers (for most policies one per response token).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from hgpo.messages import Conversation, closes_thought

TokenIds = NDArray[np.int32]
NO_TOKENS: TokenIds = np.empty(0, dtype=np.int32)
NO_LOG_PROBS: NDArray[np.float32] = np.empty(0, dtype=np.float32)
_SEED_BITS = 53  # the precision of a float64 in [0, 1)


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A prompt with its random numbers.

    Attributes:
        prompt: see `hgpo.messages`.
        uniform_T: float64[T] in [0, 1), T = the policy's `numbers_per_response`: the same numbers give the same
            response. None: the policy is greedy (temperature 0) or has its own generator.
    """

    prompt: Conversation
    uniform_T: NDArray[np.float64] | None = None

    @property
    def seed(self) -> int | None:
        """The first number as a seed below 2**53, for policies with their own generator."""
        return None if self.uniform_T is None else int(self.uniform_T[0] * 2**_SEED_BITS)


@dataclass(frozen=True, slots=True)
class RequestUsage:
    """Tokens, requests, time and cost of one response, as its policy reports them.

    Attributes:
        prompt_tokens: tokens of the prompt, as the policy counts them.
        response_tokens: tokens of the response, as the policy counts them.
        requests: number of requests sent, retries included.
        seconds: time until the response was complete, retries included.
        cost: cost of the tokens; 0 without prices (`hgpo.policies.wrappers.PricedPolicy`).
        estimated: whether a number of tokens is an estimate, because the server reports none.
        parameters: sampling parameters as sent to a server; a value None: left out, because the model rejects it.
    """

    prompt_tokens: int
    response_tokens: int
    requests: int
    seconds: float
    cost: float = 0.0
    estimated: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)


class AnswerFailed(RuntimeError):
    """A request failed after all retries. Other requests may succeed.

    Attributes:
        usage: what the request used, if it was answered and the answer is unusable; None without an answer.
    """

    def __init__(self, message: str, usage: RequestUsage | None = None) -> None:
        super().__init__(message)
        self.usage = usage


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """A policy's response to one prompt.

    A policy without access to tokens leaves the arrays empty.

    Attributes:
        text: the text without control tokens.
        prompt_ids: int32[P], the tokens of the prompt.
        token_ids: int32[T], the tokens of the response, end token included.
        log_probs: float32[T], log-probs of the tokens under the distribution they were drawn from, with temperature.
        finished: whether it has an end token, so that it was not cut at the response limit.
        details: further values of an engine that its trainer uses; empty for most.
        usage: tokens, requests, seconds and cost; None if the policy does not report them.
        in_thought: whether the prompt opened a thought, as chat templates of some thinking models do.
    """

    text: str
    prompt_ids: TokenIds
    token_ids: TokenIds
    log_probs: NDArray[np.float32]
    finished: bool
    details: Mapping[str, Any] = field(default_factory=dict)
    usage: RequestUsage | None = None
    in_thought: bool = False

    @property
    def with_opening(self) -> str:
        """The text after the opening tag of its thought, if that is in the prompt and the thought ends with `</think>`
        or not at all."""
        opened = self.in_thought and ("</think>" in self.text.lower() or not closes_thought(self.text))
        return f"<think>{self.text}" if opened else self.text


class ContextFull(Exception):
    """A prompt does not fit, even when shortened as far as possible. The episode ends."""


class PromptTooLong(ContextFull, ValueError):
    """A prompt has more tokens than the policy allows. Policies never cut prompts."""

    def __init__(self, *, index: int, tokens: int, limit: int) -> None:
        super().__init__(
            f"prompt {index} has {tokens} tokens, the limit is {limit}: "
            "lower agent.history_length or raise policy.max_prompt_tokens"
        )


class PromptCounter(Protocol):
    """Counts the tokens of prompts."""

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """The number of tokens of each prompt, chat template included."""
        ...

    @property
    def max_prompt_tokens(self) -> int | None:
        """Most tokens of a prompt; None without a limit."""
        ...


class Policy(PromptCounter, Protocol):
    """The interface that `BatchPolicy` and `AsyncPolicy` share."""

    @property
    def numbers_per_response(self) -> int:
        """Random numbers in a request; 0 if the policy has its own generator."""
        ...

    def take_weights(self, model: Any) -> None:
        """Use the weights of `model`, the trained torch module, from now on. Called after every update."""
        ...


class BatchPolicy(Policy, Protocol):
    """Answers requests in batches."""

    def generate(self, requests: Sequence[Request], *, temperature: float) -> list[Response]:
        """One response per request, in order. `temperature` 0 is greedy.

        Raises:
            PromptTooLong: a prompt exceeds `max_prompt_tokens`.
        """
        ...


class AsyncPolicy(Policy, Protocol):
    """Answers requests independently; many may be open at once."""

    async def respond(self, request: Request, *, temperature: float) -> Response:
        """The response to one request. `temperature` 0 is greedy.

        Raises:
            PromptTooLong: the prompt exceeds `max_prompt_tokens`.
        """
        ...


AnyPolicy = BatchPolicy | AsyncPolicy


def release_memory(policy: AnyPolicy) -> None:
    """Let a policy with its own copy of the weights free their memory until it takes new ones; others do nothing."""
    release = getattr(policy, "release_memory", None)
    if release is not None:
        release()


def is_async(policy: AnyPolicy) -> TypeGuard[AsyncPolicy]:
    """Whether a policy answers requests independently."""
    return hasattr(policy, "respond")


def check_temperature(temperature: float) -> None:
    """Reject a temperature that is negative or not finite, with a `ValueError`."""
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature {temperature} is not a finite number >= 0")


def draw_requests(
    prompts: Sequence[Conversation], policy: Policy, rng: np.random.Generator | None, *, temperature: float
) -> list[Request]:
    """One request per prompt, with `numbers_per_response` numbers from `rng`.

    Greedy decoding (`temperature` 0) and policies with their own generator take no numbers.
    """
    count = policy.numbers_per_response if temperature else 0
    if not count or rng is None:
        return [Request(prompt) for prompt in prompts]
    uniform_BT = rng.random((len(prompts), count))
    return [Request(prompt, uniform_T) for prompt, uniform_T in zip(prompts, uniform_BT, strict=True)]
