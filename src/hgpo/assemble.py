"""The composition root: builds the parts that the settings describe, and starts or resumes training.

PyTorch is imported inside the functions that need it, because `hgpo rollout`, `hgpo play` and `hgpo eval --server`
build their parts without it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgpo.agents import Agent, AgentSpec, make_agent
from hgpo.agents.text_template import label
from hgpo.config import (
    AdvantageSettings,
    AgentSettings,
    Config,
    ConfigError,
    EnvironmentSettings,
    EvaluationSettings,
    PolicySettings,
    RolloutSettings,
    WarmStartSettings,
    check_names,
)
from hgpo.config.loading import leaves
from hgpo.envs.base import Task, TaskSuite
from hgpo.envs.registry import make
from hgpo.envs.wrappers import LimitedSuite
from hgpo.estimators import ESTIMATORS, Advantages
from hgpo.evaluation.evaluator import NO_LIMIT, EvalBudget, Evaluator
from hgpo.evaluation.summary import write_summary
from hgpo.policies.base import AsyncPolicy
from hgpo.rollout.monitor import RolloutMonitor
from hgpo.rollout.prompts import RolloutRules
from hgpo.runs.checkpoints import recover
from hgpo.runs.folder import RunDirectory, exclusive, new_run, open_run_directory, write_json
from hgpo.runs.load_settings import is_run
from hgpo.runs.trackers import check_trackers, open_trackers, tracked_settings, tracker_names
from hgpo.steps import StepBatch
from hgpo.utils.progress import Reporter

if TYPE_CHECKING:
    from hgpo.training.checkpoint import TrainingState
    from hgpo.training.critic import Critic
    from hgpo.training.load import RunPolicies
    from hgpo.training.trainer import Trainer


def train(config: Config, reporter: Reporter, *, started: float | None = None) -> RunDirectory:
    """Create a run and train it with the built-in trainer.

    Args:
        config: settings of the run.
        reporter: prints progress.
        started: `time.monotonic()` at the start of the run's duration; None: now.

    Raises:
        ConfigError: the settings cannot work; nothing is written.
    """
    from hgpo.policies.loading import resolve_device
    from hgpo.training.load import check_policy, choose_sampler, use_threads
    from hgpo.training.run_plan import check_memory, on_device, plan_lines, summarise_model

    device = resolve_device(config.policy.device)
    policy, sampler = choose_sampler(config.policy)
    config = config.model_copy(update={"policy": policy})
    check_policy(config.policy, warm_start=config.warm_start.enabled)
    check_trackers(config.tracking, config.run.engine)
    suite = training_suite(config.environment, config.evaluation, config.warm_start)
    use_threads(config.run.threads)
    model = summarise_model(config.policy)
    own_critic = config.needs_critic and not config.critic.shared
    check_memory(model, config.policy, config.training, config.warm_start, reporter, own_critic=own_critic)
    for line in [*plan_lines(config, model.parameters, on_device(device)), *filter(None, [sampler])]:
        reporter.say(line)
    with new_run(config) as run:
        _complete(run, config, suite, reporter, started)
    return run


def resume(path: Path, reporter: Reporter, *, started: float | None = None) -> RunDirectory:
    """Continue the run in folder `path` after its newest checkpoint. A complete run is left unchanged."""
    from hgpo.training.load import use_threads

    run, config = open_run_directory(path)
    if run.complete:
        return run
    check_names(config)
    check_trackers(config.tracking, config.run.engine)
    use_threads(config.run.threads)
    with exclusive(run.path):
        suite = training_suite(config.environment, config.evaluation, config.warm_start)
        _complete(run, config, suite, reporter, started)
    return run


def _complete(
    run: RunDirectory, config: Config, suite: LimitedSuite, reporter: Reporter, started: float | None
) -> None:
    """Carry out what is missing in the run: start policy, updates, evaluations, summary."""
    started = time.monotonic() if started is None else started
    recover(run.checkpoints)
    record_environment(run, config.environment.name, suite)
    prepare_start(run, config, suite, reporter)
    trainer = build_trainer(run, config, suite, reporter)
    names = tracker_names(config.tracking, config.run.engine)
    settings = tracked_settings({name: value for name, value, _ in leaves(config)})
    with open_trackers(run, names, settings, reporter) as trackers:
        before, after = trainer.train(started, trackers)
    write_summary(run, config.summary_facts, before, after, seconds=trainer.seconds(started))


def build_trainer(run: RunDirectory, config: Config, suite: LimitedSuite, reporter: Reporter) -> Trainer:
    """The built-in trainer in the state of the run's newest checkpoint, or before the first update if it has none."""
    from hgpo.policies.weights import adapter_rank
    from hgpo.training.checkpoint import TrainingState
    from hgpo.training.collector import Collector
    from hgpo.training.load import RunPolicies, make_backend_policy, with_adapter
    from hgpo.training.start_policy import reference_model
    from hgpo.training.trainer import Trainer, restore_state
    from hgpo.training.update import Sampling

    settings, seed = config.training, config.run.seed
    policies = RunPolicies(run, config.policy, config.warm_start.enabled, seed)
    start = policies.start_model()
    state = restore_state(run, start, settings, reporter, device=config.policy.device)
    if state is None:
        state = TrainingState.initial(with_adapter(start, config.policy.lora, seed=seed), settings, seed)
    elif (rank := adapter_rank(state.language_model.model)) != config.policy.lora.rank:
        raise ConfigError(
            f"policy.lora.rank = {config.policy.lora.rank}, but the run's checkpoints have "
            f"{f'an adapter of rank {rank}' if rank else 'no adapter'}: set it to {rank} in {run.config}"
        )
    critic = build_critic(config, policies, state)
    needs_reference = settings.kl_coefficient > 0
    reference = reference_model(start, state.language_model, config.policy.precision) if needs_reference else None
    policy = make_backend_policy(config.policy, state.language_model)
    collector = Collector(
        tasks=suite.tasks(config.environment.train_split),
        policy=policy,
        rules=replace(
            rollout_rules(config.rollout, config.agent, config.environment.name),
            cut_encoder=state.language_model.encoder if critic and settings.bootstrap_truncated else None,
        ),
        rng=state.rollout_rng,
        settings=config.rollout,
        updates=settings.updates,
        seed=seed,
        monitor=build_monitor(config.policy, config.warm_start, config.agent, reporter),
    )
    return Trainer(
        run=run,
        state=state,
        policy=policy,
        start_policy=lambda: policies.policy("start")[0],
        reference=reference,
        collector=collector,
        estimator=build_estimator(config.advantage, config.estimator_options),
        critic=critic,
        sampling=Sampling(
            max_response_tokens=config.policy.max_response_tokens,
            recompute_log_probs=config.recomputes_log_probs,
            precision=config.policy.precision,
        ),
        settings=settings,
        store_every=config.rollout.store_every,
        evaluator=build_evaluator(config, suite, reporter, monitored=True),
        evaluate_before=config.evaluation.before,
        evaluate_every=config.evaluation.every,
        reporter=reporter,
    )


