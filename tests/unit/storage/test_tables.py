import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hgpo.agents import get_template
from hgpo.estimators import compute_advantages
from hgpo.policies.scripted import ScriptedPolicy
from hgpo.rollout.collect import collect
from hgpo.rollout.records import to_step_batch
from hgpo.rollout.rules import RolloutRules
from hgpo.rollout.writing import write_rollouts
from hgpo.storage.tables import (
    SCHEMA_VERSION,
    VERSION_KEY,
    StorageError,
    check_writable,
    place_of_row,
    read_table,
    rollout_files,
    step_batch_from_table,
    suffix_of,
    write_table,
)


@pytest.fixture
def steps(corridor_suite):
    def stumble(prompt, rng):
        return str(rng.choice(["go right", "go left", "open door"]))

    rules = RolloutRules(get_template("compact"), history_length=1, temperature=1.0, reward_scale=10.0)
    return collect(
        corridor_suite.tasks("train")[:1], ScriptedPolicy(stumble), rules, np.random.default_rng(1), group_size=6
    )


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_advantages_from_a_file_equal_those_from_memory(tmp_path, steps, suffix):
    path = tmp_path / f"rollouts{suffix}"
    write_rollouts(path, steps, {"advantage": np.arange(len(steps), dtype=float)})
    table = read_table(path)
    assert table.column("advantage").to_pylist() == list(range(len(steps)))
    for estimator in ("hgpo", "graphgpo"):  # the second asks who won and what a step led to
        stored = compute_advantages(step_batch_from_table(table), estimator)
        assert np.array_equal(stored.values, compute_advantages(to_step_batch(steps), estimator).values)
        assert np.any(stored.values != 0)


def test_a_folder_and_a_run_directory_stand_for_their_files(tmp_path, steps):
    write_rollouts(tmp_path / "rollouts" / "1.parquet", steps[:1])
    write_rollouts(tmp_path / "rollouts" / "2.parquet", steps[1:])
    for path in (tmp_path, tmp_path / "rollouts"):
        assert read_table(path).num_rows == len(steps)


def test_text_that_utf8_cannot_hold_is_stored_all_the_same(tmp_path, steps):
    import dataclasses

    odd = dataclasses.replace(steps[0], response="a\ud800b\x00")
    write_rollouts(tmp_path / "odd.parquet", [odd])
    assert read_table(tmp_path / "odd.parquet").column("response").to_pylist() == ["a?b\x00"]


