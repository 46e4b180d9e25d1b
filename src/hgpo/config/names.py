"""Whether the parts that settings name are there: environment, template, estimator, policy backend."""

from __future__ import annotations

from hgpo.agents.prompts import TEMPLATES
from hgpo.config.problems import ConfigError
from hgpo.config.settings import Config
from hgpo.envs.registry import SUITES, check_options
from hgpo.estimators import ESTIMATORS, parse_options
from hgpo.plugins import import_named


def check_names(config: Config) -> None:
    """Look up every part that the settings name; modules named by path are imported first, and may register others.

    Every process of a run begins with this, so that all of them know the same parts.

    Raises:
        ConfigError: a part is not there, or does not take the options given to it.
    """
    environment, estimator = config.environment, config.advantage.estimator
    try:
        import_named([environment.name, config.agent.template, estimator])
        check_options(environment.name, SUITES.get(environment.name), environment.options)
        TEMPLATES.check(config.agent.template)
        ESTIMATORS.get(estimator)
        parse_options(estimator, **config.estimator_options)
    except (ValueError, TypeError) as error:
        raise ConfigError(str(error)) from error
    _check_estimator(config)


def _check_estimator(config: Config) -> None:
    """Refuse an estimator that cannot be trained with, or that compares more history than there is."""
    name = config.advantage.estimator
    estimator = ESTIMATORS.get(name)
    if not estimator.trainable:
        needs = estimator.needs(estimator.parse(**config.estimator_options))
        columns = " and ".join(f"a column `{column}`" for column in needs)
        raise ConfigError(
            f"advantage.estimator = {name!r} {estimator.untrainable}; `hgpo advantages --estimator {name}` computes it "
            f"for stored steps{f' with {columns}' if columns else ''}"
        )
    levels = config.estimator_options.get("history_length", 0)
    if isinstance(levels, int) and levels > config.agent.history_length:
        raise ConfigError(
            f"advantage.options.history_length = {levels} groups by more history than the agent remembers "
            f"(agent.history_length = {config.agent.history_length})"
        )
