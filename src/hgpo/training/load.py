"""Loads language models and policies: those of the policy settings, and a run's start policy and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from hgpo.config import ConfigError, LoraSettings, PolicySettings
from hgpo.options import converted_options
from hgpo.policies.backends import AUTO, BACKENDS, DEFAULT, check_backend, make_policy
from hgpo.policies.base import AnyPolicy
from hgpo.policies.chat import Chat, PromptEncoder
from hgpo.policies.language_model import COMPUTING, GenerationLimits, LanguageModel
from hgpo.policies.loading import check_source, is_adapter, resolve_device
from hgpo.policies.vllm import GPU_SHARE
from hgpo.policies.weights import Adapter, add_adapter, check_peft
from hgpo.runs.checkpoints import ChangedFileError, check_checksums, content_digest, newest_complete, numbered
from hgpo.runs.folder import RunDirectory, RunDirectoryError, resume_command
from hgpo.training.checkpoint import open_language_model


def use_threads(threads: int | None) -> None:
    """Use this many CPU threads for tensors (`run.threads`); None: PyTorch's choice.

    Every process that computes for a run calls this first, because sums round differently with another number.
    """
    if threads is not None:
        torch.set_num_threads(threads)


def check_model(policy: PolicySettings) -> None:
    """Check that the language model exists and has a usable chat template; no weights are loaded.

    Raises:
        ConfigError: there is no such model, or its chat template is missing or not usable.
    """
    if policy.model == "tiny":
        return
    try:
        tokenizer = check_source(policy.model, revision=policy.revision)
    except ValueError as error:
        raise ConfigError(f"policy.model: {error}") from error
    try:
        if tokenizer is not None:
            PromptEncoder(tokenizer, policy.max_prompt_tokens, chat_of(policy))
    except ValueError as error:
        raise ConfigError(str(error)) from error


def check_policy(policy: PolicySettings, *, warm_start: bool) -> None:
    """Check that the backend exists, accepts its options and can train, that LoRA's library is installed and that the
    model exists. The backend's own check of its dependencies runs last.

    Args:
        policy: the settings.
        warm_start: whether the run imitates an expert first.

    Raises:
        ConfigError: names the setting and the remedy.
        ValueError: from the backend's own check.
    """
    name = DEFAULT if policy.backend == AUTO else policy.backend
    try:
        backend, options = check_backend(name, policy.options)
        if policy.lora.rank:
            check_peft()
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if not backend.trainable:
        raise ConfigError(
            f"policy.backend = {name!r} returns no token ids and log-probs, which training needs; "
            "use it to evaluate, and another policy.backend to train"
        )
    if backend.adapters_only and not policy.lora.rank:
        raise ConfigError(
            f"policy.backend = {name!r} cannot receive whole weights: train an adapter (policy.lora.rank above 0), "
            "or choose another policy.backend",
        )
    if backend.adapters_only and warm_start:
        raise ConfigError(
            f"warm_start.enabled = true: policy.backend = {name!r} samples from the server's weights, which the warm "
            "start does not change: use another policy.backend for the warm start, then serve that run's folder start/",
        )
    check_model(policy)  # may ask the hub, so after the checks on this machine
    if backend.check is not None:
        backend.check(load_language_model(policy.model, policy), **options)


def limits_of(policy: PolicySettings) -> GenerationLimits:
    """Token limits, precision and chat of the policy's language model."""
    return GenerationLimits(policy.max_prompt_tokens, policy.max_response_tokens, policy.precision, chat_of(policy))


def chat_of(policy: PolicySettings) -> Chat:
    """System prompt and options of the chat template."""
    return Chat(policy.system_prompt, policy.chat_template_options)


def load_language_model(source: str | Path, policy: PolicySettings, *, trained: bool = True) -> LanguageModel:
    """Load a model from a folder, .gguf file or hub name.

    Trained weights are float32; frozen weights, such as those under an adapter, have the type of the computation.
    """
    return LanguageModel.from_pretrained(
        source,
        limits_of(policy),
        revision=policy.revision if str(source) == policy.model else None,
        device=policy.device,
        dtype="float32" if trained and not policy.lora.rank else COMPUTING,
    )


def with_adapter(language_model: LanguageModel, lora: LoraSettings, *, seed: int) -> LanguageModel:
    """The model to train: `language_model` itself, or with a new adapter if `lora.rank` is above 0."""
    if not lora.rank:
        return language_model
    adapter = Adapter(lora.rank, lora.effective_alpha, lora.dropout, lora.targets)
    return language_model.changed(lambda model: add_adapter(model, adapter, seed=seed))


def choose_sampler(policy: PolicySettings) -> tuple[PolicySettings, str]:
    """The settings with "auto" replaced by a backend, and a line that explains the choice on CUDA ("" otherwise)."""
    if policy.backend != AUTO:
        return policy, ""
    name, line = DEFAULT, ""
    if resolve_device(policy.device).type == "cuda":
        name, line = _sampler_on_cuda(policy)
    return policy.model_copy(update={"backend": name}), line


