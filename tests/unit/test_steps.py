from __future__ import annotations

import doctest
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch

from hgpo import steps
from hgpo.steps import StepBatch

ROWS: dict[str, Any] = {
    "group": ["g", "h", "g", "g"],
    "trajectory": ["a", "b", "a", "c"],
    "step": [1, 0, 0, 0],
    "observation": ["kitchen", "hall", "hall", "hall"],
    "reward": [1.0, 0.0, 0.0, 2.0],
}


def columns(**changes: Any) -> dict[str, Any]:
    return ROWS | changes


def test_keys_are_numbered_by_first_appearance() -> None:
    batch = StepBatch.from_columns(**ROWS)
    assert batch.group.tolist() == [0, 1, 0, 0]
    assert batch.trajectory.tolist() == [0, 1, 0, 2]
    assert batch.observation.tolist() == [0, 1, 1, 1]
    assert batch.labels["observation"] == ("kitchen", "hall")
    assert len(batch) == 4


def test_time_order_is_found_whatever_the_row_order() -> None:
    batch = StepBatch.from_columns(**ROWS)
    assert batch.order.tolist() == [2, 0, 1, 3]
    assert batch.trajectory_start.tolist() == [0, 2, 3, 4]
    assert batch.trajectory_group.tolist() == [0, 1, 0]


@pytest.mark.parametrize("convert", [list, tuple, np.array, lambda values: np.array(values, dtype=object)])
def test_columns_may_be_lists_tuples_or_arrays(convert: Any) -> None:
    batch = StepBatch.from_columns(**{name: convert(column) for name, column in ROWS.items()})
    straight = StepBatch.from_columns(**ROWS)
    for name in ("group", "trajectory", "step", "observation", "reward", "order"):
        assert getattr(batch, name).tolist() == getattr(straight, name).tolist()
    assert batch.labels == straight.labels


def test_integer_arrays_are_numbered_like_lists() -> None:
    keys = [7, -3, 7, 12]
    of_array = StepBatch.from_columns(**columns(observation=np.array(keys)))
    of_list = StepBatch.from_columns(**columns(observation=keys))
    assert of_array.observation.tolist() == of_list.observation.tolist() == [0, 1, 0, 2]
    assert of_array.labels["observation"] == of_list.labels["observation"] == (7, -3, 12)


def test_any_hashable_is_a_key() -> None:
    batch = StepBatch.from_columns(**columns(observation=[("a", 1), frozenset({1}), ("a", 1), b"x"]))
    assert batch.observation.tolist() == [0, 1, 0, 2]


def test_observation_and_next_observation_share_their_numbers() -> None:
    batch = StepBatch.from_columns(**columns(next_observation=[None, "garden", "kitchen", None]))
    assert batch.next_observation is not None
    assert batch.next_observation.tolist() == [2, 3, 0, 2]
    assert batch.labels["observation"] == ("kitchen", "hall", None, "garden")


def test_optional_columns() -> None:
    batch = StepBatch.from_columns(
        **columns(
            action=["go", None, "go", "x"], penalty=[0, 0.1, 0, 0], value=[1, 2, 3, 4], success=[1, 0, True, False]
        )
    )
    assert batch.action is not None
    assert batch.value is not None
    assert batch.success is not None
    assert batch.action.tolist() == [0, 1, 0, 2]
    assert batch.penalty.tolist() == [0.0, 0.1, 0.0, 0.0]
    assert batch.value.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert batch.success.tolist() == [True, False, True, False]
    plain = StepBatch.from_columns(**ROWS)
    assert plain.action is plain.prompt is plain.value is plain.next_observation is plain.success is None
    assert plain.penalty.tolist() == [0.0] * 4