def test_what_cannot_be_read_names_the_file(tmp_path, steps):
    path = tmp_path / "rollouts.parquet"
    write_rollouts(path, steps)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StorageError, match=r"rollouts\.parquet cannot be read as parquet"):
        read_table(path)
    with pytest.raises(StorageError, match="no such file or folder"):
        read_table(tmp_path / "none.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StorageError, match="holds no rollouts"):
        read_table(tmp_path / "empty")


def test_another_schema_version_is_refused(tmp_path):
    other = SCHEMA_VERSION + 1
    table = pa.table({"group": ["a"]}).replace_schema_metadata({VERSION_KEY: str(other).encode()})
    pq.write_table(table, tmp_path / "new.parquet")
    with pytest.raises(StorageError, match=f"schema version {other}; this release reads {SCHEMA_VERSION}"):
        read_table(tmp_path / "new.parquet")
    (tmp_path / "new.jsonl").write_text(json.dumps({"schema_version": other}))
    with pytest.raises(StorageError, match=f"line 1 has schema version {other}"):
        read_table(tmp_path / "new.jsonl")


def test_damaged_jsonl_names_the_line(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"group": 1}\n{"group": ')
    with pytest.raises(StorageError, match=r"x\.jsonl line 2 is not JSON"):
        read_table(tmp_path / "x.jsonl")
    (tmp_path / "y.jsonl").write_text("[1]\n")
    with pytest.raises(StorageError, match=r"y\.jsonl line 1 is not an object"):
        read_table(tmp_path / "y.jsonl")


def test_missing_columns_are_named():
    with pytest.raises(StorageError, match="no column step, observation, reward"):
        step_batch_from_table(pa.table({"group": ["a"], "trajectory": ["b"]}))


def test_foreign_columns_of_any_hashable_type_do(tmp_path):
    rows = [{"group": 1, "trajectory": t, "step": 0, "observation": "s", "reward": float(t)} for t in range(3)]
    (tmp_path / "foreign.jsonl").write_text("\n".join(map(json.dumps, rows)))
    batch = step_batch_from_table(read_table(tmp_path / "foreign.jsonl"))
    values = compute_advantages(batch, estimator="hgpo", mode="mean_norm", history_length=0).values
    assert values.tolist() == [-1.0, 0.0, 1.0]


def test_text_columns_become_the_same_batch_however_they_are_stored():
    texts = ["hall", "kitchen", "hall", "cellar", None, "hall"]
    columns = {"group": ["g"] * 6, "trajectory": ["t"] * 6, "step": list(range(6)), "reward": [0.0] * 6}
    stored = {
        "plain": pa.array(texts),
        "large": pa.array(texts, pa.large_string()),
        "chunks": pa.chunked_array([texts[:2], texts[2:], pa.array([], pa.string())]),
        "categories": pa.array(texts).dictionary_encode(),
        "chunks of categories": pa.chunked_array(
            [pa.array(part).dictionary_encode() for part in (texts[:4], texts[4:])]
        ),
        "small categories": pa.DictionaryArray.from_arrays(
            pa.array([5, 127, 5, 126, None, 5], pa.int8()),
            pa.array([*(str(i) for i in range(5)), "hall", *(str(i) for i in range(6, 126)), "cellar", "kitchen"]),
        ),
    }
    for name, column in stored.items():
        table = pa.table({**columns, "observation": pa.array(["o"] * 6), "action": column})
        batch = step_batch_from_table(table)
        assert batch.action.tolist() == [0, 1, 0, 2, 3, 0], name
        assert batch.labels["action"] == ("hall", "kitchen", "cellar", None), name
        missing = pa.table({**columns, "observation": column})
        with pytest.raises(ValueError, match="column 'observation', row 4: missing value"):
            step_batch_from_table(missing)


def write_rows(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(trajectory, reward, **columns):
    return {"group": "g", "trajectory": trajectory, "step": 0, "observation": "s", "reward": reward, **columns}


def test_columns_that_the_first_row_lacks_are_read(tmp_path):
    path = write_rows(tmp_path / "x.jsonl", row("a", 1.0), row("b", 0.0, penalty=0.5))
    with pytest.raises(StorageError, match=r"x\.jsonl line 1: column 'penalty' has a missing value"):
        step_batch_from_table(read_table(path), place=lambda at: place_of_row(path, at))
    write_rows(path, row("a", 1.0, penalty=0), row("b", 0.0, penalty=0.5))
    assert step_batch_from_table(read_table(path)).penalty.tolist() == [0.0, 0.5]


def test_the_files_of_a_folder_need_not_be_of_one_type(tmp_path):
    write_rows(tmp_path / "1.jsonl", row("a", 1), row("b", 0))
    write_rows(tmp_path / "2.jsonl", row("c", 0.5))
    write_table(tmp_path / "3.parquet", pa.table({name: [value] for name, value in row("d", 0.25).items()}))
    large = pa.table({name: [value] for name, value in row("e", 0.0).items()})
    step = large.schema.get_field_index("step")
    observation = large.schema.get_field_index("observation")
    schema = large.schema.set(step, pa.field("step", pa.int32()))
    write_table(tmp_path / "4.parquet", large.cast(schema.set(observation, pa.field("observation", pa.large_string()))))
    batch = step_batch_from_table(read_table(tmp_path))
    assert batch.reward.tolist() == [1.0, 0.0, 0.5, 0.25, 0.0]
    assert batch.observation.tolist() == [0] * 5


def test_a_folder_of_ids_as_numbers_and_as_text_names_both_files(tmp_path):
    write_rows(tmp_path / "1.jsonl", row(1, 1))
    write_rows(tmp_path / "2.jsonl", row("1", 0))
    message = r"2\.jsonl: column 'trajectory' is string, but int64 in .*1\.jsonl"
    with pytest.raises(StorageError, match=message):
        read_table(tmp_path)


def test_a_column_that_a_file_lacks_is_missing_from_its_first_row(tmp_path):
    write_rows(tmp_path / "1.jsonl", row("a", 1, penalty=0))
    write_rows(tmp_path / "2.jsonl", row("b", 0))
    table = read_table(tmp_path)
    with pytest.raises(StorageError, match=r"2\.jsonl line 1: column 'penalty' has a missing value"):
        step_batch_from_table(table, place=lambda at: place_of_row(tmp_path, at))


def test_files_without_rows_are_named(tmp_path):
    write_rows(tmp_path / "1.jsonl", row("a", 1))
    pq.write_table(read_table(tmp_path).slice(0, 0), tmp_path / "2.parquet")
    for path in (tmp_path, tmp_path / "2.parquet"):
        with pytest.raises(StorageError, match=r"2\.parquet holds no rows"):
            read_table(path)


def test_the_place_of_a_row_is_its_file_and_line(tmp_path):
    (tmp_path / "a.jsonl").write_text("{}\n\n{}\n")
    pq.write_table(pa.table({"step": [0, 1]}), tmp_path / "b.PARQUET")
    (tmp_path / "c.JSONL").write_text("{}\n")
    places = [place_of_row(tmp_path, at).removeprefix(f"{tmp_path}/") for at in range(5)]
    assert places == ["a.jsonl line 1", "a.jsonl line 3", "b.PARQUET row 0", "b.PARQUET row 1", "c.JSONL line 1"]
    assert place_of_row(tmp_path, 5) == str(tmp_path)


def test_the_case_of_a_suffix_means_nothing_and_others_are_refused(tmp_path, steps):
    for name in ("a.JSONL", "b.Parquet"):
        write_rollouts(tmp_path / name, steps)
        assert read_table(tmp_path / name).num_rows == len(steps)
    assert (tmp_path / "a.JSONL").read_text().startswith("{")
    assert [file.name for file in rollout_files(tmp_path)] == ["a.JSONL", "b.Parquet"]
    (tmp_path / "c.csv").write_text("group\n")
    for name in ("c.csv", "none"):
        with pytest.raises(StorageError, match=rf"{name}: the name of a rollout file ends in \.parquet or \.jsonl"):
            suffix_of(tmp_path / name)
    with pytest.raises(StorageError, match=r"c\.csv: the name of a rollout file ends in \.parquet or \.jsonl"):
        read_table(tmp_path / "c.csv")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0], pa.timestamp("us")),
        pa.array([b"x"]),
        pa.array([[0]], pa.list_(pa.date32())),
        pa.array([{"at": 0}], pa.struct([("at", pa.time64("us"))])),
        pa.array([1], pa.duration("s")),
        pa.array([1], pa.decimal128(9, 2)),
    ],
)
def test_what_json_has_no_form_for_is_refused_by_name(tmp_path, column):
    table = pa.table({"step": [0], "when": column})
    for refuse in (lambda path: check_writable(path, table.schema), lambda path: write_table(path, table)):
        with pytest.raises(StorageError, match=r"x\.jsonl: JSON has no form for column 'when' .*write \.parquet"):
            refuse(tmp_path / "x.jsonl")
    assert not list(tmp_path.iterdir())
    write_table(tmp_path / "x.parquet", table)
    assert read_table(tmp_path / "x.parquet")["when"].to_pylist() == column.to_pylist()


def test_what_json_has_a_form_for_is_written(tmp_path):
    table = pa.table(
        {"words": pa.array(["a"]).dictionary_encode(), "ids": pa.array([[1, 2]], pa.list_(pa.int32())), "none": [None]}
    )
    write_table(tmp_path / "x.jsonl", table)
    assert read_table(tmp_path / "x.jsonl").to_pylist() == [{"words": "a", "ids": [1, 2], "none": None}]


def test_what_parquet_has_no_form_for_is_named(tmp_path):
    with pytest.raises(StorageError, match=r"x\.parquet cannot be written as parquet: .*'note'"):
        write_table(tmp_path / "x.parquet", pa.table({"note": pa.array([{}])}))
    assert not list(tmp_path.iterdir())


def test_text_that_is_not_utf8_is_not_written_as_json(tmp_path):
    table = pa.table({"response": pa.array([b"caf\xe9"]).view(pa.string())})
    with pytest.raises(StorageError, match=r"x\.jsonl: column 'response' is not UTF-8"):
        write_table(tmp_path / "x.jsonl", table)
