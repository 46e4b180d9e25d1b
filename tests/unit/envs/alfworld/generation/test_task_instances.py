from __future__ import annotations

import pytest

from hgpo.envs.alfworld.game import TASK_TYPES
from hgpo.envs.alfworld.generation.floor_plans import SIZES, is_unseen_pair, task_instances


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_every_task_type_is_possible_on_both_sides_of_the_split(size: str, task_type: str) -> None:
    for unseen in (False, True):
        instances = task_instances(SIZES[size], task_type, unseen)
        assert len({(instance.goal.object_kind, instance.goal.target_kind) for instance in instances}) >= 5
        for instance in instances:
            assert instance.plan.unseen == unseen
            assert is_unseen_pair(instance.goal.object_kind, instance.goal.target_kind) == unseen
