from pathlib import Path

import pyarrow as pa
import pytest

from hgpo.columns import ColumnError
from hgpo.steps import StepBatch
from hgpo.storage.schema import StorageError
from hgpo.storage.step_batches import step_batch_from_table

STEPS = {"group": [7, 7], "trajectory": ["a", "a"], "step": [0, 1], "observation": [1, 2], "reward": [0.0, 1.0]}


@pytest.mark.parametrize(
    "column",
    [
        {"next_observation": [2, None]},
        {"next_observation": [None, None]},
        {"action": [7, None]},
        {"action": [0.5, None]},
        {"action": ["go", None]},
        {"action": [None, None]},
    ],
)
def test_what_may_be_missing_is_read_as_it_was_given(column):
    stored, given = step_batch_from_table(pa.table(STEPS | column)), StepBatch.from_columns(**STEPS, **column)
    (name,) = column
    assert getattr(stored, name).tolist() == getattr(given, name).tolist()
    assert stored.labels == given.labels


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            {"penalty": [0.5, None]},
            r"column 'penalty', row 1: missing value, though other rows have one.*; write 0 where nothing",
        ),
        ({"penalty": pa.array([None, 1])}, r"column 'penalty', row 0: missing value, though other rows have one"),
        (
            {"value": [None, 1.0]},
            r"column 'value', row 0: missing value, though other rows have one.*the critic's estimate of every step",
        ),
        (
            {"bootstrap": [None, 1.0]},
            r"column 'bootstrap', row 0: missing value, .*write 0 except on the last step of a trajectory",
        ),
        (
            {"success": [True, None]},
            r"column 'success', row 1: missing value, though other rows have one.*true or false in every row",
        ),
        (
            {"won": [None, True]},
            r"column 'won', row 0: missing value, though other rows have one.*true or false in every row",
        ),
        (
            {"prompt": ["p", None]},
            r"column 'prompt', row 1: missing value, though other rows have one.*or leave the column out of all rows",
        ),
        ({"group": [1, None]}, r"column 'group', row 1: missing value \(None\)"),
        ({"group": [None, 0.5]}, r"column 'group', row 0: missing value \(None\)"),
        ({"observation": [1, None]}, r"column 'observation', row 1: missing value \(None\)"),
        ({"step": [0, None]}, r"column 'step', row 1: missing value \(None\), expected a number"),
        ({"reward": [None, 1.0]}, r"column 'reward', row 0: missing value \(None\), expected a number"),
        ({"step": ["0", "1"]}, r"column 'step', row 0: expected a number, got str"),
        ({"step": ["1", "2"]}, r"column 'step', row 0: expected a number, got str"),
    ],
)
def test_what_may_not_be_missing_names_the_column_and_the_row(column, message):
    with pytest.raises(ColumnError, match=message):
        step_batch_from_table(pa.table(STEPS | column))


@pytest.mark.parametrize("name", ["penalty", "value", "bootstrap", "success", "won", "prompt", "response_log_prob"])
def test_a_column_without_a_value_counts_as_not_there(name):
    for empty in (pa.array([None, None]), pa.array([None, None], pa.float64())):
        batch = step_batch_from_table(pa.table(STEPS | {name: empty}))
        assert batch.value is batch.success is batch.prompt is None
        assert batch.penalty.tolist() == batch.bootstrap.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("values", [[None, True], ["false", "true"], [0, 1], [None, 1]])
def test_truncated_is_read_as_files_write_it(values):
    stored = step_batch_from_table(pa.table(STEPS | {"truncated": values}))
    assert stored.truncated.tolist() == [False, True]


@pytest.mark.parametrize("values", [[0, 12], ["yes", "no"], [0.25, 0.5], [[True], [False]]])
def test_a_truncated_of_another_meaning_is_not_read(values):
    assert step_batch_from_table(pa.table(STEPS | {"truncated": values})).truncated is None


def test_won_stands_in_for_a_success_without_a_value():
    won = {"won": [False, True]}
    for success in ({}, {"success": [None, None]}):
        assert step_batch_from_table(pa.table(STEPS | won | success)).success.tolist() == [False, True]
    assert step_batch_from_table(pa.table(STEPS | won | {"success": [True, True]})).success.tolist() == [True, True]


def test_missing_columns_are_named():
    with pytest.raises(StorageError, match=r"x\.parquet: no column step, observation, reward"):
        step_batch_from_table(pa.table({"group": ["a"], "trajectory": ["b"]}), Path("x.parquet"))


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
