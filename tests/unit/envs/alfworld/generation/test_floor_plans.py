from __future__ import annotations

import pytest

from hgpo.envs.alfworld.game import TASK_TYPES
from hgpo.envs.alfworld.generation.floor_plans import SIZES, Size, floor_plans, is_unseen_pair, task_instances
from hgpo.envs.alfworld.generation.household import ROOMS
from hgpo.envs.base import named_size


@pytest.mark.parametrize("name", SIZES)
def test_plans_keep_to_the_size_and_the_room(name: str) -> None:
    size = SIZES[name]
    for plan in floor_plans(size):
        assert size.receptacles[0] <= sum(count for _, count in plan.counts) <= size.receptacles[1]
        for kind, count in plan.counts:
            assert count <= min(size.copies, ROOMS[plan.room].receptacles[kind])


@pytest.mark.parametrize("name", SIZES)
def test_no_layout_is_both_seen_and_unseen(name: str) -> None:
    plans = floor_plans(SIZES[name])
    seen = {plan.counts for plan in plans if not plan.unseen}
    unseen = {plan.counts for plan in plans if plan.unseen}
    assert not seen & unseen
    assert {plan.room for plan in plans if plan.unseen} == set(ROOMS)


def test_every_receptacle_kind_can_be_met_in_training() -> None:
    plans = floor_plans(SIZES["small"])
    seen = {kind for plan in plans if not plan.unseen for kind in plan.kinds}
    assert {kind for plan in plans for kind in plan.kinds} <= seen


def test_a_size_by_name_or_by_numbers() -> None:
    assert named_size("small", SIZES) is SIZES["small"]
    numbers = {"receptacles": [8, 9], "objects": [2, 4], "copies": 3}
    assert named_size(numbers, SIZES) == Size(receptacles=(8, 9), objects=(2, 4), copies=3)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ("tiny", "unknown size 'tiny'; choose one of small, medium, full"),
        ({"receptacles": [4, 6]}, "objects: Field required"),
        ({"receptacles": 4, "objects": [1, 2]}, "receptacles: Input should be a valid tuple"),
        ({"receptacles": [4, 6], "objects": [1, 2], "rooms": 3}, "rooms: Unexpected keyword"),
        ({"receptacles": [1, 6], "objects": [1, 2]}, r"receptacles=\(1, 6\)"),
        ({"receptacles": [6, 4], "objects": [1, 2]}, r"receptacles=\(6, 4\)"),
        ({"receptacles": [4, 6], "objects": [0, 2]}, r"objects=\(0, 2\)"),
        ({"receptacles": [4, 6], "objects": [1, 2], "copies": 0}, "copies=0"),
    ],
)
def test_an_impossible_size_is_refused(size: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        named_size(size, SIZES)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_every_task_type_is_possible_on_both_sides_of_the_split(size: str, task_type: str) -> None:
    for unseen in (False, True):
        instances = task_instances(SIZES[size], task_type, unseen)
        assert len({(instance.goal.object_kind, instance.goal.target_kind) for instance in instances}) >= 5
        for instance in instances:
            assert instance.plan.unseen == unseen
            assert is_unseen_pair(instance.goal.object_kind, instance.goal.target_kind) == unseen
