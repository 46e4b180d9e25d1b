"""Converts recipes to typed settings and back; checks that the engine reads them and that named parts exist.

Nothing heavy is imported here, so a mistake in a recipe is reported within a second. A test compares `ONLY` with the
code of the engines (tests/unit/config/test_engines.py): a new setting is either read by both or named there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, get_args

import tomli_w
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from hgpo.agents.base import AgentSpec, make_agent
from hgpo.agents.prompts import TEMPLATES
from hgpo.agents.text_template import is_file, is_text, read_text_template
from hgpo.config.recipes import Tree, written_settings
from hgpo.config.settings import AdvantageSettings, Config, ConfigError, Engine, WarmStartSettings
from hgpo.envs.registry import SUITES
from hgpo.estimators import ESTIMATORS
from hgpo.options import converted_options, is_boolean_as_number
from hgpo.plugins import import_named
from hgpo.policies.backends import AUTO, BACKENDS
from hgpo.rollout.state_keys import make_key
from hgpo.storage.schema import BATCH_COLUMNS, OPTIONAL_BATCH_COLUMNS
from hgpo.utils.text import did_you_mean, visible

ENGINES: tuple[Engine, ...] = get_args(Engine)
ONLY: dict[str, Engine] = {
    "verl": "verl",
    "rollout.last_temperature": "built-in",  # verl's rollout workers read their temperature once, at the start
    "rollout.resample_uniform_groups": "built-in",
    "policy.lora.dropout": "built-in",  # adapters of verl's FSDP engine have no dropout
    "critic.shared": "built-in",  # verl trains a critic as a model of its own
    "critic.loss_weight": "built-in",
    "training.max_logits": "built-in",  # verl has use_fused_kernels
    "training.share_prefixes": "built-in",
    "training.gradient_checkpointing": "built-in",  # verl always does it on GPUs, with its own setting
}
"""Section or setting, by its dotted name -> the one engine that reads it; all others are read by both."""
_WHOLE = Config(warm_start=WarmStartSettings(enabled=True))  # valid settings, from which names and defaults are read


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> Config:
    """Read settings with `read_config` and check that every part they name exists.

    Modules that the settings name by path are imported. If `agent.template` names a file, the text of the file replaces
    the path: a run stores the text, and nothing opens the path again. The path of an existing `policy.model` is made
    absolute, since a run may be resumed in another folder.

    Args:
        path: a recipe; it may extend others. None: the defaults.
        overrides: `section.name=value`, applied last.

    Raises:
        ConfigError: a setting is wrong, or a part that it names does not exist; the message names it.
    """
    tree = written_settings(path, overrides)
    agent = tree.get("agent")
    if isinstance(agent, dict) and is_file(agent.get("template")):
        try:
            agent["template"] = read_text_template(Path(os.path.expanduser(agent["template"])))
        except ValueError as error:
            raise ConfigError(str(error)) from error
    policy = tree.get("policy")
    if isinstance(policy, dict) and isinstance(policy.get("model"), str) and policy.get("backend") != "server":
        policy["model"] = _whole_path(policy["model"])
    config = _validated(tree)
    check_names(config)
    return config


def _whole_path(model: str) -> str:
    """The absolute path of a model's folder or .gguf file; other names are returned unchanged."""
    path = Path(os.path.expanduser(model))
    is_path = path.is_dir() or (path.is_file() and path.suffix.lower() == ".gguf")
    return os.path.abspath(path) if is_path and model not in ("", "tiny") else model


def read_config(path: Path | None, overrides: Sequence[str] = ()) -> Config:
    """A recipe with overrides applied; see `load_config`. Nothing that it names is imported or opened."""
    return _validated(written_settings(path, overrides))


def _validated(tree: Tree) -> Config:
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        problems = error.errors()
        # A list with a wrong item is also reported as a list without that item, which may be too short.
        within = {problem["loc"][:length] for problem in problems for length in range(len(problem["loc"]))}
        named = [problem for problem in problems if problem["loc"] not in within]
        raise ConfigError("\n".join(map(_explain, named))) from error
    for name, value, _ in leaves(config):
        given: Any = reduce(lambda node, part: node.get(part, {}), name.split("."), tree)
        if is_boolean_as_number(given, value):
            raise ConfigError(f"{name}: must be a number (got {given})")
    refuse_unread(config, config.run.engine)
    return config


def dump_config(config: Config) -> str:
    """All settings as TOML, without `extends`; `load_config` of it gives equal settings."""
    return tomli_w.dumps(as_tree(config))


def as_tree(section: BaseModel) -> dict[str, Any]:
    """The settings as plain values. TOML has no null: None is omitted if it is the default, else written as "none"."""
    tree: dict[str, Any] = {}
    plain = section.model_dump(mode="json")
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            tree[name] = as_tree(value)
        elif value is not None:
            tree[name] = plain[name]
        elif field.default is not None:
            tree[name] = "none"
    return tree


def describe_settings() -> list[tuple[str, str, str]]:
    """(dotted name, default, description) of every setting; the description ends with the engine if only one uses it.

    Example: `("verl.nodes", "1", "Nodes that train. (verl only)")`.
    """
    return [(name, str(default_of(field)), _description(name, field)) for name, _, field in leaves(_WHOLE)]