def build_critic(config: Config, policies: RunPolicies, state: TrainingState) -> Critic | None:
    """The critic, restored from the checkpoint of `state` or new before the first update; None if none is needed."""
    from hgpo.training.checkpoint import load_critic_layers, restore_critic
    from hgpo.training.critic import Critic
    from hgpo.training.load import with_adapter
    from hgpo.training.value_model import ValueModel

    if not config.needs_critic:
        return None
    policy, update = config.policy, state.update
    checkpoint = policies.run.checkpoints / str(update)
    if config.critic.shared:
        layers = state.language_model.model
    elif update:
        layers = load_critic_layers(checkpoint, policies.start_model(), policy.device)
    else:
        layers = with_adapter(policies.start_model(), policy.lora, seed=config.run.seed).model
    critic = Critic(
        ValueModel(layers, shared=config.critic.shared),
        config.critic,
        config.training,
        gamma=config.advantage.gamma,
        target_lambda=config.target_lambda,
        precision=policy.precision,
    )
    if update:
        restore_critic(checkpoint, critic)
    return critic


def prepare_start(run: RunDirectory, config: Config, suite: LimitedSuite, reporter: Reporter) -> None:
    """Create the run's `start/` (the policy after the warm start) if a warm start is enabled and it does not exist."""
    if not config.warm_start.enabled or run.start.exists():
        return
    from hgpo.training.start_policy import StartBuilder

    expert = suite.expert()
    assert expert is not None, "training_suite checks it"
    StartBuilder(
        settings=config.warm_start,
        policy=config.policy,
        tasks=suite.tasks(config.environment.train_split),
        expert=expert,
        rules=rollout_rules(config.rollout, config.agent, config.environment.name),
        training=config.training,
        seed=config.run.seed,
        temperature=config.evaluation.temperature,
        reporter=reporter,
    ).build(run.start)


