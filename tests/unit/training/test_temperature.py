import pytest

from hgpo.config import ConfigError, RolloutSettings, load_config
from hgpo.training.collector import sampling_temperature


def settings(**rollout):
    return RolloutSettings(**rollout)


def test_it_stays_where_nothing_else_is_said():
    assert [sampling_temperature(settings(temperature=0.7), update, 5) for update in (1, 5)] == [0.7, 0.7]


def test_it_goes_in_equal_steps_from_the_first_update_to_the_last():
    config = settings(temperature=1.1, last_temperature=1.5)
    assert [sampling_temperature(config, update, 5) for update in range(1, 6)] == pytest.approx(
        [1.1, 1.2, 1.3, 1.4, 1.5]
    )
    falling = settings(temperature=1.0, last_temperature=0.6)
    assert [sampling_temperature(falling, update, 5) for update in (1, 3, 5)] == pytest.approx([1.0, 0.8, 0.6])


def test_a_single_update_is_the_first():
    config = settings(temperature=1.1, last_temperature=1.5)
    assert sampling_temperature(config, 1, 1) == 1.1


def test_verl_which_cannot_change_it_refuses_it():
    changed = ["policy.model=some/model", "run.engine=verl", "rollout.last_temperature=1.5"]
    with pytest.raises(ConfigError, match="last_temperature"):
        load_config(None, changed)
