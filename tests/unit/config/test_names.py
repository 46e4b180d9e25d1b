"""Which estimators a run may name; what the registry says of one is all that is asked."""

import dataclasses

import pytest

from hgpo import estimators
from hgpo.config import ConfigError, load_config
from hgpo.estimators import register


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """No options."""


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(estimators.ESTIMATORS, "_parts", dict(estimators.ESTIMATORS._parts))
    return lambda **facts: register("judged", lambda batch, gamma, options: None, NoOptions, **facts)


def load(name):
    return load_config(None, ["warm_start.enabled=true", f"advantage.estimator={name}"])


def test_an_estimator_of_another_package_may_be_named(registered):
    registered()
    assert load("judged").advantage.estimator == "judged"


def test_one_that_cannot_be_trained_with_is_refused_with_its_own_reason(registered):
    registered(untrainable="asks a judge, and there is none", needs=lambda options: ("action", "value"))
    with pytest.raises(ConfigError) as error:
        load("judged")
    assert str(error.value) == (
        "advantage.estimator = 'judged' asks a judge, and there is none; `hgpo advantages --estimator judged` computes "
        "it for stored steps with a column `action` and a column `value`"
    )


def test_gae_is_refused():
    with pytest.raises(ConfigError, match=r"'gae' needs a critic's values, .* for stored steps with a column `value`$"):
        load("gae")
