"""Estimators, options and batches whose advantages are recorded.

The batches are drawn from numpy's `RandomState`, whose numbers are the same in every version of numpy, and from no code
of the package. Every option value of every estimator occurs in at least one case.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import numpy as np

import hgpo

Columns = dict[str, list[Any]]

BATCHES = 50
GAMMAS = (0.95, 0.95, 1.0, 0.5, 0.0)
"""Batch b is discounted by GAMMAS[b % 5]."""

OPTION_VALUES: dict[str, dict[str, list[Any]]] = {
    "hgpo": {
        "history_length": [0, 1, 2, 3, 5],
        "mode": ["mean_std_norm", "mean_norm"],
        "weight_type": ["length", "pooled"],
        "length_weight_alpha": [0.0, 0.5, 1.0, 2.0, 7.0, float("inf")],
        "length_offset": [1, 2, 3],
        "base_group": [True, False],
        "missing": ["zero", "renormalize", "drop_zero"],
        "early": ["drop", "truncate", "pad"],
        "context": ["observation", "observation_action", "prompt"],
        "baseline": ["mean", "leave_one_out"],
        "ddof": [0, 1],
        "epsilon": [1e-6, 0.0, 0.1],
    },
    "gigpo": {
        "mode": ["mean_std_norm", "mean_norm"],
        "step_advantage_w": [0.0, 0.5, 1.0],
        "similarity_threshold": [None, 0.5, 0.9, 1.0],
    },
    "grpo": {"mode": ["mean_std_norm", "mean_norm"], "count": ["trajectory", "step"]},
    "dr_grpo": {"count": ["trajectory", "step"]},
    "rloo": {},
    "reinforce": {"mode": ["mean_std_norm", "mean_norm"]},
    "gae": {"gae_lambda": [0.0, 0.5, 0.95, 1.0]},
    "atd": {
        "lambda_min": [0.0, 0.5, 1.0],
        "trust": [0.0, 2.0, 10.0],
        "mode": ["none", "batch_std"],
        "history_length": [0, 1, 2, 3],
    },
    "g2po": {"mode": ["mean_std_norm", "mean_norm"], "step_advantage_w": [0.0, 0.5, 1.0]},
    "graphgpo": {
        "mode": ["mean_std_norm", "mean_norm"],
        "step_advantage_w": [0.0, 1.0, 2.0],
        "episode_advantage_w": [0.0, 1.0, 2.0],
        "distance_gamma": [0.0, 0.1, 0.9, 1.0],
        "success_reward": [1.0, 10.0],
        "unreachable": ["farthest", "zero"],
        "normalize_distance": [False, True],
    },
    "mixed_effects": {
        "history_length": [0, 1, 2, 3],
        "mode": ["mean_std_norm", "mean_norm"],
        "context": ["observation", "observation_action"],
        "early": ["drop", "truncate", "pad"],
        "epsilon": [1e-6, 0.0, 0.1],
    },
}

_LENGTH_WEIGHTS_ONLY = ("length_weight_alpha", "length_offset", "base_group", "missing")
"""Options of HGPO that weight_type="pooled" refuses."""

_COMBINATIONS = 16
"""Cases of each estimator in which every option has a value drawn at random."""


@cache
def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    """(estimator, options) of every case by name.

    Each option value occurs alone and, for HGPO, with the preset "verl-agent"; random combinations follow.
    """
    found: dict[str, tuple[str, dict[str, Any]]] = {}

    def add(estimator: str, options: dict[str, Any]) -> None:
        name = ",".join([estimator, *(f"{option}={value}" for option, value in options.items())])
        found.setdefault(name, (estimator, options))

    for estimator, values in OPTION_VALUES.items():
        single: list[dict[str, Any]] = [{}, *({name: value} for name in values for value in values[name])]
        for options in single:
            add(estimator, options)
        if estimator == "hgpo":
            for options in single:
                add(estimator, {"preset": "verl-agent", **options})
            add(estimator, {"preset": "paper"})  # the default: its options are those of the cases without a preset
            add(estimator, {"preset": "paper", "missing": "drop_zero", "early": "drop", "length_offset": 2})
        if len(values) < 2:
            continue
        random = np.random.RandomState(len(found))
        for _ in range(_COMBINATIONS):
            options = {name: choices[random.randint(len(choices))] for name, choices in values.items()}
            if options.get("weight_type") == "pooled":
                options = {name: value for name, value in options.items() if name not in _LENGTH_WEIGHTS_ONLY}
            add(estimator, options)
    return found


def columns(number: int) -> Columns:
    """Columns of batch `number`, rows in random order.

    The batches differ in the number of groups, trajectories and steps, in how often states repeat, and in whether the
    optional columns `penalty`, `next_observation` and `success` are given. Some have only single trajectories, some
    only rewards of 0, some only equal trajectories.
    """
    random = np.random.RandomState(1_000 + number)
    rewards = ([0.0, 10.0], [0.0, 0.0, 1.0], [-1.5, 0.25, 2.0], None, [0.0])[number % 5]  # None: any real number
    states = int(random.randint(1, 7))
    most_trajectories = 1 if number % 17 == 5 else 6
    equal = number % 13 == 7
    rows: list[dict[str, Any]] = []
    for group in range(random.randint(1, 4)):
        trajectories: list[list[dict[str, Any]]] = []
        for trajectory in range(random.randint(1, most_trajectories + 1)):
            steps = int(random.randint(1, 9))
            if equal and trajectories:
                steps = len(trajectories[0])
            won = bool(random.randint(2))
            played: list[dict[str, Any]] = []
            for step in range(steps):
                place = int(random.randint(states)) if step else 0
                ends = step == steps - 1
                reward = random.random_sample() * 4 - 2 if rewards is None else rewards[random.randint(len(rewards))]
                row = {
                    "group": f"task {group}",
                    "trajectory": f"{group}-{trajectory}",
                    "step": step,
                    "observation": f"You arrive at shelf {place}. On it you see a mug {place % 2} and a plate {place}.",
                    "action": (f"go to shelf {random.randint(2)}", "look", None)[random.randint(3)],
                    "prompt": f"prompt {random.randint(1, 4)} at shelf {place}",
                    "reward": reward if ends or number % 3 == 0 else 0.0,
                    "penalty": float(random.randint(3) == 0) * 0.1,
                    "value": random.random_sample() * 2 - 1,
                    "success": won,
                }
                if equal and trajectories:
                    row = {**trajectories[0][step], "trajectory": row["trajectory"]}
                played.append(row)
            trajectories.append(played)
        for played in trajectories:
            after = [row["observation"] for row in played[1:]]
            last = None if random.randint(2) else "You have finished."
            rows += [{**row, "next_observation": text} for row, text in zip(played, [*after, last], strict=True)]
    rows = [rows[place] for place in random.permutation(len(rows))]
    left_out = {
        "penalty": number % 4 == 1,
        "next_observation": number % 2 == 1,
        "success": number % 3 == 1,
    }
    return {name: [row[name] for row in rows] for name in rows[0] if not left_out.get(name)}


OF_BENCHMARKS = {"atd": "atd:ATD"}
"""Estimators that the benchmarks compare with, by their names in the data."""


@cache
def batch(number: int) -> hgpo.StepBatch:
    """Batch `number`."""
    return hgpo.StepBatch.from_columns(**columns(number))


def compute(number: int, estimator: str, options: dict[str, Any]) -> hgpo.Advantages:
    """Advantages of batch `number`."""
    gamma = GAMMAS[number % len(GAMMAS)]
    name = OF_BENCHMARKS.get(estimator, estimator)
    return hgpo.compute_advantages(batch(number), estimator=name, gamma=gamma, **options)


def input_digest(number: int) -> int:
    """64 bits of the SHA-256 of a batch: tells a change of the batches from a change of the estimators."""
    return _digest(repr(columns(number)).encode())


def group_digest(advantages: hgpo.Advantages) -> int:
    """Digest of what the levels compare: each step's group, numbered by first row, its size, whether it is used."""
    parts: list[bytes] = []
    for level in advantages.levels:
        parts += [_renumbered(level.group), _bytes(level.size, np.int64), _bytes(level.used, np.bool_)]
    return _digest(b"".join(parts))


