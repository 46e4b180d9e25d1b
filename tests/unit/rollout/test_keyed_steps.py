"""State keys of whole batches: of stored steps, and of the update of a training."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from hgpo.rollout.keyed_steps import describe_matches, keyed_steps
from hgpo.rollout.state_keys import NO_CALL, Visit, called
from hgpo.steps import StepBatch
from hgpo.tool_calls import ToolCall

LOOK, TAKE = ToolCall("look", {}).action, ToolCall("take", {"what": "key"}).action


def episodes(columns: dict[str, list[Any]], lengths: tuple[int, ...] = (3, 2)) -> StepBatch:
    step = [step for length in lengths for step in range(length)]
    trajectory = [place for place, length in enumerate(lengths) for _ in range(length)]
    given = {"group": [0] * len(step), "trajectory": trajectory, "step": step, "reward": [0.0] * len(step)}
    return StepBatch.from_columns(**(given | columns))


def labels(batch: StepBatch, column: str) -> list[Any]:
    return [batch.labels["observation"][code] for code in getattr(batch, column)]


TALK = {
    "observation": ["hi", "a door", "well", "hello", "a door!"],
    "action": [LOOK, "hm", TAKE, LOOK, "bye"],
    "next_observation": ["a door", "well", "taken", "a door!", None],
}


def test_the_key_is_that_of_the_call_that_led_to_the_state() -> None:
    keyed, matches = keyed_steps(episodes(TALK), "tool_call")
    look, take = called(LOOK), called(TAKE)
    assert labels(keyed, "observation") == [NO_CALL, look, look, NO_CALL, look]
    assert labels(keyed, "next_observation") == [look, look, take, look, None]
    assert (matches.steps, matches.keyed, matches.observed) == (5, 5, 0)
    assert not keyed.observation.flags.writeable


def test_a_next_observation_that_was_not_stored_stays_unknown() -> None:
    keyed, _ = keyed_steps(episodes(TALK | {"next_observation": [None, "well", None, None, None]}), "tool_call")
    assert labels(keyed, "next_observation") == [None, called(LOOK), None, None, None]


def test_steps_of_another_task_do_not_match() -> None:
    apart = episodes(TALK | {"group": [0, 0, 0, 1, 1], "observation": ["hi", "well", "bye", "hi", "well"]})
    assert keyed_steps(apart, "observation")[1].observed == 0


def test_rows_in_any_order_have_the_same_keys() -> None:
    batch = episodes(TALK)
    rows = np.array([4, 2, 0, 3, 1])
    turned = StepBatch.from_columns(
        group=batch.group[rows], trajectory=batch.trajectory[rows], step=batch.step[rows], reward=batch.reward[rows],
        **{name: [column[row] for row in rows] for name, column in TALK.items()},
    )  # fmt: skip
    straight, _ = keyed_steps(batch, "tool_call")
    other, _ = keyed_steps(turned, "tool_call")
    for column in ("observation", "next_observation"):
        assert labels(other, column) == [labels(straight, column)[row] for row in rows]


def test_steps_without_tool_calls_are_refused() -> None:
    """Else all of them would be in one state."""
    with pytest.raises(ValueError, match="needs tool calls, and the actions of these steps have none"):
        keyed_steps(episodes(TALK | {"action": ["look"] * 5}), "tool_call")


@pytest.mark.parametrize("state", ["simulator", "published_g2po", "observation_and_commands"])
def test_what_was_not_stored_is_no_key_of_stored_steps(state: str) -> None:
    with pytest.raises(ValueError, match=f"{state}.* of the environment's info, which is not stored"):
        keyed_steps(episodes(TALK), state)


@pytest.mark.parametrize("column", ["observation", "action"])
def test_only_text_has_keys(column: str) -> None:
    with pytest.raises(ValueError, match=f"column '{column}': state keys read text, and not int"):
        keyed_steps(episodes(TALK | {column: list(range(5))}), f"{__name__}:before_the_mark")


def before_the_mark(visit: Visit) -> str:
    assert visit.info == {}
    return visit.observation.partition("!")[0]


def test_an_own_key_of_stored_steps() -> None:
    keyed, matches = keyed_steps(episodes(TALK), f"{__name__}:before_the_mark")
    assert labels(keyed, "observation") == ["hi", "a door", "well", "hello", "a door"]
    assert labels(keyed, "next_observation") == ["a door", "well", "taken", "a door", None]
    assert describe_matches([matches]) == [
        f"state key {__name__}:before_the_mark: 40.0 % of the steps share their key with another trajectory of the "
        "task, 0.0 % share the stored observation"
    ]


def requests(updates: int = 1) -> list[StepBatch]:
    """Six tasks of five rollouts, whose answers have a new id each."""
    rows = [(task, task * 5 + member, step) for task in range(6) for member in range(5) for step in range(2)]
    found = []
    for update in range(updates):
        ids = [977 * number + update for number in range(len(rows))]
        found.append(
            StepBatch.from_columns(
                group=[row[0] for row in rows], trajectory=[row[1] for row in rows], step=[row[2] for row in rows],
                reward=[0.0] * len(rows),
                observation=[json.dumps({"id": one, "room": row[2]}) for one, row in zip(ids, rows, strict=True)],
                next_observation=[None if row[2] else json.dumps({"room": 1, "id": 7}) for row in rows],
            )
        )  # fmt: skip
    return found


def test_json_leaves_out_ids_before_and_after_a_step() -> None:
    keyed, matches = keyed_steps(requests()[0], "json")
    assert set(labels(keyed, "observation")) == {'{"id": "…", "room": 0}', '{"id": "…", "room": 1}'}
    assert set(labels(keyed, "next_observation")) == {'{"id": "…", "room": 1}', None}
    assert (matches.keyed, matches.observed) == (60, 0)
    assert describe_matches([matches])[1:] == [
        "left out id of {id, room}: 60 values in 60 steps; 0 of 60 pairs of rollouts share values"
    ]


def test_updates_are_added_up() -> None:
    matches = [keyed_steps(batch, "json")[1] for batch in requests(3)]
    assert describe_matches(matches)[1:] == [
        "left out id of {id, room} (3 of 3 updates): 180 values in 180 steps; 0 of 180 pairs of rollouts share values"
    ]
    assert describe_matches([]) == []


def test_a_field_that_is_kept_says_why() -> None:
    batch = requests()[0]
    texts = [f"Good morning, my number is {number}." for number in range(len(batch))]
    keyed, matches = keyed_steps(
        StepBatch.from_columns(
            group=batch.group, trajectory=batch.trajectory, step=batch.step, reward=batch.reward,
            observation=[json.dumps({"a": 1, "b": 2, "c": 3, "text": text}) for text in texts],
        ),
        "json",
    )  # fmt: skip
    assert matches.keyed == 0
    assert len(set(keyed.labels["observation"])) == len(batch)
    assert describe_matches([matches])[1:] == [
        "kept text of {a, b, c, …}, which has texts of 4 or more words: 60 values in 60 steps; 0 of 60 pairs of "
        "rollouts share values"
    ]
