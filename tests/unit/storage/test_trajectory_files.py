"""One trajectory a line: as steps, as conversations, in JSONL and parquet, and what is wrong with one."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hgpo.estimators import compute_advantages
from hgpo.estimators.diagnostics import summarise_levels
from hgpo.storage.discover import find_step_files
from hgpo.storage.reading import read_intact
from hgpo.storage.schema import StorageError
from hgpo.storage.step_batches import step_batch_from_table
from house import trajectory_lines, write_rows
from stored_rollouts import read_rollouts

PAGE = Path(__file__).parents[3] / "docs/own-data.md"
TALK = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": "hall"},
    {"role": "assistant", "content": "go"},
    {"role": "user", "content": "kitchen"},
    {"role": "assistant", "content": "take"},
]
STEPS = [{"observation": "hall", "action": "go"}, {"observation": "kitchen", "action": "take"}]


def read(path, *lines, **options):
    write_rows(path, lines)
    return read_rollouts(path, "trajectories", options.get("columns")).to_pylist()


def line(**changes):
    return {"group": 1, "trajectory": 0, "reward": 1.0, "messages": TALK, **changes}


def test_advantages_are_those_of_the_same_steps_row_by_row(tmp_path, rows):
    by_step = read_rollouts(write_rows(tmp_path / "steps.jsonl", rows))
    lines = trajectory_lines(rows)
    write_rows(tmp_path / "lines.jsonl", lines)
    pq.write_table(pa.Table.from_pylist(lines), tmp_path / "lines.parquet")
    expected = compute_advantages(step_batch_from_table(by_step)).values
    places = zip(*(by_step.column(name).to_pylist() for name in ("group", "trajectory", "step")), strict=True)
    advantage = {(str(g), f"{g}/{t}", s): value for (g, t, s), value in zip(places, expected, strict=True)}
    for name in ("lines.jsonl", "lines.parquet"):
        table = read_rollouts(tmp_path / name)  # told by its first row
        found = compute_advantages(step_batch_from_table(table)).values
        places = zip(*(table.column(name).to_pylist() for name in ("group", "trajectory", "step")), strict=True)
        assert dict(zip(places, found, strict=True)) == pytest.approx(advantage)


def test_a_conversation_is_a_step_for_each_turn_of_the_assistant(tmp_path):
    tool = {"role": "tool", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "lamp"}]}
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "buy"}]}
    first, second, third = read(tmp_path / "a.jsonl", line(messages=[*TALK, tool, tool, call, tool], success=True))
    assert (first["observation"], first["action"], first["next_observation"]) == ("hall", "go", "kitchen")
    assert (second["reward"], third["reward"], third["success"]) == (0.0, 1.0, True)
    assert (third["observation"], third["action"]) == ("a lamp\na lamp", '[{"arguments": {}, "name": "buy"}]')
    assert third["next_observation"] == "a lamp"
    assert [row["step"] for row in (first, second, third)] == [0, 1, 2]
    assert {row["trajectory"] for row in (first, second, third)} == {"1/0"}


def test_rewards_may_stand_in_three_places(tmp_path):
    own = [{**step, "reward": 0.5} for step in STEPS]
    talk = [{**message, "reward": 0.5} if message["role"] == "assistant" else message for message in TALK]
    lines = [
        {"group": 1, "trajectory": 0, "steps": STEPS, "rewards": [0.5, 0.5]},
        {"group": 1, "trajectory": 1, "steps": own},
        {"group": 1, "trajectory": 2, "messages": talk},
    ]
    assert {row["reward"] for row in read(tmp_path / "a.jsonl", *lines)} == {0.5}


def test_a_trajectory_has_the_success_of_any_of_its_steps(tmp_path):
    own = [
        [{**STEPS[0], "reward": 0.5, "success": False}, {**STEPS[1], "reward": 0}],
        [{**STEPS[0], "reward": 0}, {**STEPS[1], "reward": 0, "success": True}],
    ]
    lines = [{"group": 1, "trajectory": place, "steps": steps} for place, steps in enumerate(own)]
    assert [row["success"] for row in read(tmp_path / "a.jsonl", *lines)] == [False, False, True, True]
    with pytest.raises(StorageError, match="'success' is in the line and in its steps; remove one"):
        read(tmp_path / "a.jsonl", {**lines[0], "success": True})


def test_a_success_may_be_the_reward(tmp_path):
    lines = [{"group": 1, "trajectory": t, "messages": TALK, "success": t == 0} for t in (0, 1)]
    rows = read(tmp_path / "a.jsonl", *lines, columns={"reward": "success"})
    assert [(row["reward"], row["success"]) for row in rows] == [(0.0, True), (1.0, True), (0.0, False), (0.0, False)]
    with pytest.raises(StorageError, match=r"no reward: .*; --column reward=success takes the success"):
        read(tmp_path / "b.jsonl", *lines)


def test_conversations_under_another_key_are_pointed_out(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"task_id": 1, "reward": 1.0, "info": {"a": 1}, "traj": TALK}) + "\n")
    with pytest.raises(StorageError, match=r"no column group, .* If traj is a conversation: --column messages=traj$"):
        read_rollouts(tmp_path / "a.jsonl")


def test_keys_may_have_other_names_and_ids_may_be_left_out(tmp_path):
    other = {"uid": "x", "score": 2, "conversation": TALK}
    keys = {"group": "uid", "reward": "score", "messages": "conversation"}
    found = read(tmp_path / "a.jsonl", other, other, columns=keys)
    assert {row["trajectory"] for row in found} == {"x/a.jsonl:1", "x/a.jsonl:2"}
    assert [row["reward"] for row in found] == [0, 2, 0, 2]
    with pytest.raises(StorageError, match=r"a\.jsonl line 1: no 'uid'"):
        read(tmp_path / "a.jsonl", line(), columns=keys)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group": None}, "no 'group': write the id of the task"),
        ({"messages": None}, "needs either 'steps' or 'messages', and has neither"),
        ({"steps": STEPS}, "needs either 'steps' or 'messages', and has both"),
        ({"messages": "hello"}, "'messages' is not a list: 'hello'"),
        ({"messages": TALK[:2]}, "no step"),
        (
            {"messages": [*TALK, {"role": "assistant", "tool_calls": [{"id": "x"}]}]},
            "message 5: a tool call has no name",
        ),
        ({"messages": [*TALK, {"role": "assistant", "tool_calls": 7}]}, "message 5: tool_calls is not a list: 7"),
        ({"messages": [{"role": "narrator", "content": "x"}]}, "message 0 has the role 'narrator'; roles are system"),
        ({"messages": ["hello"]}, "message 0 is not an object: 'hello'"),
        ({"messages": [{"role": "user"}]}, "message 0 has no content"),
        (
            {"messages": None, "steps": [{"action": "go"}]},
            "step 0 has no 'observation'. It has action; --column",
        ),
        ({"messages": None, "steps": [7]}, "step 0 is not an object: 7"),
        ({"reward": None}, "no reward: give one of 'reward' (of the whole trajectory), 'rewards'"),
        ({"rewards": [0, 1]}, "has 'reward' and 'rewards': give"),
        ({"reward": None, "rewards": [1]}, "'rewards' has 1 numbers for 2 steps"),
        ({"reward": "much"}, "'reward': could not convert"),
        ({"reward": float("nan")}, "'reward': expected a finite number"),
        ({"success": 0.5}, "'success': expected true or false"),
        ({"trajectory": [1]}, "'trajectory': expected text or an integer as an id"),
        ({"group": 1.0}, "'group': expected text or an integer as an id"),
        ({"messages": "[{'role': 'user'}]"}, "'messages' as JSON: Expecting property name"),
        (
            {"messages": None, "reward": None, "steps": [{**STEPS[0], "reward": 1}, STEPS[1]]},
            "step 1 has no reward, though others have one",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path, changes, message):
    with pytest.raises(StorageError, match=rf"a\.jsonl line 2: {re.escape(message)}"):
        read(tmp_path / "a.jsonl", line(trajectory=1), line(**changes))


@pytest.mark.parametrize(
    ("changes", "columns", "message"),
    [
        ({}, {"success": "wonn"}, "no key wonn for success; there are group, messages, reward, trajectory"),
        ({}, {"trajectory": "trail"}, "no key trail for trajectory; there are group"),
        ({}, {"observation": "seen"}, "no key seen for observation; there are none"),
        ({"messages": None, "steps": STEPS}, {"penalty": "cost"}, "no key cost for penalty; there are action, obs"),
    ],
)
def test_a_chosen_key_that_does_not_occur_is_refused(tmp_path, changes, columns, message):
    with pytest.raises(StorageError, match=rf"a\.jsonl: {message}"):
        read(tmp_path / "a.jsonl", line(**changes), columns=columns)
    usual = {name: name for name in columns}
    read(tmp_path / "a.jsonl", line(success=True, messages=None, steps=[{**STEPS[0], "penalty": 0}]), columns=usual)


def test_what_only_some_estimators_read_may_be_in_steps(tmp_path):
    own = {"value": 0.5, "bootstrap": 0.0, "response_log_prob": -1.0, "truncated": False}
    steps = [{**step, **own, "reward": 0.0} for step in STEPS]
    steps[1] |= {"bootstrap": 8.0, "truncated": True}
    read(tmp_path / "a.jsonl", line(messages=None, reward=None, steps=steps))
    batch = step_batch_from_table(read_rollouts(tmp_path / "a.jsonl"))
    assert (batch.bootstrap.tolist(), batch.truncated.tolist()) == ([0.0, 8.0], [False, True])
    assert batch.response_log_prob.tolist() == [-1.0, -1.0]
    advantages = compute_advantages(batch, "gae", gamma=0.5, gae_lambda=1).values
    assert advantages.tolist() == [1.5, 3.5]
    steps[0]["truncated"], steps[1]["truncated"] = 12, 700  # characters
    read(tmp_path / "a.jsonl", line(messages=None, reward=None, steps=steps))
    assert step_batch_from_table(read_rollouts(tmp_path / "a.jsonl")).truncated is None


def test_a_trajectory_that_is_there_twice_is_refused(tmp_path):
    with pytest.raises(StorageError, match=r"a\.jsonl line 2: same group and trajectory as a\.jsonl line 1"):
        read(tmp_path / "a.jsonl", line(), line())


def test_ids_may_contain_the_separator_of_group_and_trajectory(tmp_path):
    found = read(tmp_path / "a.jsonl", line(group="a/b", trajectory="c"), line(group="a", trajectory="b/c"))
    assert [row["trajectory"] for row in found] == ['["a/b", "c"]'] * 2 + ['["a", "b/c"]'] * 2


def test_an_inspector_leaves_a_damaged_trajectory_out_and_no_other(tmp_path):
    lines = [line(), line(trajectory=1, reward="much"), line(trajectory=2, reward=0)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in lines) + '{"group": 1, "mess', encoding="utf-8")
    [file] = find_step_files(path)
    steps, notices = read_intact(file)
    assert len(steps.batch) == 4
    assert [notice.row for notice in notices] == [4, 2]


def test_a_number_called_steps_makes_no_trajectory(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"steps": 3, "group": 1}\n', encoding="utf-8")
    assert [file.format for file in find_step_files(path)] == ["hgpo"]


def test_the_page_shows_lines_that_can_be_read(tmp_path):
    page = PAGE.read_text(encoding="utf-8")
    shown = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    found = read(tmp_path / "a.jsonl", *shown)
    batch = step_batch_from_table(read_rollouts(tmp_path / "a.jsonl"))
    assert summarise_levels(batch, compute_advantages(batch)).unequal_starts == 0
    assert [(row["trajectory"], row["observation"], row["reward"]) for row in found] == [
        ("task 7/0", "Task: buy a red lamp. Search box.", 0.0),
        ("task 7/0", "Lamp A, lamp B", 1.0),
        ("task 7/1", "Task: buy a red lamp. Search box.", 0.0),
        ("task 7/1", "Lamp A, lamp B", 0.5),
    ]
    empty = line(trajectory=2, messages=[*TALK[:3], {"role": "user"}])
    with pytest.raises(StorageError, match=r"conversations\.jsonl line 3: message 3 has no content; it has role"):
        read(tmp_path / "conversations.jsonl", line(), line(trajectory=1), empty)
