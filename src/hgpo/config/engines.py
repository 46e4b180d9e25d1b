"""Which engine reads which setting, where not both do.

A test compares this with the code of the engines (tests/unit/config/test_engines.py), so that a new setting is either
read by both or named here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hgpo.config.problems import ConfigError
from hgpo.config.settings import Config, Engine

ENGINES: tuple[Engine, ...] = get_args(Engine)
ONLY: dict[str, Engine] = {
    "verl": "verl",
    "rollout.last_temperature": "built-in",  # verl's rollout workers take theirs once, when they start
    "policy.lora.dropout": "built-in",  # verl's FSDP engine gives its adapters none
    "training.max_logits": "built-in",  # verl has use_fused_kernels
    "training.share_prefixes": "built-in",
    "training.gradient_checkpointing": "built-in",  # verl always does it on GPUs, and has a name of its own for it
}
"""Section or setting, by its dotted name -> the one engine that reads it; all others are read by both."""


def engines_of(setting: str) -> tuple[Engine, ...]:
    """The engines that read a setting.

    Args:
        setting: its dotted name.

    Example: `engines_of("verl.nodes") == ("verl",)`, `engines_of("training.updates") == ("built-in", "verl")`.
    """
    parts = setting.split(".")
    prefixes = (".".join(parts[:depth]) for depth in range(len(parts), 0, -1))
    return next(((ONLY[prefix],) for prefix in prefixes if prefix in ONLY), ENGINES)


def refuse_unread(config: Config) -> None:
    """Refuse what was set and the chosen engine does not read.

    A table that is named after an engine may stand: it is how one recipe serves both.

    Raises:
        ConfigError: names the setting and the engine that reads it.
    """
    for name, value, field in leaves(config):
        readers = engines_of(name)
        if value != default_of(field) and config.run.engine not in readers and name.partition(".")[0] not in ENGINES:
            raise ConfigError(
                f"{name} = {value!r} is read by the engine {readers[0]!r} alone, and run.engine is "
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
    """What a setting is where nothing is said of it."""
    return field.get_default(call_default_factory=True)
