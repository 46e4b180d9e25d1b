import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hgpo.agents import get_template
from hgpo.estimators import compute_advantages
from hgpo.policies.scripted import ScriptedPolicy
from hgpo.rollout.collect import RolloutRules, collect
from hgpo.rollout.records import to_step_batch
from hgpo.rollout.storage import (
    SCHEMA_VERSION,
    VERSION_KEY,
    StorageError,
    read_table,
    step_batch_from_table,
    write_rollouts,
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
