"""Dumps are written here as verl 0.9.1 and verl-agent write them: one list per key, keys of another length left out."""

import json
import re

import numpy as np
import pytest

from hgpo import compute_advantages
from hgpo.storage.discover import find_step_files
from hgpo.storage.reading import read_batch, read_intact
from hgpo.storage.schema import StorageError
from house import write_rows
from stored_rollouts import read_rollouts

TASKS = ("6f0c2a9e-0c1b-4f5e-9d3a-0123456789ab", "a1b2c3d4-e5f6-4a7b-8c9d-ba9876543210")
PADDING = "pad0123456789abcdef0123456789abcdef"
WALKS = {  # (task, session) -> observation and reward of each step
    (TASKS[0], 0): [("hall", 0.0), ("kitchen", 1.0)],
    (TASKS[0], 1): [("hall", 0.0), ("cellar", 0.0), ("kitchen", 0.0)],
    (TASKS[1], 0): [("attic", 1.0)],
}


def write_dump(folder, update, columns, extra, **options):
    """As verl's `_write_generations`."""
    count = len(columns["input"])
    data = {**columns, "step": [update] * count} | {
        key: values for key, values in extra.items() if len(values) == count
    }
    rows = [{key: values[row] for key, values in data.items()} for row in range(count)]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{update}.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False, **options) + "\n" for row in rows), encoding="utf-8")
    return path


def walked():
    return [
        (task, session, step, observation, reward)
        for (task, session), walk in WALKS.items()
        for step, (observation, reward) in enumerate(walk)
    ]


def columns_of(walk, scores, ground_truth=True):
    data = {
        "input": [f"user\nYou are in the {observation}." for *_, observation, _ in walk],
        "output": [f"<think>…</think><action>go {step}</action>" for _, _, step, _, _ in walk],
        "score": scores,
    }
    return data | ({"gts": [None] * len(walk)} if ground_truth else {})


def v1_dump(folder, update, with_extra=True, padding=2):
    """Trainer V1: compound uid, the last response's score in all rows of a trajectory, filled up with padding."""
    walk = walked()
    totals = {key: sum(reward for _, reward in steps) for key, steps in WALKS.items()}
    data = columns_of(walk, [totals[task, session] for task, session, *_ in walk])
    for key, value in (("input", ""), ("output", ""), ("score", 0.0), ("gts", None)):
        data[key] = data[key] + [value] * padding
    uid = [f"{task}_{session}_{step}" for task, session, step, _, _ in walk]
    extra = {"uid": uid + [f"{PADDING}_{i}_0" for i in range(padding)]}
    if with_extra:
        extra["anchor_obs"] = [observation for *_, observation, _ in walk] + [None] * padding
        extra["step_reward"] = [reward for *_, reward in walk] + [None] * padding
    return write_dump(folder, update, data, extra)


def agent_dump(folder, update, copies=(), **changes):
    """verl-agent whose reward manager returns the ids: rows in any order, some of them twice, numbers as text."""
    walk = walked()
    walk = [walk[at] for at in np.random.default_rng(update).permutation(len(walk))]
    walk += [walk[at] for at in copies]
    extra = {
        "uid": [task for task, *_ in walk],
        "traj_uid": [str(session) for _, session, *_ in walk],
        "step_index": [np.int64(step) for _, _, step, _, _ in walk],
        "anchor_obs": [observation for *_, observation, _ in walk],
        "rewards": [np.float32(reward) for *_, reward in walk],
        "is_action_valid": [np.bool_(True) for _ in walk],
        "unequal_length": [1],
    } | changes
    data = columns_of(walk, [1.0] * len(walk), ground_truth=False)
    return write_dump(folder, update, data, extra, default=str)


def read_dumps(path, **columns):
    return read_rollouts(path, "verl", columns)


def by_step(table):
    rows = table.to_pylist()
    return {(row["trajectory"], row["step"]): (row["group"], row["observation"], row["reward"]) for row in rows}


EXPECTED = {
    (f"{task}/{session}", step): (task, observation, reward) for task, session, step, observation, reward in walked()
}


