"""JSON in observations as state keys: canonical form, and the fields that are new in every rollout."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import combinations
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hgpo.rollout.json_fields import json_key, new_fields
from hgpo.steps import StepBatch

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=3), values, min_size=1, max_size=4)


def reordered(value: Any, random: Random) -> Any:
    if isinstance(value, dict):
        names = list(value)
        random.shuffle(names)
        return {name: reordered(value[name], random) for name in names}
    return [reordered(inner, random) for inner in value] if isinstance(value, list) else value


@given(objects, st.randoms(use_true_random=False))
def test_the_order_of_fields_and_the_spaces_are_no_part_of_a_key(value: dict[str, Any], random: Random) -> None:
    written = json.dumps(reordered(value, random), indent=random.choice([None, 1, 2]))
    assert json_key(f"Result: {written} done") == json_key(f"Result: {json.dumps(value)} done")


@given(objects, objects)
def test_other_contents_have_other_keys(one: dict[str, Any], other: dict[str, Any]) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (json_key(json.dumps(one)) == json_key(json.dumps(other))) == same


@given(st.text(alphabet='[]{}"ab:,1 ', max_size=30))
def test_any_text_has_a_key_that_is_its_own_key(text: str) -> None:
    assert json_key(json_key(text)) == json_key(text)


def test_brackets_that_begin_no_json_are_passed_over() -> None:
    assert json_key('[Room] {see} {"b": 1, "a": [2 ]}') == '[Room] {see} {"a": [2], "b": 1}'


@pytest.mark.parametrize("text", ["You are in a hall.", "[not json", "{" * 100_000, "[" * 5_000 + "]" * 5_000, ""])
def test_text_without_json_is_its_own_key(text: str) -> None:
    assert json_key(text) == text


def test_the_time_grows_with_the_length_of_a_text() -> None:
    text = 100_000 * "at [1.0] "
    began = time.process_time()
    assert json_key(text) == 100_000 * "at [1] "
    assert time.process_time() - began < 3


def test_left_out_values_leave_their_place() -> None:
    keys = ("items", "n")
    text = '{"n": 1, "items": [{"id": 3, "at": {"n": 4}}, {"id": 5}]}'
    assert json_key(text, {(keys, "items[].id")}) == '{"items": [{"at": {"n": 4}, "id": "…"}, {"id": "…"}], "n": 1}'
    assert json_key(text, {(("items",), "items[].id")}) == json_key(text)  # of another object
    assert json_key(text, {"items[].id"}) == json_key(text, {(keys, "items[].id")})


ROOMS = ("hall", "kitchen", "cellar", "attic")


def rollouts(
    answer: Callable[[int, int, int, Random], dict[str, Any]],
    tasks: int = 8,
    group_size: int = 5,
    steps: int = 3,
    reward: Callable[[int], float] = lambda trajectory: float(trajectory % 2),
) -> StepBatch:
    """Steps whose observations are `answer(task, trajectory, step, random)` as JSON."""
    random = Random(0)
    rows = [
        (task, task * group_size + member, step, task * group_size + member)
        for task in range(tasks)
        for member in range(group_size)
        for step in range(steps)
    ]
    return StepBatch.from_columns(
        group=[row[0] for row in rows],
        trajectory=[row[1] for row in rows],
        step=[row[2] for row in rows],
        observation=[json.dumps(answer(*row[:3], random)) for row in rows],
        reward=[reward(row[1]) * (row[2] == steps - 1) for row in rows],
    )


def judged(batch: StepBatch) -> dict[str, str]:
    return {found.name.partition(" ")[0]: found.kept for found in new_fields(batch)}


def planted(task: int, trajectory: int, step: int, random: Random) -> dict[str, Any]:
    """A room, and three values that are new in every rollout: an id, a time and a counter of all requests."""
    time = 1_700_000_000 + 61.5 * trajectory + step + random.random()
    return {
        "room": ROOMS[(task + step * trajectory) % 4],
        "meta": {"request": f"{random.getrandbits(64):x}", "time": time},
        "served": 100 * trajectory + 3 * step,
    }


def test_planted_ids_times_and_counters_are_left_out_and_the_state_is_not() -> None:
    batch = rollouts(planted, reward=lambda trajectory: float(Random(trajectory).random() < 0.5))
    assert judged(batch) == {"meta.request": "", "meta.time": "", "served": ""}
    [found] = [one for one in new_fields(batch) if "request" in one.name]
    assert (found.steps, found.values, found.pairs, found.shared) == (120, 120, 80, 0)


@given(st.integers(0, 2**32), st.integers(2, 10), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_a_field_that_rollouts_share_is_never_left_out(seed: int, levels: int, steps: int) -> None:
    """A field of few values is kept, whatever it predicts, and so is one that all rollouts of a task share."""
    drawn = Random(seed)
    batch = rollouts(
        lambda task, trajectory, step, _: {"id": drawn.getrandbits(70), "at": drawn.randrange(levels), "task": task},
        group_size=8,
        steps=steps,
    )
    assert set(judged(batch)) == {"id"}


@given(st.integers(0, 2**32), st.sampled_from([60, 300, 1000]), st.integers(1, 3))
@settings(max_examples=50, deadline=None)
def test_the_pairs_that_share_values_are_counted_once_each(seed: int, levels: int, steps: int) -> None:
    drawn = Random(seed)
    batch = rollouts(lambda *_: {"id": drawn.randrange(levels)}, tasks=3, group_size=12, steps=steps)
    seen = [[set(batch.observation[batch.trajectory == task * 12 + one]) for one in range(12)] for task in range(3)]
    shared = sum(not one.isdisjoint(other) for task in seen for one, other in combinations(task, 2))
    expected = [] if shared > 0.02 * 198 else [(198, shared)]
    assert [(found.pairs, found.shared) for found in new_fields(batch)] == expected


def test_rows_in_any_order_give_the_same_fields() -> None:
    batch = rollouts(planted)
    turned = list(range(len(batch)))
    Random(1).shuffle(turned)
    columns = {
        name: [batch.labels[name][getattr(batch, name)[row]] for row in turned]
        for name in ("group", "trajectory", "observation")
    }
    other = StepBatch.from_columns(**columns, step=batch.step[turned], reward=batch.reward[turned])
    assert [found.field for found in new_fields(other)] == [found.field for found in new_fields(batch)]


@pytest.mark.parametrize("sign", [1, -1])
def test_what_predicts_the_rewards_is_kept(sign: int) -> None:
    """The progress is a number that no two rollouts share, and more of it means more reward, or less."""
    noise = Random(5)
    progress = [noise.random() for _ in range(64)]
    batch = rollouts(
        lambda task, trajectory, step, random: {
            "progress": int(10 ** (9 * progress[trajectory])) + step,
            "id": random.getrandbits(60),
        },
        group_size=8,
        reward=lambda trajectory: float(sign * (progress[trajectory] - 0.5) > 0),
    )
    found = judged(batch)
    assert found["id"] == ""
    assert found["progress"] == "predicts the sum of rewards (|z| > 3.29)"


@pytest.mark.parametrize(("size", "kept"), [(11, ""), (12, "predicts the sum of rewards (|z| > 3.29)")])
def test_a_perfect_relation_needs_12_rollouts(size: int, kept: str) -> None:
    """z is the root of the number of rollouts less 1."""
    batch = rollouts(lambda task, trajectory, *_: {"id": 10 * trajectory}, tasks=1, group_size=size, reward=float)
    assert judged(batch) == {"id": kept}


def test_rollouts_are_compared_that_have_a_field_first_at_one_step_of_one_task() -> None:
    """Odd rollouts have larger ids, later, and higher rewards; and so have the last four tasks."""
    steps = rollouts(lambda task, rollout, step, _: {"id": 99 * (rollout % 2) + rollout} if step >= rollout % 2 else {})
    tasks = rollouts(lambda task, rollout, *_: {"id": rollout}, reward=lambda rollout: float(rollout >= 20))
    assert judged(steps) == judged(tasks) == {"id": ""}


def test_what_people_write_is_kept() -> None:
    batch = rollouts(lambda task, trajectory, step, random: {"text": f"Book seat {random.random()} for me."})
    assert judged(batch) == {"text": "has texts of 4 or more words"}


def test_measures_that_rise_and_fall_are_kept() -> None:
    """Fractions that stay and integers that fall may be times and counters."""

    def answer(task: int, trajectory: int, step: int, random: Random) -> dict[str, Any]:
        return {"x": random.random(), "began": trajectory + 0.5, "left": -100 * trajectory - step}

    found = judged(rollouts(answer, group_size=6))
    assert found == {"x": "has fractions that fall during a rollout", "began": "", "left": ""}


def test_few_rollouts_are_no_evidence() -> None:
    assert judged(rollouts(planted, tasks=1, group_size=10)) == {}  # 45 pairs
    assert set(judged(rollouts(planted, tasks=5, group_size=5))) == {"meta.request", "meta.time", "served"}  # 50


def test_one_name_in_the_answers_of_two_tools_is_two_fields() -> None:
    """Orders exist before the rollouts and have the same ids in all of them; a new order has a new id."""

    def answer(task: int, trajectory: int, step: int, random: Random) -> dict[str, Any]:
        return {"id": task, "items": 2} if step < 2 else {"id": random.getrandbits(60), "status": "created"}

    [found] = new_fields(rollouts(answer, group_size=6))
    assert found.name == "id of {id, status}"
