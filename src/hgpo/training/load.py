"""How many CPU threads tensor work takes."""

from __future__ import annotations

from pathlib import Path

import torch

from hgpo.assemble import chat_of
from hgpo.config import Config, ConfigError
from hgpo.policies.async_batcher import as_async
from hgpo.policies.backends import check_backend, make_policy
from hgpo.policies.base import AnyPolicy, AsyncPolicy
from hgpo.policies.language_model import COMPUTING, GenerationLimits, LanguageModel
from hgpo.policies.loading import check_source
from hgpo.policies.lora import Adapter, add_adapter, check_peft
from hgpo.policies.openai import server_policy
from hgpo.runs.checkpoints import CheckpointGoneError, named_checkpoint, numbered
from hgpo.runs.folder import RunDirectory, RunDirectoryError
from hgpo.runs.load_settings import is_run
from hgpo.training.checkpoint import is_adapter, open_language_model
from hgpo.utils.checksums import ChangedFileError, check_seal


def use_threads(config: Config) -> None:
    """Take `run.threads` threads from here on, or PyTorch's choice where the setting is left out.

    Whoever computes for a run calls this first: with another number sums are rounded differently.
    """
    if config.run.threads is not None:
        torch.set_num_threads(config.run.threads)


# The language model of a run, at its start or at a checkpoint, and the policy that plays it.


def check_model(config: Config) -> None:
    """Refuse a language model that is not there; see `hgpo.policies.loading.check_source`.

    Raises:
        ConfigError: says what is missing.
    """
    if config.policy.model == "tiny":
        return
    try:
        check_source(config.policy.model, revision=config.policy.revision)
    except ValueError as error:
        raise ConfigError(f"policy.model: {error}", "policy.model") from error


def check_policy(config: Config) -> None:
    """Refuse a policy backend that is not there, that does not take its options, or that cannot be trained with; LoRA
    without the library for it; and a model that is not there. A backend that depends on something is asked last.

    Raises:
        ConfigError: says which and what to do.
        ValueError: from the backend's own check.
    """
    name = config.policy.backend
    try:
        backend = check_backend(name, config.policy.options)
        if config.policy.lora.rank:
            check_peft()
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if not backend.trainable:
        raise ConfigError(
            f"policy.backend = {name!r} gives no token ids and log-probs, without which nothing can be trained; "
            "evaluate with it, and train with another"
        )
    if backend.adapters_only:
        _refuse_other_weights(config)
    check_model(config)  # may ask the hub, so after what can be told here
    if backend.check is not None:
        backend.check(load_language_model(config.policy.model, config), **config.policy.options)


def _refuse_other_weights(config: Config) -> None:
    """For a backend that has the weights of `policy.model` and can be handed none but an adapter's."""
    name = config.policy.backend
    if not config.policy.lora.rank:
        raise ConfigError(
            f"policy.backend = {name!r} cannot be handed whole weights: train an adapter (policy.lora.rank above 0), "
            "or choose another policy.backend",
            "policy.lora.rank",
        )
    if config.warm_start.enabled:
        raise ConfigError(
            f"warm_start.enabled: policy.backend = {name!r} plays the weights that the server holds, which a warm "
            "start would change here alone: warm up in a run with another policy.backend, and serve its folder start/",
            "warm_start.enabled",
        )


def limits_of(config: Config) -> GenerationLimits:
    """How the run uses its language model."""
    policy = config.policy
    return GenerationLimits(
        policy.max_prompt_tokens, policy.max_response_tokens, config.training.precision, chat_of(config)
    )


def start_model(run: RunDirectory, config: Config) -> str:
    """Folder or hub name of the policy before the first update; a folder that the run made is as it made it.

    Raises:
        RunDirectoryError: it is not.
    """
    if not config.warm_start.enabled:
        return config.policy.model
    try:
        check_seal(run.start)
    except ChangedFileError as error:
        raise RunDirectoryError(
            f"{error}. The policy that the run began with is damaged: bring {run.start} back from a copy, or begin "
            "anew in another folder (run.name=…)"
        ) from error
    return str(run.start)


def load_language_model(source: str | Path, config: Config, *, trained: bool = True) -> LanguageModel:
    """From a folder, .gguf file or hub name.

    Weights that are trained are float32; others, such as those that an adapter is trained beside, are held as they are
    computed with.
    """
    return LanguageModel.from_pretrained(
        source,
        limits_of(config),
        revision=config.policy.revision if str(source) == config.policy.model else None,
        device=config.policy.device,
        dtype="float32" if trained and not config.policy.lora.rank else COMPUTING,
    )


