"""Checks of settings: whether the chosen engine reads them, and whether the parts that they name exist.

A test compares `ONLY` with the code of the engines (tests/unit/config/test_engines.py): a new setting is either read by
both or named there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hgpo.agents.base import AGENTS
from hgpo.agents.prompts import TEMPLATES
from hgpo.config.settings import Config, ConfigError, Engine
from hgpo.envs.registry import SUITES, check_options
from hgpo.estimators import ESTIMATORS, parse_options
from hgpo.plugins import import_named
from hgpo.policies.backends import BACKENDS

ENGINES: tuple[Engine, ...] = get_args(Engine)
ONLY: dict[str, Engine] = {
    "verl": "verl",
    "rollout.last_temperature": "built-in",  # verl's rollout workers read their temperature once, at the start
    "rollout.resample_uniform_groups": "built-in",
    "policy.lora.dropout": "built-in",  # adapters of verl's FSDP engine have no dropout
    "training.max_logits": "built-in",  # verl has use_fused_kernels
    "training.share_prefixes": "built-in",
    "training.gradient_checkpointing": "built-in",  # verl always does it on GPUs, with its own setting
}
"""Section or setting, by its dotted name -> the one engine that reads it; all others are read by both."""


def engines_of(setting: str) -> tuple[Engine, ...]:
    """The engines that read a setting, by its dotted name: `engines_of("verl.nodes") == ("verl",)`."""
    parts = setting.split(".")
    prefixes = (".".join(parts[:depth]) for depth in range(len(parts), 0, -1))
    return next(((ONLY[prefix],) for prefix in prefixes if prefix in ONLY), ENGINES)


def refuse_unread(config: Config) -> None:
    """Reject settings that the chosen engine does not read.

    A table that is named after an engine is allowed, so that one recipe serves both.

    Raises:
        ConfigError: names the setting and the engine that reads it.
    """
    for name, value, field in leaves(config):
        readers = engines_of(name)
        if value != default_of(field) and config.run.engine not in readers and name.partition(".")[0] not in ENGINES:
            raise ConfigError(
                f"{name} = {value!r} is used only by the engine {readers[0]!r}, and run.engine is "
                f"{config.run.engine!r}: leave it out, or train with --engine {readers[0]}",
                name,
            )


def leaves(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any, FieldInfo]]:
    """(dotted name, value, field) of every setting of a section and those inside of it."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value, field


def default_of(field: FieldInfo) -> Any:
    """The default of a setting."""
    return field.get_default(call_default_factory=True)


def check_names(config: Config) -> None:
    """Look up every part that the settings name; modules named by path are imported first, and may register others.

    Every process of a run calls this first, so that all of them know the same parts.

    Raises:
        ConfigError: a part does not exist, or does not take its options.
    """
    environment, template, estimator = config.environment, config.agent.template, config.advantage.estimator
    backend = config.policy.backend
    for setting, name in (
        ("environment.name", environment.name),
        ("agent.name", config.agent.name),
        ("agent.template", template),
        ("advantage.estimator", estimator),
        ("policy.backend", backend),
    ):
        with _about(setting):
            import_named([name])
    with _about("environment.name"):
        suite = SUITES.get(environment.name)
    with _about("environment.options"):
        check_options(environment.name, suite, environment.options)
    with _about("agent.template"):
        TEMPLATES.check(template)
    with _about("agent.name"):
        AGENTS.check(config.agent.name)
    with _about("policy.backend"):
        BACKENDS.check(backend)
    with _about("advantage.estimator"):
        ESTIMATORS.get(estimator)
    with _about("advantage.options"):
        parse_options(estimator, **config.estimator_options)
    _check_estimator(estimator, config.estimator_options, config.agent.history_length)


@contextmanager
def _about(setting: str) -> Iterator[None]:
    """An error in the block becomes an error of this setting."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ConfigError(str(error), setting) from error


def _check_estimator(name: str, options: Mapping[str, Any], history_length: int) -> None:
    """Reject an estimator that cannot be trained with, or that compares more history than the agent remembers."""
    estimator = ESTIMATORS.get(name)
    if not estimator.trainable:
        needs = estimator.needs(estimator.parse(**options))
        columns = " and ".join(f"a column `{column}`" for column in needs)
        raise ConfigError(
            f"advantage.estimator = {name!r} {estimator.untrainable}; `hgpo advantages --estimator {name}` computes it "
            f"for stored steps{f' with {columns}' if columns else ''}",
            "advantage.estimator",
        )
    levels = options.get("history_length", 0)
    if isinstance(levels, int) and levels > history_length:
        raise ConfigError(
            f"advantage.options.history_length = {levels} groups by more history than the agent remembers "
            f"(agent.history_length = {history_length})",
            "advantage.options.history_length",
        )