def setting_values(settings: BaseModel) -> dict[str, str]:
    """Dotted name -> value as text, for every setting that `describe_settings` describes."""
    return {name: str(value) for name, value, _ in leaves(settings)}


def _description(name: str, field: FieldInfo) -> str:
    readers, description = engines_of(name), field.description or ""
    return description if readers == ENGINES else f"{description} ({readers[0]} only)"


def _explain(problem: ErrorDetails) -> str:
    """One line that describes a problem found by pydantic."""
    setting = [str(part) for part in problem["loc"]]
    message = problem["msg"].removeprefix("Value error, ")
    given = f"(got {visible(repr(problem['input']))})"
    if not setting:
        return message
    if problem["type"] == "extra_forbidden":
        names = [name for name, _, _ in leaves(_WHOLE)]
        sections = [name.rsplit(".", depth)[0] for name in names for depth in range(1, name.count(".") + 1)]
        meant = did_you_mean(".".join(setting), [*names, *sections])
        message = f"unknown setting{meant or ';'} `hgpo train --settings` lists all"
    elif problem["type"] == "tuple_type":
        message = f"must be a list, e.g. [{problem['input']!r}] {given}"
    elif problem["type"] == "string_type" and isinstance(problem["loc"][-1], str):
        message = f"""must be text; write {".".join(setting)}='"…"' {given}"""
    elif problem["type"] != "value_error" or not isinstance(problem["input"], dict):
        message = f"{message} {given}"
    return f"{'.'.join(setting)}: {message}"


def engines_of(setting: str) -> tuple[Engine, ...]:
    """The engines that read a setting, by its dotted name: `engines_of("verl.nodes") == ("verl",)`."""
    parts = setting.split(".")
    prefixes = (".".join(parts[:depth]) for depth in range(len(parts), 0, -1))
    return next(((ONLY[prefix],) for prefix in prefixes if prefix in ONLY), ENGINES)


def refuse_unread(settings: BaseModel, engine: Engine) -> None:
    """Reject settings that the chosen engine does not read.

    A table that is named after an engine is allowed, so that one recipe serves both.

    Raises:
        ConfigError: names the setting and the engine that reads it.
    """
    for name, value, field in leaves(settings):
        readers = engines_of(name)
        if value != default_of(field) and engine not in readers and name.partition(".")[0] not in ENGINES:
            raise ConfigError(
                f"{name} = {value!r} is used only by the engine {readers[0]!r}, and run.engine is {engine!r}: leave "
                f"it out, or train with --engine {readers[0]}"
            )


def leaves(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any, FieldInfo]]:
    """(dotted name, value, field) of every setting of a section and of the sections inside it."""
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
        ConfigError: a part does not exist, or does not take its options; the estimator cannot be used in a training.
    """
    environment, estimator = config.environment, config.advantage.estimator
    template = "compact" if is_text(config.agent.template) else config.agent.template
    backend = config.policy.backend
    try:
        import_named([environment.name, config.agent.name, template, estimator, backend, config.rollout.state])
        converted_options(f"environment {environment.name!r}", SUITES.get(environment.name), environment.options)
        TEMPLATES.check(template)
        make_key(config.rollout.state)
        if backend != AUTO:
            BACKENDS.check(backend)
        ESTIMATORS.get(estimator)  # before `estimator_options`, which depend on its keywords
        spec = AgentSpec(environment.name, config.agent.template, config.agent.history_length)
        agent = make_agent(config.agent.name, spec, config.agent.options)
        _check_estimator(config.advantage, config.estimator_options, agent.history_length)
    except (ValueError, TypeError) as error:
        raise ConfigError(str(error)) from error


def _check_estimator(advantage: AdvantageSettings, given: Mapping[str, Any], history_length: int | None) -> None:
    """Reject options and a gamma that the estimator does not take, columns that trainings do not have, and options that
    compare more history than the agent remembers (`history_length`; None: all of it)."""
    estimator = ESTIMATORS.get(advantage.estimator)
    try:
        options = estimator.parse(**given)
    except ValueError as error:
        if set(given) <= set(estimator.keywords):
            raise
        raise ValueError(f"{error}. `advantage.options={{}}` leaves out the options of a recipe") from error
    gamma, largest = advantage.gamma, estimator.largest_gamma
    if gamma > largest:
        raise ValueError(f"advantage.gamma = {gamma:g}: {estimator.described(options)} needs at most {largest:g}")
    if missing := set(estimator.needs(options)).difference(BATCH_COLUMNS, OPTIONAL_BATCH_COLUMNS):
        raise ValueError(
            f"advantage.estimator, advantage.options: {estimator.described(options)} needs the column "
            f"{', '.join(sorted(missing))}, which trainings do not have; choose others. Trainings have "
            f"{', '.join(OPTIONAL_BATCH_COLUMNS)}"
        )
    levels = given.get("history_length", 0)
    if isinstance(levels, int) and history_length is not None and levels > history_length:
        raise ValueError(
            f"advantage.options.history_length = {levels} groups by more history than the agent remembers "
            f"(agent.history_length = {history_length})"
        )
