"""Whether the parts that settings name are there: environment, template, estimator, policy backend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hgpo.agents.base import AGENTS
from hgpo.agents.prompts import TEMPLATES
from hgpo.config.problems import ConfigError
from hgpo.config.settings import Config
from hgpo.envs.registry import SUITES, check_options
from hgpo.estimators import ESTIMATORS, parse_options
from hgpo.plugins import import_named
from hgpo.policies.backends import BACKENDS


def check_names(config: Config) -> None:
    """Look up every part that the settings name; modules named by path are imported first, and may register others.

    Every process of a run begins with this, so that all of them know the same parts.

    Raises:
        ConfigError: a part is not there, or does not take the options given to it.
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
    _check_estimator(config)


@contextmanager
def _about(setting: str) -> Iterator[None]:
    """Whatever is refused in the block is refused as this setting's value."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ConfigError(str(error), setting) from error


def _check_estimator(config: Config) -> None:
    """Refuse an estimator that cannot be trained with, or that compares more history than there is."""
    name = config.advantage.estimator
    estimator = ESTIMATORS.get(name)
    if not estimator.trainable:
        needs = estimator.needs(estimator.parse(**config.estimator_options))
        columns = " and ".join(f"a column `{column}`" for column in needs)
        raise ConfigError(
            f"advantage.estimator = {name!r} {estimator.untrainable}; `hgpo advantages --estimator {name}` computes it "
            f"for stored steps{f' with {columns}' if columns else ''}",
            "advantage.estimator",
        )
    levels = config.estimator_options.get("history_length", 0)
    if isinstance(levels, int) and levels > config.agent.history_length:
        raise ConfigError(
            f"advantage.options.history_length = {levels} groups by more history than the agent remembers "
            f"(agent.history_length = {config.agent.history_length})",
            "advantage.options.history_length",
        )