def with_adapter(language_model: LanguageModel, config: Config) -> LanguageModel:
    """The model that is trained: with a new adapter where the run has one."""
    if not config.policy.lora.rank:
        return language_model
    return language_model.changed(lambda model: add_adapter(model, adapter_of(config), seed=config.run.seed))


def adapter_of(config: Config) -> Adapter:
    """What the run trains in place of the weights, where `policy.lora.rank` is above 0."""
    lora = config.policy.lora
    return Adapter(lora.rank, lora.effective_alpha, lora.dropout, lora.targets)


def run_policy(config: Config, language_model: LanguageModel) -> AnyPolicy:
    """What plays the language model, as the run's settings say."""
    return make_policy(config.policy.backend, language_model, config.policy.options)


def load_checkpoint_policy(run: RunDirectory, config: Config, checkpoint: str) -> tuple[AnyPolicy, str]:
    """The policy of a run for playing; see `load_checkpoint_model`.

    A training beside may delete the newest checkpoint as soon as it has a newer one, which is then taken.
    """
    try:
        language_model, found = load_checkpoint_model(run, config, checkpoint)
        if found == "start":  # with a new adapter, which changes nothing: some backends play no model without
            language_model = with_adapter(language_model, config)
        return run_policy(config, language_model), found
    except CheckpointGoneError:
        if checkpoint != "newest":
            raise
        return load_checkpoint_policy(run, config, checkpoint)


def load_checkpoint_model(run: RunDirectory, config: Config, checkpoint: str) -> tuple[LanguageModel, str]:
    """The language model of a run: `newest`, `start` or an update's number; also what was meant by it.

    Raises:
        RunDirectoryError: the run has no such checkpoint.
        CheckpointError: it is damaged.
    """
    folder = checkpoint_folder(run, config, checkpoint)
    if folder is None:
        return load_language_model(start_model(run, config), config), "start"
    needs_base = is_adapter(folder) and _has_start(run, config)
    base = load_language_model(start_model(run, config), config) if needs_base else None
    return open_language_model(folder, limits_of(config), device=config.policy.device, base=base), folder.name


def checkpoint_folder(run: RunDirectory, config: Config, checkpoint: str) -> Path | None:
    """Where the checkpoint lies that is meant by `newest` or an update's number; None for an existing `start`.

    Raises:
        RunDirectoryError: the run has no such checkpoint.
    """
    if checkpoint == "start" and _has_start(run, config):
        return None
    folder = None if checkpoint == "start" else named_checkpoint(run.checkpoints, checkpoint)
    if folder is None:
        raise RunDirectoryError(_nothing_to_play(run, config, checkpoint))
    return folder


def _has_start(run: RunDirectory, config: Config) -> bool:
    return run.start.is_dir() or not config.warm_start.enabled


def _nothing_to_play(run: RunDirectory, config: Config, checkpoint: str) -> str:
    there = ["start"] if _has_start(run, config) else []
    there += [path.name for path in numbered(run.checkpoints)]
    if not there:
        return f"{run.path} has no policy yet; `hgpo train --resume {run.path}` goes on with it"
    return f"{run.path} has no checkpoint {checkpoint!r}; take --checkpoint {' or '.join(there)}"


# Any policy that can be asked: a run's, a model's, or a served one's.


def asked_policy(source: str, config: Config, checkpoint: str = "newest") -> tuple[AsyncPolicy, str, str]:
    """What answers, its name for tables, and the name of a run's checkpoint, else "".

    Args:
        source: see `hgpo.runs.load_settings.settings_for`.
        config: which that function made.
        checkpoint: of a run.

    Raises:
        ValueError: there is no such policy, or something is not installed that it needs.
    """
    served = config.policy.backend == "server"
    if not served or is_run(source):
        use_threads(config)
    if is_run(source):
        policy, found = load_checkpoint_policy(RunDirectory(Path(source)), config, checkpoint)
        return as_async(policy), f"{Path(source).resolve().name} ({found})", found
    if served:
        asked = config.policy
        usage = {"max_response_tokens": asked.max_response_tokens, "system_prompt": asked.system_prompt}
        return server_policy(asked.model, asked.options, **usage), asked.model, ""
    language_model = load_language_model(config.policy.model, config, trained=False)
    return as_async(run_policy(config, language_model)), source, ""
