"""From settings to the parts that they describe."""

from __future__ import annotations

from collections.abc import Sequence

from hgpo.agents import Agent, AgentSpec, make_agent
from hgpo.config import Config, ConfigError
from hgpo.envs.base import Task, TaskSuite
from hgpo.envs.registry import make
from hgpo.envs.wrappers import LimitedSuite
from hgpo.estimators import Advantages, compute_advantages
from hgpo.evaluation.evaluator import NO_LIMIT, EvalBudget, EvalConditions, Evaluator
from hgpo.evaluation.rollout_monitor import PlayWatch
from hgpo.policies.chat import Chat
from hgpo.rollout.prompts import RolloutRules
from hgpo.rollout.records import StepRecord, to_step_batch
from hgpo.runs.folder import RunDirectory, write_json
from hgpo.steps import StepBatch
from hgpo.utils.progress import Reporter


def build_suite(config: Config) -> LimitedSuite:
    """The environment's tasks, each cut at `environment.max_steps`; both splits must exist."""
    suite = LimitedSuite(make(config.environment.name, **config.environment.options), config.environment.max_steps)
    for setting, split in (
        ("environment.train_split", config.environment.train_split),
        ("evaluation.split", config.evaluation.split),
    ):
        if split not in suite.splits:
            raise ConfigError(
                f"{setting} = {split!r} is not a split of {config.environment.name}: {', '.join(suite.splits)}"
            )
    return suite


def training_suite(config: Config) -> LimitedSuite:
    """The tasks of a run, which are there in the numbers that its settings ask for.

    Raises:
        ConfigError: a split is missing or too small, or there is no expert to demonstrate.
    """
    suite = build_suite(config)
    evaluation_tasks(suite, config)
    start, split = config.warm_start, config.environment.train_split
    if not start.enabled:
        return suite
    if suite.expert() is None:
        raise ConfigError(
            f"warm_start.enabled: environment {config.environment.name!r} has no expert(); "
            "give its suite one, or start from a model that follows instructions"
        )
    games = len(suite.tasks(split))
    if games < start.demonstrations + start.probe_games:
        raise ConfigError(
            f"warm_start: {games} games of split {split!r} are too few for {start.demonstrations} demonstrations and "
            f"{start.probe_games} probe games; ask for less or for more games"
        )
    return suite


def record_environment(run: RunDirectory, config: Config, suite: LimitedSuite) -> None:
    """Write what the environment says of itself beside the settings: WebShop's noun tagger, for example."""
    write_json(run.environment, {"name": config.environment.name, **suite.description})


def evaluation_tasks(suite: TaskSuite, config: Config) -> Sequence[Task]:
    """The fixed panel: the first `evaluation.games` tasks of the split, or all."""
    tasks = suite.tasks(config.evaluation.split)
    wanted = config.evaluation.games
    if wanted is not None and wanted > len(tasks):
        raise ConfigError(f"evaluation.games = {wanted}, but split {config.evaluation.split!r} has {len(tasks)} tasks")
    return tasks[:wanted]


def build_evaluator(
    config: Config,
    suite: TaskSuite,
    reporter: Reporter,
    *,
    budget: EvalBudget = NO_LIMIT,
    monitor: PlayWatch | None = None,
) -> Evaluator:
    """What evaluates policies on the settings' evaluation set."""
    settings, agent, policy = config.evaluation, build_agent(config), config.policy
    return Evaluator(
        evaluation_tasks(suite, config),
        agent,
        agent_rules(config, agent, settings.temperature),
        split=settings.split,
        seeds=settings.seeds,
        temperature=settings.temperature,
        reporter=reporter,
        budget=budget,
        monitor=monitor,
        conditions=EvalConditions(
            environment=config.environment.name,
            agent=config.agent.name,
            settings={
                "environment_settings": config.environment.model_dump(mode="json"),
                "agent_settings": config.agent.model_dump(mode="json"),
                "revision": policy.revision,
                "system_prompt": policy.system_prompt,
                "chat_template_options": policy.chat_template_options,
                "max_prompt_tokens": policy.max_prompt_tokens,
                "max_response_tokens": policy.max_response_tokens,
            },
        ),
    )


def chat_of(config: Config) -> Chat:
    """What stands around every prompt."""
    return Chat(config.policy.system_prompt, config.policy.chat_template_options)


def build_agent(config: Config) -> Agent:
    """How the policy is asked.

    Raises:
        ConfigError: the agent does not take its options.
    """
    settings = config.agent
    spec = AgentSpec(config.environment.name, settings.template, settings.history_length)
    try:
        return make_agent(settings.name, spec, settings.options)
    except (ValueError, TypeError) as error:
        raise ConfigError(str(error), "agent") from error


def rollout_rules(config: Config) -> RolloutRules:
    """How training episodes are played (an evaluation changes the temperature alone).

    Raises:
        ConfigError: the agent does not take its options, or does more than play an episode.
    """
    agent = build_agent(config)
    if agent.trials > 1:
        raise ConfigError(
            f"agent.name = {config.agent.name!r} tries a game several times, which `hgpo eval --agent` alone does",
            "agent.name",
        )
    return agent_rules(config, agent, config.rollout.temperature)


def agent_rules(config: Config, agent: Agent, temperature: float) -> RolloutRules:
    """How episodes are played by an agent."""
    return RolloutRules(
        template=agent.template,
        history_length=agent.history_length,
        temperature=temperature,
        reward=config.rollout.reward,
        reward_scale=config.rollout.reward_scale,
        invalid_action_penalty=config.rollout.invalid_action_penalty,
        state=config.rollout.state,
    )


def estimate(steps: Sequence[StepRecord], config: Config) -> tuple[StepBatch, Advantages]:
    """The steps as estimators take them, and what the run's estimator makes of them; rows in the order of `steps`."""
    batch = to_step_batch(steps)
    advantage = config.advantage
    return batch, compute_advantages(batch, advantage.estimator, advantage.gamma, **config.estimator_options)
