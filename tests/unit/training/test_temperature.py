import pytest

from hgpo.config import ConfigError, RolloutSettings, load_config
from hgpo.training.collector import sampling_temperature


@pytest.mark.parametrize(
    ("first", "last", "updates", "expected"),
    [
        (0.7, None, 3, [0.7, 0.7, 0.7]),
        (1.1, 1.5, 5, [1.1, 1.2, 1.3, 1.4, 1.5]),
        (1.0, 0.6, 3, [1.0, 0.8, 0.6]),
        (1.1, 1.5, 1, [1.1]),
    ],
)
def test_it_goes_in_equal_steps_from_the_first_update_to_the_last(first, last, updates, expected):
    settings = RolloutSettings(temperature=first, last_temperature=last)
    found = [sampling_temperature(settings, update, updates) for update in range(1, updates + 1)]
    assert found == pytest.approx(expected)


def test_verl_which_cannot_change_it_refuses_it():
    changed = ["policy.model=some/model", "run.engine=verl", "rollout.last_temperature=1.5"]
    with pytest.raises(ConfigError, match="last_temperature"):
        load_config(None, changed)