@dataclass(frozen=True, slots=True)
class OpenedPolicy:
    """A policy for evaluation or for playing.

    Attributes:
        policy: the policy.
        name: its name in results.
        checkpoint: name of a run's checkpoint; "" for a model or a server.
        weights: digest of the checkpoint's files; "" likewise, and for a start policy that the run did not make.
    """

    policy: AsyncPolicy
    name: str
    checkpoint: str = ""
    weights: str = ""


def open_policy(
    source: str,
    config: Config,
    checkpoint: str = "newest",
    warn: Callable[[str], None] = warnings.warn,
    say: Callable[[str], object] = lambda line: None,
) -> OpenedPolicy:
    """Open a run's, model's or server's policy.

    Args:
        source: see `hgpo.runs.load_settings.settings_for`.
        config: the settings that `settings_for` returned for `source`.
        checkpoint: "newest", "start" or an update's number; used only for runs.
        warn: called with a message if a server deviates from the settings.
        say: called with a line about the backend that `policy.backend` "auto" selects on CUDA.

    Raises:
        ValueError: there is no such policy, or a package that it needs is not installed.
    """
    settings = config.policy
    if not is_run(source) and settings.backend == "server":
        from hgpo.policies.openai import server_policy

        arguments = {"max_response_tokens": settings.max_response_tokens, "system_prompt": settings.system_prompt}
        return OpenedPolicy(server_policy(settings.model, settings.options, warn=warn, **arguments), settings.model)
    from hgpo.policies.wrappers import as_async
    from hgpo.training.load import RunPolicies, choose_sampler, load_language_model, make_backend_policy, use_threads

    use_threads(config.run.threads)
    settings, line = choose_sampler(settings)
    if line:
        say(line)
    if is_run(source):
        run = RunDirectory(Path(source))
        policies = RunPolicies(run, settings, config.warm_start.enabled, config.run.seed)
        policy, found = policies.policy(checkpoint)
        name = f"{Path(source).resolve().name} ({found})"
        return OpenedPolicy(as_async(policy), name, found, policies.weights_digest(found))
    language_model = load_language_model(settings.model, settings, trained=False)
    return OpenedPolicy(as_async(make_backend_policy(settings, language_model)), source)


def build_suite(environment: EnvironmentSettings, evaluation: EvaluationSettings) -> LimitedSuite:
    """The environment's tasks, with at most `environment.max_steps` steps per episode; both splits must exist."""
    suite = LimitedSuite(make(environment.name, **environment.options), environment.max_steps)
    for setting, split in (
        ("environment.train_split", environment.train_split),
        ("evaluation.split", evaluation.split),
    ):
        if split not in suite.splits:
            raise ConfigError(f"{setting} = {split!r} is not a split of {environment.name}: {', '.join(suite.splits)}")
    return suite


def training_suite(
    environment: EnvironmentSettings, evaluation: EvaluationSettings, start: WarmStartSettings
) -> LimitedSuite:
    """The tasks of a run; checks that the splits have as many tasks as the settings need.

    Raises:
        ConfigError: a split is missing or too small, or the warm start needs an expert and the environment has none.
    """
    suite = build_suite(environment, evaluation)
    evaluation_tasks(suite, evaluation)
    if not start.enabled:
        return suite
    if suite.expert() is None:
        raise ConfigError(
            f"warm_start.enabled: environment {environment.name!r} has no expert(); "
            "add expert() to its suite, or set warm_start.enabled = false and train a model that follows instructions"
        )
    tasks = len(suite.tasks(environment.train_split))
    if tasks < start.demonstrations + start.probe_games:
        raise ConfigError(
            f"warm_start: {tasks} tasks of split {environment.train_split!r} are too few for {start.demonstrations} "
            f"demonstrations and {start.probe_games} probe tasks; lower these settings or use a larger split"
        )
    return suite


def evaluation_tasks(suite: TaskSuite, evaluation: EvaluationSettings) -> Sequence[Task]:
    """The evaluation set: the first `evaluation.games` tasks of the split, or all."""
    tasks, wanted = suite.tasks(evaluation.split), evaluation.games
    if wanted is not None and wanted > len(tasks):
        raise ConfigError(f"evaluation.games = {wanted}, but split {evaluation.split!r} has {len(tasks)} tasks")
    return tasks[:wanted]


