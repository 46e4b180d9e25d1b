"""The one interface between rollouts and whatever answers a prompt, in two forms.

A `BatchPolicy` answers many requests in one call: a turn of all live episodes is one batch. An `AsyncPolicy` answers
each request in its own time, as servers and engines with continuous batching do, so that an episode goes on as soon as
its own answer is there. Either may be given to `hgpo.rollout.runner`.

Randomness travels with the request, as numbers and not as a generator: a server cannot hold a numpy generator, but it
can be told a seed.

Shape suffixes: B requests, T numbers (for most policies one per response token).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from hgpo.messages import Conversation

_SEED_BITS = 53  # what a float64 in [0, 1) holds


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A prompt that waits for its response.

    Attributes:
        prompt: see `hgpo.messages`.
        uniform_T: float64[T] in [0, 1), T = the policy's `numbers_per_response`: the same numbers give the same
            response. None: the policy is greedy (temperature 0) or draws by itself.

    Example: `Request("task : open the door …", uniform_T=rng.random(4)).seed` is a whole number below 2**53.
    """

    prompt: Conversation
    uniform_T: NDArray[np.float64] | None = None

    @property
    def seed(self) -> int | None:
        """The first number as a seed, for policies that draw by themselves once they are told where to begin."""
        return None if self.uniform_T is None else int(self.uniform_T[0] * 2**_SEED_BITS)


@dataclass(frozen=True, slots=True)
class RequestUsage:
    """Tokens, requests, time and cost of one response, as its policy reports them.

    Attributes:
        prompt_tokens, response_tokens: as counted by whoever answered.
        requests: sent until there was an answer.
        seconds: until the answer was there, repetitions included.
        cost: of the tokens; 0 where nobody gave prices (`hgpo.policies.pricing`).
    """

    prompt_tokens: int
    response_tokens: int
    requests: int
    seconds: float
    cost: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """What a policy answered to one prompt.

    Attributes:
        text: the answer, control tokens left out.
        prompt_ids, token_ids: int32, what the model read and wrote, end token included.
        log_probs: float32, of the sampled tokens under the distribution they were drawn from (temperature applied).
        finished: it ended by itself (end-of-turn token) and was not cut at the response limit.
        details: what an engine says beside it and its trainer wants back; empty for most.
        usage: tokens, requests, seconds and cost; None: the token arrays above are all that is known.

    A policy without a model (scripted) leaves the arrays empty.

    Example: `Response("go to fridge 1", prompt_ids=int32[57], token_ids=int32[5], log_probs=float32[5],
    finished=True)`: four words and the end token.
    """

    text: str
    prompt_ids: np.ndarray
    token_ids: np.ndarray
    log_probs: np.ndarray
    finished: bool
    details: Mapping[str, Any] = field(default_factory=dict)
    usage: RequestUsage | None = None


class PromptTooLong(ValueError):
    """A prompt has more tokens than the policy takes. Prompts are never cut: a cut one would train on other text."""

    def __init__(self, *, index: int, tokens: int, limit: int) -> None:
        super().__init__(
            f"prompt {index} has {tokens} tokens, the limit is {limit}: "
            "shorten the memory (history_length) or raise max_prompt_tokens"
        )
        self.index = index
        self.tokens = tokens
        self.limit = limit


class PromptCounter(Protocol):
    """Knows how many tokens a prompt takes, and how many it may."""

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """Tokens each prompt takes, chat template included."""
        ...

    @property
    def max_prompt_tokens(self) -> int | None:
        """The longest prompt it takes; None where there is no limit."""
        ...


class Policy(PromptCounter, Protocol):
    """What both forms share."""

    @property
    def numbers_per_response(self) -> int:
        """How many random numbers a request brings; 0 where the policy draws by itself."""
        ...

    def take_weights(self, model: Any) -> None:
        """Answer with the weights of `model`, the trained torch module, from now on.

        Called after every update. Nothing to do for a policy that samples from that very module.
        """
        ...


class BatchPolicy(Policy, Protocol):
    """Answers requests together."""

    def generate(self, requests: Sequence[Request], *, temperature: float) -> list[Response]:
        """One response per request, in order. `temperature` 0 is greedy.

        Raises:
            PromptTooLong: a prompt exceeds `max_prompt_tokens`.
        """
        ...


class AsyncPolicy(Policy, Protocol):
    """Answers each request in its own time; many may be under way."""

    async def respond(self, request: Request, *, temperature: float) -> Response:
        """The response to one request. `temperature` 0 is greedy.

        Raises:
            PromptTooLong: the prompt exceeds `max_prompt_tokens`.
        """
        ...


AnyPolicy = BatchPolicy | AsyncPolicy


def is_async(policy: AnyPolicy) -> TypeGuard[AsyncPolicy]:
    """Whether a policy answers each request in its own time."""
    return hasattr(policy, "respond")


def check_temperature(temperature: float) -> None:
    """Refuse one that nothing can be drawn at, with a `ValueError`; 0 is greedy."""
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature {temperature} is not a finite number >= 0")


def draw_requests(
    prompts: Sequence[Conversation], policy: Policy, rng: np.random.Generator | None, *, temperature: float
) -> list[Request]:
    """The prompts with the numbers that decide their responses, `numbers_per_response` each, drawn from `rng`.

    Greedy decoding (`temperature` 0) takes none, nor does a policy that draws by itself.
    """
    count = policy.numbers_per_response if temperature else 0
    if not count or rng is None:
        return [Request(prompt) for prompt in prompts]
    uniform_BT = rng.random((len(prompts), count))
    return [Request(prompt, uniform_T) for prompt, uniform_T in zip(prompts, uniform_BT, strict=True)]


Inner = TypeVar("Inner", bound=Policy)


class PolicyWrapper(Generic[Inner]):
    """Forwards everything of `hgpo.policies.base.Policy` to another policy."""

    def __init__(self, policy: Inner) -> None:
        """Wrap `policy`."""
        self._policy = policy

    @property
    def max_prompt_tokens(self) -> int | None:
        """The longest prompt it takes."""
        return self._policy.max_prompt_tokens

    @property
    def numbers_per_response(self) -> int:
        """How many random numbers a request brings."""
        return self._policy.numbers_per_response

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """Tokens each prompt takes."""
        return self._policy.count_prompt_tokens(prompts)

    def take_weights(self, model: Any) -> None:
        """Answer with the weights of `model` from now on."""
        self._policy.take_weights(model)