def test_the_batch_is_read_only_and_does_not_share_memory() -> None:
    reward = np.array(ROWS["reward"])
    batch = StepBatch.from_columns(**columns(reward=reward))
    reward[0] = 5.0
    assert batch.reward[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        batch.reward[0] = 5.0
    with pytest.raises(AttributeError):
        batch.reward = reward  # type: ignore[misc]


def test_a_batch_can_be_pickled() -> None:
    batch = StepBatch.from_columns(**ROWS)
    copy = pickle.loads(pickle.dumps(batch))  # noqa: S301
    assert copy.observation.tolist() == batch.observation.tolist()
    assert copy.labels == batch.labels
    assert not copy.reward.flags.writeable


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": [1, 0, 1, 0]}, "column 'step', row 2: trajectory 'a' already has step 1 in row 0"),
        ({"step": [2, 0, 0, 0]}, "column 'step', row 0: trajectory 'a' has step 2 but no step 1"),
        ({"step": [1, 1, 0, 0]}, "column 'step', row 1: trajectory 'b' has step 1 but no step 0"),
        ({"step": [1, 0, 0, -1]}, "column 'step', row 3: expected an integer from 0"),
        ({"step": [0.5, 0, 0, 0]}, "column 'step', row 0: expected an integer from 0"),
        ({"step": [4, 0, 0, 0]}, "column 'step', row 0: trajectory 'a' has step 4 but no step 1"),
        ({"step": [1, 0, 0, None]}, "column 'step', row 3: missing value \\(None\\), expected a number"),
        ({"step": [1, "0", 0, 0]}, "column 'step', row 1: expected a number, got str"),
        ({"step": [True, False, False, False]}, "column 'step', row 0: expected a number, got bool"),
        ({"step": [0, 1, False, True]}, "column 'step', row 2: expected a number, got bool"),
        ({"step": [1, 0, 0, 2**80]}, "column 'step', row 3: expected an integer from 0"),
        ({"step": [1, 0, 0, 2**53]}, "column 'step', row 3: expected an integer from 0"),
        ({"step": [1, 0, 0, 2**53 - 1]}, "column 'step', row 3: trajectory 'c' has step 9007199254740991"),
        ({"step": [6, 0, 5, 0]}, "column 'step', row 2: trajectory 'a' has step 5 but no step 0; .* must be 0..T-1"),
        ({"penalty": [0, 0, None, 0]}, "column 'penalty', row 2: missing value"),
        ({"reward": [1, 2, float("nan"), 0]}, "column 'reward', row 2: expected a finite number"),
        ({"reward": [1, 2, 0, -float("inf")]}, "column 'reward', row 3: expected a finite number"),
        ({"reward": [1, 2, 0, 1e101]}, "column 'reward', row 3: expected a finite number of magnitude up to 1e\\+100"),
        ({"reward": [1, "2", 0, 0]}, "column 'reward', row 1: expected a number, got str"),
        ({"reward": ["1", "2", "0", "0"]}, "column 'reward', row 0: expected a number, got str"),
        ({"reward": [1, [2], 0, 0]}, "column 'reward', row 1: expected a number, got list"),
        ({"reward": np.array([1, 2j, 0, 0])}, "column 'reward', row 0: expected a number, got complex128"),
        ({"reward": np.array([1, 2, 0, 0], "m8[ns]")}, "column 'reward', row 0: expected a number, got timedelta64"),
        ({"step": np.array([1, 0, 0, 0], "M8[ns]")}, "column 'step', row 0: expected a number, got datetime64"),
        ({"reward": [1, np.ones(1), 0, 0]}, "column 'reward', row 1: expected a number, got ndarray"),
        ({"reward": [1, 2, 0]}, "column 'reward', row 3: the column has 3 rows, but 'group' has 4"),
        ({"observation": ["a", "b", "c", "d", "e"]}, "column 'observation', row 4: the column has 5 rows"),
        ({"observation": ["a", ["b"], "c", "d"]}, "column 'observation', row 1: value of type list .* a tuple or text"),
        ({"observation": ["a", "b", None, "d"]}, "column 'observation', row 2: missing value"),
        ({"observation": ["a", "b", float("nan"), "d"]}, "column 'observation', row 2: nan .* missing value as text"),
        ({"observation": "text"}, "column 'observation': expected a sequence"),
        ({"observation": {"a", "b", "c", "d"}}, "column 'observation': expected a sequence"),
        ({"observation": np.zeros((4, 2))}, "column 'observation': expected one dimension, .* tuple per row"),
        ({"reward": np.zeros((4, 1))}, "column 'reward': expected one dimension, .* number, text or tuple per row"),
        ({"reward": np.ma.array([1, 2, 3, 777], mask=[0, 0, 0, 1])}, "column 'reward', row 3: missing value .masked"),
        ({"group": np.ma.array([1, 1, 1, 1], mask=[0, 1, 0, 1])}, "column 'group', row 1: missing value .masked"),
        ({"observation": ["a", ("k", float("nan")), "c", "d"]}, "column 'observation', row 1: .*contains NaN"),
        ({"action": [None, "b", (1, (2.0, frozenset({float("nan")}))), "d"]}, "column 'action', row 2: .*contains NaN"),
        ({"prompt": ["a", "b", "c", (np.datetime64("NaT"),)]}, "column 'prompt', row 3: .*contains NaN"),
        ({"observation": 3}, "column 'observation': cannot be read as a sequence"),
        ({"group": None}, "column 'group': expected a sequence"),
        ({"group": ["g", "h", "h", "g"]}, "column 'trajectory', row 2: .* in group 'h'; use ids that are unique"),
        ({"penalty": [0, 0, 0, -0.1]}, "column 'penalty', row 3: is subtracted, so it must be at least 0"),
        ({"success": [0, 1, 2, 0]}, "column 'success', row 2: expected True or False"),
        ({"success": [0, 1, None, 0]}, "column 'success', row 2: missing value .*expected True or False"),
        ({"success": [0, 1, float("nan"), 0]}, "column 'success', row 2: expected True or False, got nan"),
        ({"success": [0, 1, "yes", 0]}, "column 'success', row 2: expected True or False, got str"),
        ({"truncated": [0, 1, "yes", 0]}, "column 'truncated', row 2: expected True or False, got str"),
        ({"truncated": [0, 0, 1, 0]}, "column 'truncated', row 2: must be False before the last step .*, got True"),
        ({"bootstrap": [0, 0, 1, 0]}, "column 'bootstrap', row 2: must be 0 before the last step .*, got 1.0"),
        ({"response_log_prob": [-1, 0, 0.5, 0]}, "column 'response_log_prob', row 2: .*at most 0, got 0.5"),
        ({"value": [0, 1, None, 0]}, "column 'value', row 2: missing value \\(None\\), expected a number"),
        ({name: [] for name in ROWS}, "column 'group': the batch is empty"),
        ({"embedding": [[0.0]] * 3}, "column 'embedding', row 3: the column has 3 rows, but 'group' has 4"),
        ({"embedding": [0.0] * 4}, "column 'embedding': expected two dimensions, .* got shape \\(4,\\)"),
        ({"embedding": [[0.0], [0.0, 1.0], [0.0], [0.0]]}, "column 'embedding': expected rows of numbers"),
        ({"embedding": [[]] * 4}, "column 'embedding': expected two dimensions, .* got shape \\(4, 0\\)"),
        ({"embedding": [["a"]] * 4}, "column 'embedding': expected rows of numbers of one length"),
        ({"embedding": [["1"]] * 4}, "column 'embedding': expected rows of numbers of one length"),
        ({"embedding": np.array([[1j]] * 4)}, "column 'embedding': expected rows of numbers of one length"),
        ({"embedding": np.ma.array([[1.0]] * 4, mask=[[0], [1]] * 2)}, "column 'embedding', row 1: missing value"),
        ({"embedding": [[0.0], [0.0], [float("nan")], [0.0]]}, "column 'embedding', row 2: expected finite numbers"),
        ({"embedding": [[0, 0], [0, np.nan], [0, 0], [0, 0]]}, "column 'embedding', row 1: expected finite numbers"),
        ({"embedding": np.float32([[0], [np.inf], [0], [0]])}, "column 'embedding', row 1: expected finite numbers"),
    ],
)  # fmt: skip
def test_errors_name_the_column_and_the_row(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StepBatch.from_columns(**columns(**changes))


def test_log_probs_that_exceed_0_by_rounding_are_0() -> None:
    batch = StepBatch.from_columns(**columns(response_log_prob=[-1.5, 1e-6, 0, -2], truncated=[0, 0, 0, 1]))
    assert batch.response_log_prob is not None
    assert batch.truncated is not None
    assert batch.response_log_prob.tolist() == [-1.5, 0, 0, -2]
    assert batch.truncated.tolist() == [False, False, False, True]


def test_an_embedding_is_a_read_only_copy_of_rows_of_numbers() -> None:
    given = torch.ones((4, 2), dtype=torch.bfloat16, requires_grad=True)
    batch = pickle.loads(pickle.dumps(StepBatch.from_columns(**columns(embedding=given))))  # noqa: S301
    assert (batch.embedding.shape, batch.embedding.dtype, batch.embedding.flags.writeable) == (
        (4, 2),
        np.float32,
        False,
    )
    assert StepBatch.from_columns(**columns(embedding=[[1], [2], [3], [4]])).embedding.dtype == np.float64


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_whole_floats_are_steps(kind: type) -> None:
    with warnings.catch_warnings(action="error"):
        assert StepBatch.from_columns(**columns(step=np.array([1, 0, 0, 0], kind))).step.tolist() == [1, 0, 0, 0]


def test_arrays_inside_a_list_are_not_keys() -> None:
    """Array-likes with an identity hash (torch scalars) would make every row its own group without a word."""

    class Scalar:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array(1.0)

    with pytest.raises(ValueError, match="column 'observation', row 0: an array"):
        StepBatch.from_columns(**columns(observation=[Scalar() for _ in range(4)]))


def test_array_like_columns_are_read_by_value() -> None:
    class Series:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array([5, 6, 5, 5])

    assert StepBatch.from_columns(**columns(observation=Series())).observation.tolist() == [0, 1, 0, 0]


def test_the_example_in_the_docstring() -> None:
    assert doctest.testmod(steps).failed == 0
    assert doctest.testmod(steps).attempted > 0
