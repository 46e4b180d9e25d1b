"""At which temperature the rollouts of an update are sampled, and scored."""

from __future__ import annotations

from hgpo.config import Config


def sampling_temperature(config: Config, update: int) -> float:
    """The temperature of an update, from 1.

    A policy that is trained grows certain of what it does: all rollouts of a task end alike, nothing is left to
    compare, and learning stops. Sampling it hotter the surer it is keeps them apart:

        T(u) = T_1 + (T_last - T_1) · (u - 1) / (updates - 1)

    with `rollout.temperature` and `rollout.last_temperature`. What is trained is the policy at this temperature; one
    that is right at 1.5 is right, and surer, at 1.

    Example: 1.1 to 1.5 in five updates are 1.1, 1.2, 1.3, 1.4, 1.5.
    """
    first, last = config.rollout.temperature, config.rollout.last_temperature
    if last is None or config.training.updates == 1:
        return first
    return first + (last - first) * (update - 1) / (config.training.updates - 1)