@pytest.mark.parametrize("write", [v1_dump, agent_dump])
def test_a_dump_has_the_steps_that_were_walked(tmp_path, write):
    table = read_dumps(write(tmp_path, 7))
    assert by_step(table) == EXPECTED
    first = table.to_pylist()[0]
    assert first["prompt"] == f"user\nYou are in the {first['observation']}."
    assert first["response"] == f"<think>…</think><action>go {first['step']}</action>"
    assert first["dump_line"] == 1
    steps, notices = read_intact(*find_step_files(tmp_path))
    assert (steps.update, notices) == (7, ())
    assert steps.table == table


@pytest.mark.parametrize("write", [v1_dump, agent_dump])
def test_updates_of_a_folder_do_not_mix(tmp_path, write):
    for update in (10, 9):
        write(tmp_path, update)
    first, second = [read_batch(file) for file in find_step_files(tmp_path)]
    assert [(steps.update, by_step(steps.table)) for steps in (first, second)] == [(9, EXPECTED), (10, EXPECTED)]
    assert compute_advantages(first.batch, history_length=1).values.any()


def test_optional_columns_are_read_where_they_occur(tmp_path):
    extra = {
        "won": ["True", 0, "true", "0.0", False, "1"],
        "penalty": [0.1] * 6,
        "next_observation": [None] + ["x"] * 5,
    }
    table = read_dumps(agent_dump(tmp_path, 1, **extra))
    assert table["success"].to_pylist() == [True, False, True, False, False, True]
    assert table["penalty"].to_pylist() == [0.1] * 6
    assert table["next_observation"].to_pylist() == [None] + ["x"] * 5
    assert table["valid"].to_pylist() == [True] * 6
    assert table["score"].to_pylist() == [1.0] * 6
    assert "action" not in table.column_names


def test_repeated_rows_are_left_out(tmp_path):
    assert by_step(read_dumps(agent_dump(tmp_path, 3, copies=(0, 0, 4)))) == EXPECTED


def test_a_final_reward_goes_to_the_last_step(tmp_path):
    table = read_dumps(v1_dump(tmp_path, 2, with_extra=False), observation="input", final_reward="score")
    rewards = {key: reward for key, (*_, reward) in by_step(table).items()}
    assert rewards == {key: reward for key, (*_, reward) in EXPECTED.items()}


@pytest.mark.parametrize(
    ("name", "key"),
    [("trajectory", "traj_uid"), ("step", "step_index"), ("observation", "anchor_obs"), ("group", "uid")],
)
def test_a_missing_id_names_key_and_file_and_says_what_to_do(tmp_path, name, key):
    with pytest.raises(StorageError, match=rf"4\.jsonl line 1: no {name}: '{key}' .*reward_extra_info") as error:
        read_dumps(agent_dump(tmp_path, 4, **{key: []}))
    assert f"{name}=KEY" in str(error.value)
    path = agent_dump(tmp_path, 5, **{key: ["0", "1", None, "3", "4", "5"]})
    with pytest.raises(StorageError, match=rf"5\.jsonl line 3: no {name}"):
        read_dumps(path)


def test_what_trainer_v1_writes_by_itself_lacks_observation_and_reward(tmp_path):
    path = v1_dump(tmp_path, 1, with_extra=False)
    with pytest.raises(StorageError, match=r"no observation: 'anchor_obs' .*_dump_generations.*observation=input"):
        read_dumps(path)
    with pytest.raises(StorageError, match=r"no reward: 'step_reward' or 'rewards' .*final_reward=score"):
        read_dumps(path, observation="input")


def test_a_validation_dump_that_repeats_the_last_observation_is_refused(tmp_path):
    walk = walked()
    last = {key: steps[-1] for key, steps in WALKS.items()}
    extra = {
        "reward": [last[task, session][1] for task, session, *_ in walk],
        "anchor_obs": [last[task, session][0] for task, session, *_ in walk],
        "step_reward": [last[task, session][1] for task, session, *_ in walk],
        "uid": [f"{task}_{session}_{step}" for task, session, step, *_ in walk],
    }
    path = write_dump(tmp_path, 1, columns_of(walk, extra["reward"]), extra)
    with pytest.raises(StorageError, match="extra info of the last response into all rows"):
        read_dumps(path)


