import dataclasses
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corridor import CorridorSuite
from hgpo.agents import TEMPLATES
from hgpo.estimators import compute_advantages
from hgpo.rollout.prompts import RolloutRules
from hgpo.rollout.records import to_step_batch, write_rollouts
from hgpo.rollout.runner import collect
from hgpo.storage.discover import find_step_files
from hgpo.storage.reading import count_rows, read_batch, read_intact
from hgpo.storage.schema import StorageError
from hgpo.storage.step_batches import step_batch_from_table
from hgpo.storage.tables import write_table
from house import write_rows
from scripted_policy import ScriptedPolicy
from stored_rollouts import read_rollouts


@pytest.fixture(scope="module")
def steps():
    def stumble(prompt, rng):
        return str(rng.choice(["go right", "go left", "open door"]))

    rules = RolloutRules(TEMPLATES.get("compact"), history_length=1, temperature=1.0, reward_scale=10.0)
    return collect(
        CorridorSuite().tasks("train")[:1], ScriptedPolicy(stumble), rules, np.random.default_rng(1), group_size=6
    )


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_advantages_from_a_file_equal_those_from_memory(tmp_path, steps, suffix):
    path = tmp_path / f"rollouts{suffix}"
    write_rollouts(path, steps, {"advantage": np.arange(len(steps), dtype=float)})
    table = read_rollouts(path)
    assert table.column("advantage").to_pylist() == list(range(len(steps)))
    for estimator in ("hgpo", "graphgpo"):  # the second asks who won and what a step led to
        stored = compute_advantages(step_batch_from_table(table), estimator)
        assert np.array_equal(stored.values, compute_advantages(to_step_batch(steps), estimator).values)
        assert np.any(stored.values != 0)


def test_text_that_utf8_cannot_hold_is_stored_all_the_same(tmp_path, steps):
    odd = dataclasses.replace(steps[0], response="a\ud800b\x00")
    write_rollouts(tmp_path / "odd.parquet", [odd])
    assert read_rollouts(tmp_path / "odd.parquet").column("response").to_pylist() == ["a?b\x00"]


def test_foreign_columns_of_any_hashable_type_do(tmp_path):
    rows = [{"group": 1, "trajectory": t, "step": 0, "observation": "s", "reward": float(t)} for t in range(3)]
    (tmp_path / "foreign.jsonl").write_text("\n".join(map(json.dumps, rows)))
    batch = step_batch_from_table(read_rollouts(tmp_path / "foreign.jsonl"))
    values = compute_advantages(batch, estimator="hgpo", mode="mean_norm", history_length=0).values
    assert values.tolist() == [-1.0, 0.0, 1.0]


def row(trajectory, reward, **columns):
    return {"group": "g", "trajectory": trajectory, "step": 0, "observation": "s", "reward": reward, **columns}


def test_columns_that_the_first_row_lacks_are_read(tmp_path):
    path = write_rows(tmp_path / "x.jsonl", [row("a", 1.0), row("b", 0.0, penalty=0.5)])
    [file] = find_step_files(path)
    with pytest.raises(
        StorageError, match=r"x\.jsonl line 1: column 'penalty': missing value, though other rows have one"
    ):
        read_batch(file)
    write_rows(path, [row("a", 1.0, penalty=0), row("b", 0.0, penalty=0.5)])
    assert read_batch(file).batch.penalty.tolist() == [0.0, 0.5]


def test_the_files_of_a_folder_need_not_be_of_one_type(tmp_path):
    write_rows(tmp_path / "1.jsonl", [row("a", 1), row("b", 0)])
    write_rows(tmp_path / "2.jsonl", [row("c", 0.5)])
    write_table(tmp_path / "3.parquet", pa.table({name: [value] for name, value in row("d", 0.25).items()}))
    large = pa.table({name: [value] for name, value in row("e", 0.0).items()})
    step = large.schema.get_field_index("step")
    observation = large.schema.get_field_index("observation")
    schema = large.schema.set(step, pa.field("step", pa.int32()))
    write_table(tmp_path / "4.parquet", large.cast(schema.set(observation, pa.field("observation", pa.large_string()))))
    batch = step_batch_from_table(read_rollouts(tmp_path))
    assert batch.reward.tolist() == [1.0, 0.0, 0.5, 0.25, 0.0]
    assert batch.observation.tolist() == [0] * 5


def test_files_without_rows_are_named(tmp_path):
    write_rows(tmp_path / "1.jsonl", [row("a", 1)])
    pq.write_table(read_rollouts(tmp_path).slice(0, 0), tmp_path / "2.parquet")
    for path in (tmp_path, tmp_path / "2.parquet"):
        with pytest.raises(StorageError, match=r"2\.parquet: no rows; write it again or remove it"):
            read_rollouts(path)


def test_the_place_of_a_row_is_its_file_and_line(tmp_path):
    rows = [row("a", 1.0), row("b", float("inf"))]
    (tmp_path / "a.JSONL").write_text("\n\n".join(map(json.dumps, rows)))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "b.PARQUET")
    for file, place in zip(find_step_files(tmp_path), ("a.JSONL line 3", "b.PARQUET row 1"), strict=True):
        with pytest.raises(StorageError, match=f"{place}: column 'reward': expected a finite number"):
            read_batch(file)