def number_digest(advantages: hgpo.Advantages) -> int:
    """Digest of the float64 bytes of the levels' means, standard deviations, advantages and weights."""
    parts = [
        _bytes(column, np.float64)
        for level in advantages.levels
        for column in (level.mean, level.std, level.advantage, level.weight)
    ]
    return _digest(b"".join(parts))


def arithmetic_digest() -> int:
    """Digest of powers, sums and deviations as this machine's numpy rounds them.

    Sums of numpy have one order on every CPU, but powers come from different libraries (with AVX-512 numpy takes its
    own, elsewhere the C library's), and their last bit may differ. Equal digests mean that advantages must agree bit
    for bit.
    """
    random = np.random.RandomState(0)
    base, exponent = np.meshgrid([0.0, 0.1, 0.5, 0.9, 0.95, 1.0], np.arange(64.0))
    ratio = np.arange(1.0, 9.0)[:, None] / np.arange(1.0, 9.0)
    number = random.random_sample(1_000) - 0.5
    parts = [
        np.power(base, exponent),
        *(0.95 ** np.arange(-count, count) for count in range(1, 20)),
        *(ratio**alpha for alpha in (0.5, 2.0, 7.0)),
        np.array([pow(0.95, power) for power in range(64)]),
        np.array([function(number[:count]) for count in range(1, 200) for function in (np.sum, np.mean, np.std)]),
        np.add.reduceat(number, np.arange(0, 1_000, 37)),
        np.bincount(np.arange(1_000) % 37, weights=number),
        np.sqrt(np.abs(number)),
    ]
    return _digest(b"".join(_bytes(part, np.float64) for part in parts))


def _renumbered(group: Any) -> bytes:
    """The groups numbered by the first row that they have; -1 stays."""
    number: dict[int, int] = {-1: -1}
    return _bytes([number.setdefault(each, len(number) - 1) for each in np.asarray(group).tolist()], np.int64)


def _bytes(column: Any, kind: Any) -> bytes:
    # adding 0 turns -0 into 0: equal numbers have equal bytes; NaN has many encodings, so inf stands for it
    numbers = np.asarray(column, dtype=kind) + kind(0)
    return np.where(numbers == numbers, numbers, np.inf).tobytes() if kind is np.float64 else numbers.tobytes()


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "little")