def test_own_keys_win_over_the_compound_uid(tmp_path):
    walk = walked()
    extra = {
        "uid": [f"{task}_{session}_{step}" for task, session, step, *_ in walk],
        "anchor_obs": [observation for *_, observation, _ in walk],
        "step_reward": [reward for *_, reward in walk],
        "game": ["one"] * len(walk),
        "step_index": [0] * len(walk),
    }
    path = write_dump(tmp_path, 1, columns_of(walk, [0.0] * len(walk)), extra)
    table = read_dumps(path, group="game", trajectory="uid")
    assert set(table["group"].to_pylist()) == {"one"}
    assert table["trajectory"].to_pylist() == [f"one/{uid}" for uid in extra["uid"]]
    assert table["step"].to_pylist() == extra["step_index"]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("{", "line 3: not JSON"),
        ("[1]", "line 3: not an object"),
        ("[" * 200_000, "line 3: nested too deeply"),
        ('{"step": 8}', "line 3: no group: 'uid' is missing or null; the row has step"),
        ('{"uid": true}', "line 3: key 'uid' .group.: expected text or an integer as an id, got True"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, damage, problem):
    path = agent_dump(tmp_path, 8)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], damage, *lines[3:]]))
    with pytest.raises(StorageError, match=problem):
        read_dumps(path)


@pytest.mark.parametrize("step", [-1, 2**70, 0.5])
def test_an_impossible_step_is_named(tmp_path, step):
    problem = r"line 2: key 'step_index' \(step\): expected an integer of at least 0 and below 2"
    with pytest.raises(StorageError, match=problem):
        read_dumps(agent_dump(tmp_path, 1, step_index=[0, step, 2, 3, 4, 5]))


def test_an_id_that_utf8_cannot_hold_is_named(tmp_path):
    path = agent_dump(tmp_path, 1)
    path.write_text(path.read_text().replace('"traj_uid": "0"', '"traj_uid": "\\ud800"', 1))
    with pytest.raises(StorageError, match=r"line \d: key 'traj_uid' \(trajectory\): .*surrogates not allowed"):
        read_dumps(path)


def test_ids_may_contain_the_separator_of_group_and_trajectory(tmp_path):
    groups = [["a/b", "a/b", "a"][index] for index in (0, 0, 1, 1, 1, 2)]
    names = [["c", "d", "b/c"][index] for index in (0, 0, 1, 1, 1, 2)]
    extra = {"uid": groups, "traj_uid": names, "step_index": [0, 1, 0, 1, 2, 0]}
    table = read_dumps(agent_dump(tmp_path, 3, **extra))
    assert set(table["trajectory"].to_pylist()) == {'["a/b", "c"]', '["a/b", "d"]', '["a", "b/c"]'}


def test_rows_of_different_trainers_are_not_read_as_one(tmp_path):
    first, second = v1_dump(tmp_path, 1), agent_dump(tmp_path, 2)
    first.write_text(first.read_text() + second.read_text())
    with pytest.raises(StorageError, match=r"1\.jsonl line 1: no trajectory: 'traj_uid' is missing or null"):
        read_dumps(first)


def test_observations_that_are_not_text_are_kept_as_json(tmp_path):
    boards = [[[1, 2], [3, 4]], [[1, 2], [3, 5]], {"b": 1, "a": 2}, {"a": 2, "b": 1}, 3, [3]]
    observations = read_dumps(agent_dump(tmp_path, 1, anchor_obs=boards))["observation"].to_pylist()
    assert observations == ["[[1, 2], [3, 4]]", "[[1, 2], [3, 5]]", *['{"a": 2, "b": 1}'] * 2, "3", "[3]"]


def test_nothing_to_read_is_said(tmp_path):
    with pytest.raises(StorageError, match="no such file or folder"):
        read_dumps(tmp_path / "none")
    with pytest.raises(StorageError, match="contains no dumps"):
        read_dumps(tmp_path)
    for rows in ("\n", json.dumps({"uid": f"{PADDING}_0_0", "input": "", "output": ""})):
        (tmp_path / "1.jsonl").write_text(rows)
        with pytest.raises(StorageError, match=r"1\.jsonl: no rows; write it again or remove it"):
            read_dumps(tmp_path)
    (tmp_path / "1.jsonl").write_bytes(b"\xff{}")
    with pytest.raises(StorageError, match=r"1\.jsonl line 1: not UTF-8"):
        read_dumps(tmp_path)


def test_a_folder_with_dumps_is_told_by_itself(tmp_path):
    agent_dump(tmp_path, 1, anchor_obs=[], room=list("abcdef"))
    table = read_rollouts(tmp_path, columns={"observation": "room"})
    assert table["observation"].to_pylist() == list("abcdef")


