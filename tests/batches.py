"""Hypothesis strategies for batches of steps and for estimator options."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

Columns = dict[str, list[Any]]


@st.composite
def columns(draw: st.DrawFn, max_groups: int = 3, max_trajectories: int = 4, max_steps: int = 6) -> Columns:
    """Columns of a valid batch, rows in a random order, with few distinct observations so that groups have members."""
    number = random.Random(draw(st.integers(0, 2**32)))
    reward_values = draw(st.sampled_from([[0.0, 10.0], [0.0, 0.0, 1.0], [-1.5, 0.25, 2.0], [0.0]]))
    penalties = draw(st.sampled_from([[0.0], [0.0, 0.1]]))
    alphabet = draw(st.integers(1, 4))
    rows = []
    for group in range(number.randint(1, max_groups)):
        for trajectory in range(number.randint(1, max_trajectories)):
            for step in range(number.randint(1, max_steps)):
                rows.append(
                    {
                        "group": f"task {group}",
                        "trajectory": (group, trajectory),
                        "step": step,
                        "observation": f"room {number.randint(1, alphabet) if step else 1}",
                        "action": number.choice(["go", "take"]),
                        "prompt": number.choice(["short prompt", "long prompt"]),
                        "reward": number.choice(reward_values),
                        "penalty": number.choice(penalties),
                    }
                )
    number.shuffle(rows)
    return {name: [row[name] for row in rows] for name in rows[0]}


@st.composite
def graph_columns(draw: st.DrawFn, **sizes: int) -> Columns:
    """Columns of a batch that may also say what each step led to and whether it won.

    `next_observation` is absent, true (with what a trajectory's last step showed), or made up, with gaps.
    """
    batch = draw(columns(**sizes))
    number = random.Random(draw(st.integers(0, 2**32)))
    count = len(batch["step"])
    following = draw(st.sampled_from(["absent", "true", "made up"]))
    success = draw(st.sampled_from(["absent", "trajectory", "row"]))
    if following != "absent":
        at = {(batch["trajectory"][row], batch["step"][row]): batch["observation"][row] for row in range(count)}
        shown = [at.get((batch["trajectory"][row], batch["step"][row] + 1)) for row in range(count)]
        rooms = [f"room {n}" for n in range(1, 6)]
        for row in range(count):
            if shown[row] is None or following == "made up":
                shown[row] = number.choice([*rooms, None, None])
        batch["next_observation"] = shown
    if success != "absent":
        names = {name: number.random() < 0.5 for name in sorted(set(batch["trajectory"]))}
        batch["success"] = [
            names[name] and (success == "trajectory" or number.random() < 0.5) for name in batch["trajectory"]
        ]
    return batch


@st.composite
def episodes(draw: st.DrawFn) -> Columns:
    """Batches with ends of all kinds, and probabilities of the actions."""
    batch = draw(columns())
    number = random.Random(draw(st.integers(0, 2**32)))
    last = {
        name: max(s for s, t in zip(batch["step"], batch["trajectory"], strict=True) if t == name)
        for name in set(batch["trajectory"])
    }
    is_last = [step == last[name] for step, name in zip(batch["step"], batch["trajectory"], strict=True)]
    won = {name for name in last if number.random() < 0.3}
    batch["success"] = [name in won and end for name, end in zip(batch["trajectory"], is_last, strict=True)]
    batch["truncated"] = [end and number.random() < 0.6 for end in is_last]
    follows = {
        (name, step): seen
        for name, step, seen in zip(batch["trajectory"], batch["step"], batch["observation"], strict=True)
    }
    batch["next_observation"] = [
        follows.get((name, step + 1), f"room {number.randint(1, 5)}")
        for name, step in zip(batch["trajectory"], batch["step"], strict=True)
    ]
    batch["response_log_prob"] = [number.choice([0.0, -0.1, -1.5, -8.0]) for _ in is_last]
    return batch


def take(batch: Columns, rows: list[int]) -> Columns:
    return {name: [column[row] for row in rows] for name, column in batch.items()}


gammas = st.sampled_from([0.0, 0.5, 0.95, 1.0])

hgpo_options = st.fixed_dictionaries(
    {
        "history_length": st.integers(0, 4),
        "mode": st.sampled_from(["mean_std_norm", "mean_norm"]),
        "length_weight_alpha": st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0]),
        "length_offset": st.sampled_from([1, 2]),
        "base_group": st.booleans(),
        "missing": st.sampled_from(["zero", "renormalize", "drop_zero"]),
        "early": st.sampled_from(["drop", "truncate", "pad"]),
        "context": st.sampled_from(["observation", "observation_action", "prompt"]),
        "baseline": st.sampled_from(["mean", "leave_one_out"]),
        "ddof": st.sampled_from([0, 1]),
    }
)
