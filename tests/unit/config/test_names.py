"""Which estimators a run may name; what the registry says of one is all that is asked."""

import dataclasses

import numpy as np
import pytest

from hgpo import estimators
from hgpo.config import ConfigError, load_config
from hgpo.estimators import register
from hgpo.rollout.records import Values, to_step_batch
from hgpo.storage.schema import OPTIONAL_BATCH_COLUMNS
from step_records import step_record


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """No options."""


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(estimators.ESTIMATORS, "_parts", dict(estimators.ESTIMATORS._parts))
    return lambda **facts: register("judged", lambda batch, gamma, options: None, NoOptions, **facts)


def load(name, *overrides):
    return load_config(None, ["warm_start.enabled=true", f"advantage.estimator={name}", *overrides])


def test_an_estimator_of_another_package_may_be_named(registered):
    registered()
    assert load("judged").advantage.estimator == "judged"


def test_gae_needs_a_critic_and_others_do_not():
    assert load("gae").needs_critic
    assert not load("hgpo").needs_critic


def test_the_targets_of_a_critic_have_the_estimators_lambda_unless_one_is_given():
    assert load("gae").target_lambda == 0.95
    assert load("gae", "advantage.options.gae_lambda=0.5").target_lambda == 0.5
    assert load("gae", "critic.target_lambda=1").target_lambda == 1.0


def test_a_gamma_that_the_estimator_cannot_use_is_rejected_while_settings_are_read():
    with pytest.raises(ConfigError, match=r"advantage\.gamma = 1: estimator 'nested_td' needs at most 0\.99"):
        load("nested_td", "advantage.gamma=1")
    assert load("nested_td", "advantage.gamma=0.99").advantage.gamma == 0.99


def test_an_estimator_that_needs_a_column_that_trainings_lack_is_rejected_while_settings_are_read(registered):
    matching = ("advantage.options.match_by=embedding", "advantage.options.match_threshold=0.5")
    with pytest.raises(
        ConfigError, match=r"'nested_td' with match_threshold=0\.5, match_by='embedding' needs .* embedd"
    ):
        load("nested_td", *matching)
    registered(needs=lambda options: ("value", "colour"))
    with pytest.raises(
        ConfigError, match=r"'judged' needs the column colour, which trainings do not have; .*truncated"
    ):
        load("judged")


def test_trainings_have_all_columns_that_files_may_have():
    steps, value_N = [step_record(log_probs=np.array([-1.0]))], np.zeros(1)
    batch = to_step_batch(steps, Values(value_N, value_N))
    assert [name for name in OPTIONAL_BATCH_COLUMNS if getattr(batch, name) is None] == []