def test_the_line_of_a_row_is_that_before_padding_was_left_out(tmp_path):
    path = v1_dump(tmp_path, 1)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[-2:] + lines[:-2]))
    [file] = find_step_files(path)
    assert read_batch(file).table["dump_line"].to_pylist() == list(range(3, 9))


def update_of(path, **columns):
    """The trajectories of one dump that are left, and the notices."""
    steps, notices = read_intact(*find_step_files(path), columns)
    left = () if steps is None else steps.batch.labels["trajectory"]
    return {tuple(name.rsplit("/", 2)[-2:]) for name in left}, [str(notice) for notice in notices]


ALL = {(task, str(session)) for task, session in WALKS}


def test_half_a_line_is_left_out(tmp_path):
    path = v1_dump(tmp_path, 3, padding=0)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:3], lines[3][:-20], lines[4], lines[5]]))  # step 1 of 0 to 2
    kept, notices = update_of(path)
    assert notices[0].startswith("3.jsonl line 4: not JSON")
    assert notices[1].startswith(f"3.jsonl line 5: column 'step': trajectory '{TASKS[0]}/1' has step 2 but no step 1")
    assert kept == ALL - {(TASKS[0], "1")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rewards": [0.0, 1.0, "NaN", 0.0, 0.0, 0.0]}, "key 'rewards' (reward): expected a finite number"),
        ({"rewards": [0.0, 1.0, [1.0], 0.0, 0.0, 0.0]}, "key 'rewards' (reward): expected a number"),
        ({"rewards": [0.0, 1.0, None, 0.0, 0.0, 0.0]}, "no reward: 'rewards' is missing or null"),
        ({"won": [0, 1, 0.5, 0, 0, 0]}, "key 'won' (success): expected true or false"),
    ],
)
def test_a_value_that_cannot_be_used_is_an_error_or_takes_its_trajectory(tmp_path, changes, message):
    path = agent_dump(tmp_path, 4, **changes)
    row = json.loads(path.read_text().splitlines()[2])
    with pytest.raises(StorageError, match=re.escape(f"4.jsonl line 3: {message}")):
        read_dumps(path)
    kept, (notice,) = update_of(path)
    assert kept == ALL - {(row["uid"], row["traj_uid"])}
    assert notice.startswith(f"4.jsonl line 3: {message}")
    assert notice.endswith("its trajectory is left out of the comparisons")


def test_a_row_without_its_ids_is_lost(tmp_path):
    path = agent_dump(tmp_path, 4)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    odd = next(at for at, row in enumerate(rows) if (int(row["step_index"]), row["traj_uid"]) == (0, "1"))
    rows[odd]["traj_uid"] = None
    write_rows(path, rows)
    kept, notices = update_of(path)
    assert kept == ALL - {(TASKS[0], "1")}
    assert notices[0].startswith(f"4.jsonl line {odd + 1}: no trajectory: 'traj_uid' is missing or null")
    assert "has step 1 but no step 0" in notices[1]


def test_a_step_with_two_contents_is_an_error_or_takes_its_trajectory(tmp_path):
    path = agent_dump(tmp_path, 3, copies=(2,))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], lines[-1].replace("<think>", "<thought>")]))
    with pytest.raises(StorageError, match=r"line 7: .* already has a step \d in .*3\.jsonl line 3, with other"):
        read_dumps(path)
    row = json.loads(lines[-1])
    kept, (notice,) = update_of(path)
    assert kept == ALL - {(row["uid"], row["traj_uid"])}
    assert "with other content; its trajectory is left out" in notice


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"anchor_obs": []}, "4.jsonl line 1: no observation: 'anchor_obs' is missing or null"),
        ({"step_reward": [0.0] * 6}, "4.jsonl: both step_reward and rewards occur"),
        ({"traj_uid": [None] * 6}, "4.jsonl line 1: no trajectory: 'traj_uid' is missing or null"),
    ],
)
def test_what_is_wrong_with_a_whole_dump_leaves_nothing(tmp_path, changes, message):
    path = agent_dump(tmp_path, 4, **changes)
    with pytest.raises(StorageError, match=re.escape(message)):
        read_dumps(path)
    kept, (notice,) = update_of(path)
    assert not kept
    assert notice.startswith(message)
