"""Whatever is wrong with a batch, the answer is a ValueError that says so."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from hgpo.estimators import compute_advantages, names
from hgpo.steps import StepBatch

NAMES = ("group", "trajectory", "step", "observation", "reward")
OPTIONAL = ("action", "prompt", "penalty", "value", "next_observation", "success")


class BrokenHash:
    def __hash__(self) -> int:
        raise RuntimeError("no hash today")


class BrokenEquality:
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")


def strange_values(number: random.Random) -> Any:
    return number.choice(
        [None, float("nan"), float("inf"), -float("inf"), 1e300, -1, 10**30, 1.5, True, "3", "", b"x", [], {}, [1, 2],
         {"a": 1}, set(), object(), BrokenHash(), BrokenEquality(), np.array([1.0, 2.0]), np.array(3.0), np.nan,
         np.float32("nan"), np.int64(2), np.datetime64("NaT"), complex(1, 2), (1, [2]), (float("nan"),), len]
    )  # fmt: skip


def valid(number: random.Random) -> dict[str, Any]:
    trajectories = number.randint(1, 4)
    rows = [(t % 2, t, s) for t in range(trajectories) for s in range(number.randint(1, 4))]
    number.shuffle(rows)
    count = len(rows)
    return {
        "group": [f"g{group}" for group, _, _ in rows],
        "trajectory": [trajectory for _, trajectory, _ in rows],
        "step": [step for _, _, step in rows],
        "observation": [number.choice("abc") for _ in range(count)],
        "reward": [number.choice([0.0, 1.0]) for _ in range(count)],
        "action": [number.choice("xy") for _ in range(count)],
        "prompt": [number.choice("pq") for _ in range(count)],
        "penalty": [0.0] * count,
        "value": [0.5] * count,
        "next_observation": [None] * count,
        "success": [False] * count,
    }


def mutate(columns: dict[str, Any], number: random.Random) -> None:
    name = number.choice(NAMES + OPTIONAL)
    column = columns[name]
    kind = number.randrange(9)
    if not isinstance(column, list):
        return
    if kind <= 3 and column:
        column[number.randrange(len(column))] = strange_values(number)
    elif kind == 4 and column:
        column.pop(number.randrange(len(column)))
    elif kind == 5:
        column.append(strange_values(number))
    elif kind == 6:
        columns[name] = strange_values(number)
    elif kind == 7:
        for other in columns.values():
            if isinstance(other, list):
                other[:] = other[: number.randrange(3)]
    elif column:
        rows = [number.randrange(len(column)) for _ in column]
        columns[name] = [column[row] for row in rows]
        if number.random() < 0.5:
            try:
                columns[name] = np.array(columns[name])
            except Exception:
                columns[name] = tuple(columns[name])


def complaint_about(columns: dict[str, Any], estimator: str) -> str | None:
    """The ValueError's message, None for a batch that works; anything else that is raised fails the test."""
    try:
        advantages = compute_advantages(StepBatch.from_columns(**columns), estimator)
    except ValueError as error:
        return str(error)
    assert np.isfinite(advantages.values).all()
    return None


def fuzz(first_seed: int, count: int) -> int:
    refused, estimators = 0, names()  # names() reads what is installed, which takes longer than a batch
    for seed in range(first_seed, first_seed + count):
        number = random.Random(seed)
        columns = valid(number)
        for _ in range(number.randint(1, 3)):
            mutate(columns, number)
        complaint = complaint_about(columns, number.choice(estimators))
        if complaint is not None:
            refused += 1
            assert "column" in complaint
    return refused


@pytest.mark.filterwarnings("ignore")
def test_only_value_errors_are_raised() -> None:
    assert fuzz(0, 500) > 250


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_only_value_errors_are_raised_at_length() -> None:
    assert fuzz(1000, 100_000) > 50_000


@pytest.mark.parametrize(
    "options",
    [
        {"history_length": -1},
        {"history_length": 1.5},
        {"history_length": True},
        {"length_weight_alpha": -0.1},
        {"length_weight_alpha": float("nan")},
        {"length_weight_alpha": "1"},
        {"gamma": 1.01},
        {"gamma": -0.01},
        {"gamma": float("nan")},
        {"gamma": "0.9"},
        {"gamma": None},
        {"mode": "std"},
        {"mode": None},
        {"weight_type": "count"},
        {"base_group": 1},
        {"preset": "verl"},
        {"missing": "skip"},
        {"baseline": "median"},
        {"ddof": 2},
        {"early": "keep"},
        {"context": "state"},
        {"context": ["observation"]},
        {"epsilon": -1e-6},
        {"length_offset": 0},
        {"unknown": 1},
        {"history_length": 1_000_000},
        {"estimator": "nested_td", "history_length": 1_001},
        {"estimator": "hgp"},
        {"estimator": "gigpo", "step_advantage_w": -1.0},
        {"estimator": "gigpo", "mode": "x"},
        {"estimator": "gigpo", "similarity_threshold": 1.5},
        {"estimator": "grpo", "count": "token"},
        {"estimator": "graphgpo", "distance_gamma": 2},
        {"estimator": "mixed_effects", "context": "prompt"},
        {"weight_type": "pooled", "base_group": True},
        {"weight_type": "pooled", "length_weight_alpha": 2.0},
    ],
)
def test_a_bad_option_is_a_value_error_that_names_it(options: dict[str, Any]) -> None:
    batch = StepBatch.from_columns(group=[0], trajectory=[0], step=[0], observation=[0], reward=[0])
    name = list(options)[-1]
    with pytest.raises(ValueError, match=name):
        compute_advantages(batch, **options)
