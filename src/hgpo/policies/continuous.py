"""The backend "continuous": transformers' continuous batching, with a key-value cache in pages.

It samples from the very weights that are trained where they have the type that the model computes in, and no adapter.
Otherwise (float32 weights under bfloat16 arithmetic, LoRA) it holds a copy, adapters merged, that is renewed after
every update: the cache has the type of the weights, and knows no autocast.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from math import ceil
from typing import Any

import torch
from transformers import GenerationConfig

from hgpo.policies.adapters import has_adapter
from hgpo.policies.backends import Backend
from hgpo.policies.driver import EnginePolicy, Order, Written, check_lengths, computing_type
from hgpo.policies.language_model import LanguageModel
from hgpo.policies.weights import merged_weights

_CPU_STEP, _ACCELERATOR_STEP = 512, 4096
_FILLED = 0.8  # the scheduler takes no new prompt once so much of the cache is in use


def make_continuous_policy(
    language_model: LanguageModel, *, max_batch_size: int = 64, max_step_tokens: int | None = None
) -> EnginePolicy:
    """A policy that answers through transformers' continuous batching.

    It draws from PyTorch's global generator, which the first request of a collection seeds: a request's own seed does
    not decide its answer by itself, the collection's prompts and their order do so together.

    Args:
        language_model: what answers.
        max_batch_size: most answers under way at once; the key-value cache holds as many of full length.
        max_step_tokens: most tokens of prompts and answers in one forward pass; None: 4,096 on an accelerator and 512
            on a CPU.

    Raises:
        ValueError: the lengths exceed the model's positions.
    """
    check_lengths(language_model)
    on_cpu = language_model.model.device.type == "cpu"
    step_tokens = max_step_tokens or (_CPU_STEP if on_cpu else _ACCELERATOR_STEP)
    return EnginePolicy("continuous", language_model, ContinuousEngine(language_model, max_batch_size, step_tokens))


class ContinuousEngine:
    """transformers' batch processor, stepped in the caller's thread; its own manager would run a thread of its own."""

    def __init__(self, language_model: LanguageModel, max_batch_size: int, step_tokens: int) -> None:
        """Bound the memory: the cache by answers under way, the activations by tokens of a step."""
        self._language_model = language_model
        self._max_batch_size, self._step_tokens = max_batch_size, step_tokens
        self._dtype = computing_type(language_model)
        self._copy: Any = None
        self._batches: _Batches | None = None
        self._backlog: deque[tuple[str, Order]] = deque()
        self._open: set[str] = set()
        self.take_weights(language_model.model)

    def add(self, key: str, order: Order) -> None:
        """Take a prompt.

        Raises:
            ValueError: answers are under way at another temperature.
        """
        idle = not self._open and not self._backlog
        if self._batches is None or self._batches.temperature != order.temperature:
            if not idle:
                raise ValueError("answers at two temperatures cannot be under way at once")
            self._batches = None  # frees its cache first
            self._batches = self._new_batches(order.temperature)
        if idle and order.seed is not None:
            torch.manual_seed(order.seed)
        self._backlog.append((key, order))

    def step(self) -> dict[str, Written]:
        """Write on; the answers that this step completed."""
        assert self._batches is not None
        while self._backlog and len(self._open) < self._max_batch_size:
            key, order = self._backlog.popleft()
            self._batches.add(key, order)
            self._open.add(key)
        written = self._batches.step()
        self._open -= written.keys()
        return written

    def drop(self, keys: Sequence[str]) -> None:
        """Forget prompts."""
        self._backlog = deque(waiting for waiting in self._backlog if waiting[0] not in keys)
        for key in self._open.intersection(keys):
            assert self._batches is not None
            self._batches.drop(key)
        self._open.difference_update(keys)

    def take_weights(self, model: Any) -> None:
        """Write with the weights of `model` from now on; cached prefixes are the old ones' and go."""
        self._batches = None
        if _may_be_shared(model, self._dtype):
            self._module = copy.deepcopy(model, {id(one): one for one in model.parameters()})
            return
        if self._copy is None:
            self._copy = _plain_copy(model, self._dtype)
        own = self._copy.state_dict()
        for name, tensor in merged_weights(model):
            own[name].copy_(tensor)
        self._module = self._copy

    def _new_batches(self, temperature: float) -> _Batches:
        usage = self._language_model.usage
        sampling: dict[str, Any] = {"do_sample": False}
        if temperature:
            sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        generation = GenerationConfig(
            max_new_tokens=usage.response_tokens,
            eos_token_id=self._language_model.end_tokens,
            **sampling,
        )
        longest = usage.prompt_tokens + usage.response_tokens
        return _Batches(self._module, generation, temperature, (self._max_batch_size, longest, self._step_tokens))


class _Batches:
    """A key-value cache and what is written into it, at one temperature."""

    def __init__(
        self, module: Any, generation: GenerationConfig, temperature: float, bounds: tuple[int, int, int]
    ) -> None:
        from transformers.generation.configuration_utils import ContinuousBatchingConfig

        rows, longest, step_tokens = bounds
        page = ContinuousBatchingConfig().block_size or ContinuousBatchingConfig().page_size
        pages = ceil(rows * ceil(longest / page) / _FILLED) + 1
        config = ContinuousBatchingConfig(
            num_blocks=pages,
            max_batch_tokens=step_tokens,
            use_async_batching=False,  # a step is over when its tokens are there
            return_logprobs=True,
        )
        self.temperature = temperature
        self._module = module
        self._manager = module.init_continuous_batching(generation, config)
        self._manager.warmup()  # makes the processor; captures CUDA graphs where there are any
        self._processor = self._manager.batch_processor

    def add(self, key: str, order: Order) -> None:
        self._manager.add_request(order.prompt_ids.tolist(), request_id=key)

    def drop(self, key: str) -> None:
        self._manager.cancel_request(key)

    def step(self) -> dict[str, Written]:
        if self._processor.prepare_next_batch():
            self._processor._generation_step(self._module)
            self._processor.update_batch()
        written = {}
        while (output := self._manager.get_result(timeout=0)) is not None:
            if output.error is not None:
                raise RuntimeError(output.error)
            if len(output.logprobs) != len(output.generated_tokens):
                raise RuntimeError(
                    f"{len(output.logprobs)} log-probs of {len(output.generated_tokens)} tokens came back"
                )
            written[output.request_id] = Written(output.generated_tokens, output.logprobs)
        return written


def _may_be_shared(model: Any, dtype: torch.dtype) -> bool:
    """Whether a module with the same parameters computes in `dtype`. It has a configuration of its own: its attention
    is another one than in training."""
    return not has_adapter(model) and all(one.dtype == dtype for one in model.parameters())


def _plain_copy(model: Any, dtype: torch.dtype) -> Any:
    """A module without adapters and with parameters of its own; buffers keep their type."""
    own = {
        id(one): torch.nn.Parameter(torch.empty_like(one, dtype=dtype), requires_grad=False)
        for one in model.parameters()
    }
    twin = copy.deepcopy(model, own)
    return twin.unload() if has_adapter(model) else twin


def _missing() -> str | None:
    from transformers.generation import configuration_utils

    config = getattr(configuration_utils, "ContinuousBatchingConfig", None)
    if config is None or not hasattr(config, "return_logprobs"):
        return 'it needs transformers 5.10 or newer: pip install --upgrade "transformers>=5.10,<6"'
    return None


BACKEND = Backend(make_continuous_policy, missing=_missing)
