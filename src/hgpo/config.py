"""One typed tree of settings, read from TOML and from `section.name=value` overrides.

Nothing heavy is imported here, so a mistake in a recipe is reported within a second. Unknown and contradictory
settings are refused. Defaults are the values that the quickstart was measured with or, where a real LLM is meant, the
published recipe's.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hgpo.training.settings import UpdateSettings
from hgpo.training.settings import WarmStartSettings as ImitationSettings

Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(ge=1)]


class ConfigError(ValueError):
    """A setting is unknown, out of range or at odds with another; the message says which and what is allowed."""


class Section(BaseModel):
    """A part of the tree: frozen, and closed to unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RunSettings(Section):
    """Where a run is written and what makes it repeatable."""

    name: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Folder name under `directory`.")
    directory: str = Field("runs", description="Folder that holds all runs.")
    seed: int = Field(0, ge=0, description="Seed of every generator of the run.")
    threads: Positive | None = Field(None, description="CPU threads for tensor work; default: PyTorch's choice.")
    engine: Literal["built-in", "verl"] = Field("built-in", description="What trains; `--engine` sets it.")


class EnvironmentSettings(Section):
    """Which tasks the agent is trained on."""

    name: str = Field("alfworld", description="Registered name, entry point, or `package.module:factory`.")
    train_split: str = Field("train", description="Split that training draws its tasks from.")
    max_steps: Positive = Field(50, description="Steps after which an episode is cut.")
    options: dict[str, Any] = Field(default_factory=dict, description="Passed to the environment's factory.")


class AgentSettings(Section):
    """What the model is told and how it is read."""

    history_length: int = Field(2, ge=0, description="K: remembered (observation, action) pairs; also HGPO's levels.")
    template: str = Field("household-reasoning", description="Prompt template; see `hgpo doctor` for the names.")


class TinyModelSettings(Section):
    """Shape of the Qwen2-architecture model that is built when `policy.model = "tiny"`."""

    hidden_size: Positive = Field(64, description="Width; a multiple of 2 * attention_heads.")
    layers: Positive = Field(2, description="Transformer layers.")
    attention_heads: Positive = Field(4, description="Attention heads per layer.")


class PolicySettings(Section):
    """The model."""

    model: str = Field("tiny", description='A folder or hub name in Hugging Face format, or "tiny" to build one.')
    tiny: TinyModelSettings = TinyModelSettings()
    device: str = Field("auto", description="auto: CUDA where there is one, else CPU.")
    max_prompt_tokens: Positive = Field(4096, description="Longer prompts lose their oldest memory first.")
    max_response_tokens: Positive = Field(512, description="A response is cut there, and counted.")


class RolloutSettings(Section):
    """How experience is collected."""

    tasks_per_update: Positive = Field(16, description="Groups an update.")
    group_size: int = Field(8, ge=2, description="N: rollouts of one task, all from the same start.")
    temperature: float = Field(1.0, gt=0, description="Sampling temperature in training.")
    reward: Literal["won", "environment"] = Field("won", description="won: 1 on the winning step; or the env's own.")
    reward_scale: float = Field(10.0, gt=0, description="Factor on the reward.")
    invalid_action_penalty: float = Field(0.1, ge=0, description="Subtracted from an ill-formed step's return.")
    state: Literal["observation", "observation_and_commands"] = Field(
        "observation", description="What must be equal for two steps to count as being in the same state."
    )
    resample_uniform_groups: int = Field(
        0, ge=0, description="Dynamic sampling: how often groups with equal scores are drawn anew (0: never)."
    )
    store_every: int = Field(1, ge=0, description="Write rollouts/*.parquet every so many updates (0: never).")


class AdvantageSettings(Section):
    """The estimator; `options` are its own."""

    estimator: str = Field("hgpo", description="Registered name of the estimator.")
    gamma: Fraction = Field(0.95, description="Discount of the step return.")
    options: dict[str, Any] = Field(default_factory=dict, description="E.g. preset, mode, length_weight_alpha.")


