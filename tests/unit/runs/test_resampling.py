from __future__ import annotations

from hgpo.rollout.records import StepRecord
from hgpo.rollout.sampling import equal_reward_groups, replace_equal_reward_groups
from step_records import step_record


def played(**groups: list[float]) -> list[StepRecord]:
    """Groups by name, each with the total rewards of its rollouts, which all take two steps."""
    return [
        step_record(
            group=group,
            trajectory=f"{group}#{member}",
            step=step,
            observation="here",
            reward=total / 2,
            won=total > 0,
            score=total,
            terminated=step == 1,
            next_observation="next",
        )
        for group, totals in groups.items()
        for member, total in enumerate(totals)
        for step in range(2)
    ]


def test_a_group_is_uniform_where_all_its_rollouts_earned_the_same() -> None:
    steps = played(lost=[0, 0, 0], won=[10, 10], mixed=[0, 10], alone=[10], near=[0.1 + 0.2, 0.3])
    assert equal_reward_groups(steps) == {"lost", "won", "near"}
    assert equal_reward_groups([]) == set()


def test_useful_groups_take_the_place_of_uniform_ones() -> None:
    """As in the function's example."""
    steps, fresh = played(a=[0, 10], b=[0, 0], c=[10, 10]), played(d=[10, 0], e=[0, 0])
    assert replace_equal_reward_groups(steps, fresh) == ({"b", "e"}, 1)


def test_uniform_ones_stay_where_nothing_better_was_drawn() -> None:
    steps = played(a=[0, 0], b=[0, 0])
    assert replace_equal_reward_groups(steps, played(c=[10, 10], d=[0, 0])) == ({"c", "d"}, 0)
    assert replace_equal_reward_groups(steps, []) == (set(), 0)  # all that was drawn was lost


def test_as_many_groups_stay_as_there_were() -> None:
    steps, fresh = played(a=[0, 0], b=[0, 0], c=[0, 10]), played(d=[10, 0], e=[0, 10])
    leaving, replaced = replace_equal_reward_groups(steps, fresh)
    assert (leaving, replaced) == ({"a", "b"}, 2)
    assert len({record.group for record in [*steps, *fresh]} - leaving) == 3