def record_environment(run: RunDirectory, name: str, suite: LimitedSuite) -> None:
    """Write the environment's name and description (such as WebShop's noun tagger) to the run's folder."""
    write_json(run.environment, {"name": name, **suite.description})


def build_agent(settings: AgentSettings, environment: str) -> Agent:
    """The agent for an environment's tasks.

    Raises:
        ConfigError: `settings.options` are not valid for the agent.
    """
    spec = AgentSpec(environment, settings.template, settings.history_length)
    try:
        return make_agent(settings.name, spec, settings.options)
    except (ValueError, TypeError) as error:
        raise ConfigError(str(error)) from error


def rollout_rules(rollout: RolloutSettings, settings: AgentSettings, environment: str) -> RolloutRules:
    """The rules of training episodes.

    Raises:
        ConfigError: the agent's options are not valid, or it retries tasks.
    """
    agent = build_agent(settings, environment)
    if agent.trials > 1:
        raise ConfigError(
            f"agent.name = {settings.name!r} retries a task several times; only `hgpo eval --agent` supports that",
        )
    return agent_rules(rollout, agent, rollout.temperature)


def agent_rules(rollout: RolloutSettings, agent: Agent, temperature: float) -> RolloutRules:
    """The rules of episodes that an agent plays."""
    return RolloutRules(
        template=agent.template,
        history_length=agent.history_length,
        temperature=temperature,
        reward=rollout.reward,
        reward_scale=rollout.reward_scale,
        invalid_action_penalty=rollout.invalid_action_penalty,
        state=rollout.state,
    )


def build_estimator(advantage: AdvantageSettings, options: Mapping[str, Any]) -> Callable[[StepBatch], Advantages]:
    """A function from a batch to advantages, with the discount and `options` (`Config.estimator_options`) filled in."""
    estimator = ESTIMATORS.get(advantage.estimator)
    return partial(estimator.run, gamma=advantage.gamma, options=estimator.parse(**options))


def build_evaluator(
    config: Config, suite: TaskSuite, reporter: Reporter, *, budget: EvalBudget = NO_LIMIT, monitored: bool = False
) -> Evaluator:
    """The evaluator of the evaluation set; with `monitored`, it warns if all responses fail for the same reason."""
    settings, policy = config.evaluation, config.policy
    agent = build_agent(config.agent, config.environment.name)
    monitor = build_monitor(policy, config.warm_start, config.agent, reporter)
    return Evaluator(
        evaluation_tasks(suite, settings),
        config.environment.name,
        config.agent.name,
        agent,
        agent_rules(config.rollout, agent, settings.temperature),
        split=settings.split,
        seeds=settings.seeds,
        reporter=reporter,
        budget=budget,
        monitor=monitor if monitored else None,
        settings={
            "environment_settings": config.environment.model_dump(mode="json"),
            "agent_settings": config.agent.model_dump(mode="json"),
            "revision": policy.revision,
            "backend": policy.backend,
            "precision": policy.precision,
            "system_prompt": policy.system_prompt,
            "chat_template_options": policy.chat_template_options,
            "max_prompt_tokens": policy.max_prompt_tokens,
            "max_response_tokens": policy.max_response_tokens,
            **{f"policy.options.{name}": policy.options[name] for name in _ANSWER_OPTIONS if name in policy.options},
        },
    )


_ANSWER_OPTIONS = ("extra", "native_tools", "sends_seed")
"""Options of a server that change its answers. An evaluation can continue with another address or other retries."""


def build_monitor(
    policy: PolicySettings,
    start: WarmStartSettings,
    agent: AgentSettings,
    reporter: Reporter,
) -> RolloutMonitor:
    """The monitor of batches of episodes; the remedies that it recommends depend on the policy."""
    if policy.model == "tiny":
        teaching = (
            f"imitating the expert for longer: more warm_start.max_updates (now {start.max_updates}), or demonstrations"
        )
    else:
        imitation = "a longer warm start" if start.enabled else "imitating an expert first (warm_start.enabled=true)"
        teaching = (
            f"a model that follows instructions; {imitation}, as the recipe smollm2 does; or another agent.template "
            f"than {label(agent.template)}"
        )
    return RolloutMonitor(reporter, policy.max_response_tokens, teaching)