class TrainingSettings(UpdateSettings):
    """The policy update (inherited) and how many there are."""

    updates: int = Field(160, ge=0, description="Policy updates of the run.")
    checkpoint_every: Positive = Field(40, description="Updates between checkpoints; the last is always kept.")
    keep_checkpoints: int = Field(2, ge=1, description="How many of the newest checkpoints stay.")


class WarmStartSettings(ImitationSettings):
    """Supervised start on expert demonstrations (inherited): the stand-in for an instruction-tuned model."""

    enabled: bool = Field(False, description="Imitate an expert before the first update; needed by a tiny model.")
    demonstrations: Positive = Field(2000, description="Training games the expert plays.")
    noise: Fraction = Field(0.3, description="Share of the expert's actions replaced by random admissible ones.")
    probe_games: Positive = Field(128, description="Training games, not demonstrated, that success is probed on.")


class EvaluationSettings(Section):
    """Held-out success before and after."""

    split: str = Field("valid_unseen", description="Split that success is reported on.")
    games: Positive | None = Field(None, description="First so many games of the split; default: all.")
    temperature: float = Field(0.4, ge=0, description="Sampling temperature; 0 is greedy.")
    seeds: tuple[int, ...] = Field((123,), min_length=1, description="The panel is played once per seed.")
    every: int = Field(0, ge=0, description="Updates between evaluations during training (0: only first and last).")


class VerlSettings(Section):
    """Only read with `--engine verl` (docs/scaling.md): cluster, environment workers, and verl's own settings."""

    ray_address: str | None = Field(None, description='A running cluster ("auto", "host:port"); default: start Ray.')
    ray_cpus: Positive | None = Field(None, description="CPUs Ray may hand out when it is started here.")
    nodes: Positive = Field(1, description="Nodes that train.")
    gpus_per_node: Positive = Field(1, description="GPUs of each; with policy.device = cpu: training processes.")
    rollout: str = Field("vllm", description="verl's rollout engine; policy.device = cpu has one of its own.")
    tensor_parallel: Positive = Field(1, description="GPUs that share one copy of the rollout engine.")
    agent_workers: Positive = Field(8, description="Processes that play episodes, spread over the nodes.")
    environment_workers: Positive = Field(1, description="Processes with environments, per agent worker.")
    step_timeout: float = Field(60.0, gt=0, description="Seconds an environment may take for one step or start.")
    evaluate_only: bool = Field(False, description="Evaluate the start policy and end, without an update.")
    overrides: dict[str, Any] = Field(default_factory=dict, description="verl's own settings, by verl's names.")