def _sampler_on_cuda(policy: PolicySettings) -> tuple[str, str]:
    """The backend (vLLM if it is installed and accepts the options), and a line with the choice and its reason."""
    vllm = BACKENDS.get("vllm")
    if policy.model == "tiny":
        return DEFAULT, f"Sampler: {DEFAULT} (policy.backend = auto): a tiny model does not need vLLM"
    if (missing := vllm.missing()) is not None:
        return DEFAULT, f"Note: generation will be slow: policy.backend = auto uses vLLM on CUDA, but {missing}"
    try:
        options = converted_options("policy backend 'vllm'", vllm.make, policy.options, given=1)
    except ValueError as error:
        return DEFAULT, f"Note: generation will be slow: policy.backend = auto does not use vLLM: {error}"
    share = options.get("gpu_memory_utilization", GPU_SHARE)
    return "vllm", (
        f"Sampler: vLLM (policy.backend = auto on CUDA) with {share:.0%} of the GPU memory, freed during updates; not "
        "measured on GPUs. To use transformers instead, set policy.backend=transformers"
    )


def make_backend_policy(policy: PolicySettings, language_model: LanguageModel) -> AnyPolicy:
    """A policy that samples from `language_model` with the backend of the settings; "auto" means transformers."""
    return make_policy(DEFAULT if policy.backend == AUTO else policy.backend, language_model, policy.options)


@dataclass(frozen=True, slots=True)
class RunPolicies:
    """The policies of one run: the policy before the first update, and its checkpoints.

    Attributes:
        run: the run's folder.
        settings: the run's policy settings.
        warm_start: whether the run has a warm start, whose policy is in `start/`.
        seed: seed of a new adapter's weights.
    """

    run: RunDirectory
    settings: PolicySettings
    warm_start: bool
    seed: int

    def start_source(self) -> str:
        """Folder or hub name of the policy before the first update.

        Raises:
            RunDirectoryError: files of `start/` have changed since the run wrote them.
        """
        if not self.warm_start:
            return self.settings.model
        try:
            check_checksums(self.run.start)
        except ChangedFileError as error:
            raise RunDirectoryError(
                f"{error}. The start policy of the run is damaged: restore {self.run.start} from a copy, or "
                "start a new run in another folder (run.name=…)"
            ) from error
        return str(self.run.start)

    def start_model(self) -> LanguageModel:
        """The language model before the first update, without an adapter."""
        return load_language_model(self.start_source(), self.settings)

    def policy(self, checkpoint: str) -> tuple[AnyPolicy, str]:
        """A policy that plays a checkpoint, and the checkpoint's name; see `language_model`."""
        language_model, found = self.language_model(checkpoint)
        if found == "start":  # a new adapter does not change the output, and some backends require an adapter
            language_model = with_adapter(language_model, self.settings.lora, seed=self.seed)
        return make_backend_policy(self.settings, language_model), found

    def language_model(self, checkpoint: str) -> tuple[LanguageModel, str]:
        """The language model of `newest`, `start` or an update's number, and the checkpoint's name.

        Raises:
            RunDirectoryError: the run has no such checkpoint, or the start policy under its adapter is missing.
            CheckpointError: the checkpoint is damaged.
        """
        folder = self.folder(checkpoint)
        if folder is None:
            return self.start_model(), "start"
        base = self.start_model() if is_adapter(folder) else None
        return open_language_model(
            folder, limits_of(self.settings), device=self.settings.device, base=base
        ), folder.name

    def weights_digest(self, checkpoint: str) -> str:
        """A digest of the checkpoint's files; "" for a start policy that the run did not make."""
        folder = self.folder(checkpoint) or self.run.start
        return content_digest(folder) if folder.is_dir() else ""

    def folder(self, checkpoint: str) -> Path | None:
        """Folder of the checkpoint `newest` or an update's number; None for an existing `start`.

        Raises:
            RunDirectoryError: the run has no such checkpoint.
        """
        if checkpoint == "start" and self._has_start():
            return None
        checkpoints = self.run.checkpoints
        if checkpoint == "newest":
            folder = newest_complete(checkpoints)
        else:
            folder = next((path for path in numbered(checkpoints) if path.name == checkpoint), None)
        if folder is None:
            raise RunDirectoryError(self._no_checkpoint(checkpoint))
        return folder

    def _has_start(self) -> bool:
        return self.run.start.is_dir() or not self.warm_start

    def _no_checkpoint(self, checkpoint: str) -> str:
        names = ["start"] if self._has_start() else []
        names += [path.name for path in numbered(self.run.checkpoints)]
        if not names:
            return f"{self.run.path} has no policy yet; {resume_command(self.run.path)} resumes it"
        return f"{self.run.path} has no checkpoint {checkpoint!r}; choose --checkpoint {' or '.join(names)}"
