"""Which estimators a run may name; what the registry says of one is all that is asked."""

import dataclasses

import pytest

from hgpo import estimators
from hgpo.config import load_config
from hgpo.estimators import register


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