def house_of(tmp_path, rows, *updates):
    for update in updates:
        write_rows(tmp_path / "house" / f"{update:05d}.jsonl", rows)
    return find_step_files(tmp_path / "house")


def test_an_update_is_whole_where_nothing_is_damaged(tmp_path, rows):
    for file in house_of(tmp_path, rows, 3, 4):
        steps, notices = read_intact(file)
        assert (len(steps.batch), notices) == (len(rows), ())
        assert steps.values("response", [2, 0]) == [rows[2]["response"], rows[0]["response"]]
        assert steps.values("fault", [2, 0]) == [None, None]
    assert steps.update == 4


def test_texts_stay_with_their_rows_where_some_are_left_out(tmp_path, rows):
    rows[1]["reward"] = None
    (file,) = house_of(tmp_path, rows, 1)
    steps, _ = read_intact(file)
    assert steps.table["response"].to_pylist() == [row["response"] for row in rows[2:]]
    assert [steps.batch.labels["action"][at] for at in steps.batch.action] == [row["action"] for row in rows[2:]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "1.jsonl: no rows; write it again or remove it"),
        (b"{", "1.jsonl line 1: not JSON"),
        (b'{"step": 1}', "1.jsonl: no column group, trajectory, observation, reward. The file has step;"),
        (b'{"a": 1}', "1.jsonl: no column group, trajectory, step, observation, reward. The file has a;"),
    ],
)
def test_a_file_without_a_step_says_why_once(tmp_path, content, message):
    (tmp_path / "1.jsonl").write_bytes(content)
    steps, notices = read_intact(*find_step_files(tmp_path))
    assert steps is None
    (notice,) = notices
    assert str(notice).startswith(message)


def test_both_formats_give_the_same_batch(tmp_path, rows):
    write_rows(tmp_path / "1.jsonl", rows)
    write_table(tmp_path / "2.parquet", pa.Table.from_pylist(rows))
    batches = [read_batch(file).batch for file in find_step_files(tmp_path)]
    batches += [step_batch_from_table(read_rollouts(file.path)) for file in find_step_files(tmp_path)]
    for batch in batches[1:]:
        assert batch.labels == batches[0].labels
        for name in ("group", "trajectory", "step", "observation", "reward", "action", "prompt", "success"):
            assert getattr(batch, name).tolist() == getattr(batches[0], name).tolist()


def test_columns_may_have_other_keys(tmp_path, rows):
    row = {"task": "g", "trajectory": "t", "step": 0, "observation": "o", "reward": 1.0, "room": "r"}
    write_rows(tmp_path / "own.jsonl", [row])
    columns = {"group": "task", "observation": "room"}
    table = read_rollouts(tmp_path / "own.jsonl", columns=columns)
    assert table.to_pylist()[0] == {**row, "group": "g", "observation": "r"}
    (file,) = find_step_files(tmp_path / "own.jsonl")
    assert read_batch(file, columns).batch.labels["observation"] == ("r",)
    with pytest.raises(StorageError, match=r"own\.jsonl: no column place for observation; the file has task"):
        read_rollouts(tmp_path / "own.jsonl", columns={"observation": "place"})
    with pytest.raises(ValueError, match="no column pentaly is read from rollouts"):
        read_batch(file, {"pentaly": "reward"})


def test_rows_are_counted_without_being_read(tmp_path, rows):
    write_table(tmp_path / "1.parquet", pa.Table.from_pylist(rows))
    assert count_rows(tmp_path / "1.parquet") == count_rows(write_rows(tmp_path / "1.jsonl", rows)) == len(rows)
    assert count_rows(tmp_path / "none.jsonl") == 0
    (tmp_path / "printed.json").write_text(json.dumps(rows, indent=1))  # its lines are not its rows
    assert count_rows(tmp_path / "printed.json") == 0


ODD = (None, -1, 0, 1, 0.5, 2**70, 1e300, float("nan"), True, "", "\ud800", "1/a#0", [1], {"a": 1})


@pytest.mark.parametrize("times", [50, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_what_one_reader_refuses_is_what_the_other_leaves_out(tmp_path, rows, suffix, times):
    """One value of one row is changed to an odd one, many times over."""
    rng = np.random.default_rng(7)
    rows = [{**row, "penalty": 0.0, "value": 0.5} for row in rows]
    names, refused = [name for name in rows[0] if name not in ("terminated", "truncated")], 0
    file = tmp_path / f"1{suffix}"
    for _ in range(times):
        at, name, odd = rng.integers(len(rows)), rng.choice(names), ODD[rng.integers(len(ODD))]
        changed = [{**row, name: odd} if place == at else row for place, row in enumerate(rows)]
        if suffix == ".jsonl":
            write_rows(file, changed)
        else:
            try:
                pq.write_table(pa.Table.from_pylist(changed), file)
            except (pa.ArrowException, OverflowError, UnicodeEncodeError):
                continue  # what parquet cannot hold
        intact, notices = read_intact(*find_step_files(file))
        try:
            batch = read_batch(*find_step_files(file)).batch
        except StorageError as error:
            refused += 1
            explanation = str(error).replace(f"{tmp_path}/", "")
            assert str(notices[0]).startswith(explanation)
            assert 0 < len(intact.batch) < len(rows)
        else:
            assert notices == ()
            assert intact.batch.labels == batch.labels
            assert intact.batch.reward.tolist() == batch.reward.tolist()
    assert refused > times / 10