class Config(Section):
    """The whole tree; `hgpo train RECIPE.toml section.name=value …`."""

    run: RunSettings = RunSettings()
    environment: EnvironmentSettings = EnvironmentSettings()
    agent: AgentSettings = AgentSettings()
    policy: PolicySettings = PolicySettings()
    rollout: RolloutSettings = RolloutSettings()
    advantage: AdvantageSettings = AdvantageSettings()
    training: TrainingSettings = TrainingSettings()
    warm_start: WarmStartSettings = WarmStartSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    verl: VerlSettings = VerlSettings()

    @property
    def run_directory(self) -> Path:
        """`runs/<name>`."""
        return Path(self.run.directory) / self.run.name

    @property
    def estimator_options(self) -> dict[str, Any]:
        """The estimator's options; one that compares histories takes what the agent remembers unless told otherwise."""
        from hgpo.estimators import get, names

        options = dict(self.advantage.options)
        estimator = self.advantage.estimator
        if estimator in names() and "history_length" in get(estimator).keywords:
            options.setdefault("history_length", self.agent.history_length)
        return options

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        if self.policy.model == "tiny" and not self.warm_start.enabled:
            raise ValueError('policy.model = "tiny" starts from random weights: set warm_start.enabled = true')
        if self.evaluation.split == self.environment.train_split:
            raise ValueError("evaluation.split and environment.train_split are the same: success would not be held out")
        if self.verl.evaluate_only and self.run.engine != "verl":
            raise ValueError(
                "verl.evaluate_only = true is verl's way to evaluate: add --engine verl, or use `hgpo eval`"
            )
        if self.advantage.estimator == "gae":
            raise ValueError(
                "advantage.estimator = 'gae' needs a critic's values, and none is trained here; "
                "`hgpo advantages --estimator gae` computes it for stored steps with a column `value`"
            )
        levels = self.estimator_options.get("history_length", 0)
        if isinstance(levels, int) and levels > self.agent.history_length:
            raise ValueError(
                f"advantage.options.history_length = {levels} groups by more history than the agent remembers "
                f"(agent.history_length = {self.agent.history_length})"
            )
        return self


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> Config:
    """Read a recipe and apply `section.name=value` overrides. `ConfigError` names every setting that is wrong."""
    tree: dict[str, Any] = {} if path is None else read_toml(path)
    for override in overrides:
        apply_override(tree, override)
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from error
    _check_names(config)
    return config


def read_toml(path: Path) -> dict[str, Any]:
    """The file as nested dictionaries, or a `ConfigError` that names file and line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"no such recipe: {path}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def apply_override(tree: dict[str, Any], override: str) -> None:
    """Set `a.b.c=value` in place; the value is read as TOML, else taken as a string."""
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"override {override!r} is not of the form section.name=value")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *sections, name = key.strip().split(".")
    node = tree
    for section in sections:
        node = node.setdefault(section, {})
        if not isinstance(node, dict):
            raise ConfigError(f"override {override!r}: {section!r} is a value, not a section")
    node[name] = value


def dump_config(config: Config) -> str:
    """The tree as TOML, complete; `load_config` of it gives an equal tree."""
    return tomli_w.dumps(as_tree(config))


def as_tree(section: BaseModel) -> dict[str, Any]:
    """The settings as plain values. TOML has no null: what is None is left out, or "none" where that is no default."""
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
    """(dotted name, default, description) of every setting, for `--help`."""
    rows: list[tuple[str, str, str]] = []
    _describe(Config(warm_start=WarmStartSettings(enabled=True)), "", rows)
    return rows


def _describe(section: BaseModel, prefix: str, rows: list[tuple[str, str, str]]) -> None:
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            _describe(value, f"{prefix}{name}.", rows)
        else:
            rows.append((f"{prefix}{name}", str(field.get_default(call_default_factory=True)), field.description or ""))


def _check_names(config: Config) -> None:
    """Names that point into registries, checked before anything heavy is imported."""
    from hgpo.agents.prompts import template_names
    from hgpo.envs.registry import check_options, find_factory
    from hgpo.estimators import parse_options

    try:
        if config.agent.template not in template_names():
            raise ValueError(f"agent.template {config.agent.template!r} is not one of {', '.join(template_names())}")
        parse_options(config.advantage.estimator, **config.estimator_options)
        check_options(config.environment.name, find_factory(config.environment.name), config.environment.options)
    except (ValueError, TypeError) as error:
        raise ConfigError(str(error)) from error


def _explain(error: ValidationError) -> str:
    lines = []
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"]) or "config"
        if problem["type"] == "extra_forbidden":
            lines.append(f"{where}: unknown setting; `hgpo train --settings` lists all")
        elif problem["type"] == "tuple_type":
            lines.append(f"{where}: a list is wanted, e.g. [{problem['input']!r}] (got {problem['input']!r})")
        else:
            message = problem["msg"].removeprefix("Value error, ")
            lines.append(f"{where}: {message} (got {problem['input']!r})" if problem["loc"] else message)
    return "\n".join(lines)
