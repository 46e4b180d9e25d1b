from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hgpo import grouping
from hgpo.grouping import Runs, StepGroups, group_steps
from hgpo.steps import StepBatch


def batch_of(paths: list[tuple[str, str]], **changes: Any) -> StepBatch:
    """One trajectory per (group, observations), each letter an observation."""
    rows = [(g, t, s, o) for t, (g, path) in enumerate(paths) for s, o in enumerate(path)]
    group, trajectory, step, observation = (list(column) for column in zip(*rows, strict=True))
    given = {"group": group, "trajectory": trajectory, "step": step, "observation": observation}
    return StepBatch.from_columns(**(given | {"reward": [0.0] * len(rows)} | changes))


def groups_at(groups: StepGroups, k: int) -> list[list[int]]:
    """Member rows of each group of level k, steps without a group left out."""
    run = Runs.from_starts(groups.starts[k]).run_N
    present = groups.present[k]
    members: dict[int, list[int]] = {}
    for entry, row in enumerate(groups.row_N):
        if present is None or present[entry]:
            members.setdefault(int(run[entry]), []).append(int(row))
    return sorted(sorted(rows) for rows in members.values())


# Rows: 0 A, 1 B, 2 C of the first trajectory; 3 A, 4 B, 5 C of the second; 6 A, 7 C of the third; 8 C of another task.
PATHS = [("x", "ABC"), ("x", "ABC"), ("x", "AC"), ("y", "C")]


def test_runs() -> None:
    runs = Runs.from_starts(np.array([True, False, True, False, False]))
    assert runs.start_G.tolist() == [0, 2]
    assert runs.size_G.tolist() == [2, 3]
    assert runs.run_N.tolist() == [0, 0, 1, 1, 1]


def test_level_0_groups_equal_observations_of_one_task() -> None:
    groups = group_steps(batch_of(PATHS), 0)
    assert groups_at(groups, 0) == [[0, 3, 6], [1, 4], [2, 5, 7], [8]]


def test_history_splits_groups() -> None:
    groups = group_steps(batch_of(PATHS), 2, early="drop")
    assert groups_at(groups, 1) == [[1, 4], [2, 5], [7]]
    assert groups_at(groups, 2) == [[2, 5]]


def test_truncated_contexts_match_contexts_cut_at_the_same_length() -> None:
    groups = group_steps(batch_of(PATHS), 2, early="truncate")
    assert groups_at(groups, 1) == [[0, 3, 6], [1, 4], [2, 5], [7], [8]]
    assert groups_at(groups, 2) == [[0, 3, 6], [1, 4], [2, 5], [7], [8]]


def test_a_revisited_observation_is_not_a_start() -> None:
    """A returns at step 2: same level-0 group as the start, but not the same history."""
    batch = batch_of([("x", "ABA"), ("x", "A")])
    assert groups_at(group_steps(batch, 1, early="truncate"), 0) == [[0, 2, 3], [1]]
    assert groups_at(group_steps(batch, 1, early="truncate"), 1) == [[0, 3], [1], [2]]
    assert groups_at(group_steps(batch, 1, early="drop"), 1) == [[1], [2]]


def test_padding_repeats_the_first_observation() -> None:
    """Standing still at the start looks like the padded start; truncation tells them apart."""
    batch = batch_of([("x", "AAB"), ("x", "AB")])
    assert groups_at(group_steps(batch, 1, early="pad"), 1) == [[0, 1, 3], [2, 4]]
    assert groups_at(group_steps(batch, 1, early="truncate"), 1) == [[0, 3], [1], [2, 4]]
    assert groups_at(group_steps(batch, 2, early="pad"), 2) == [[0, 1, 3], [2, 4]]
    assert groups_at(group_steps(batch, 2, early="truncate"), 2) == [[0, 3], [1], [2], [4]]


def test_actions_between_observations() -> None:
    """Rows 1 and 3 saw the same two observations after different actions; their own actions do not count."""
    batch = batch_of([("x", "AB"), ("x", "AB"), ("x", "AB")], action=["go", "l", "run", "m", "go", "n"])
    assert groups_at(group_steps(batch, 1, "observation_action"), 0) == [[0, 2, 4], [1, 3, 5]]
    assert groups_at(group_steps(batch, 1, "observation_action"), 1) == [[0, 2, 4], [1, 5], [3]]


def test_padding_with_actions_never_equals_a_real_action() -> None:
    batch = batch_of([("x", "AAB"), ("x", "AB")], action=["wait"] * 5)
    groups = group_steps(batch, 1, "observation_action", early="pad")
    assert groups_at(groups, 1) == [[0, 3], [1], [2, 4]]


def test_prompts_make_one_level() -> None:
    batch = batch_of(PATHS, prompt=["p", "q", "p", "p", "q", "q", "r", "p", "p"])
    groups = group_steps(batch, 4, "prompt")
    assert len(groups.starts) == 1
    assert groups_at(groups, 0) == [[0, 2, 3, 7], [1, 4, 5], [6], [8]]


@pytest.mark.parametrize("prompts", [[None] * 9, ["p", "q", None, "p", "q", "q", None, "p", "p"]])
def test_two_missing_prompts_are_not_the_same_prompt(prompts: list[str | None]) -> None:
    batch = batch_of(PATHS, prompt=prompts)
    assert groups_at(group_steps(batch, 0), 0) == groups_at(group_steps(batch_of(PATHS), 0), 0)
    with pytest.raises(ValueError, match=f"column 'prompt', row {prompts.index(None)}: missing value"):
        group_steps(batch, 0, "prompt")


@pytest.mark.parametrize("context", ["observation_action", "prompt"])
def test_a_missing_column_is_named(context: str) -> None:
    with pytest.raises(ValueError, match=r"column '(action|prompt)': context="):
        group_steps(batch_of(PATHS), 1, context)


def test_unknown_choices() -> None:
    with pytest.raises(ValueError, match="context must be one of observation, observation_action, prompt"):
        group_steps(batch_of(PATHS), 1, "state")
    with pytest.raises(ValueError, match="early must be one of drop, truncate, pad"):
        group_steps(batch_of(PATHS), 1, early="keep")


def test_history_longer_than_every_trajectory() -> None:
    groups = group_steps(batch_of(PATHS), 20, early="drop")
    assert groups_at(groups, 20) == []
    assert groups_at(group_steps(batch_of(PATHS), 20), 20) == [[0, 3, 6], [1, 4], [2, 5], [7], [8]]


@pytest.mark.parametrize("early", ["drop", "truncate", "pad"])
def test_packing_in_several_rounds_changes_nothing(early: str, monkeypatch: pytest.MonkeyPatch) -> None:
    number = np.random.default_rng(3)
    paths = [(str(number.integers(3)), "".join(number.choice(list("ABC"), size=12))) for _ in range(40)]
    batch = batch_of(paths)
    straight = [groups_at(group_steps(batch, 6, early=early), k) for k in range(7)]
    monkeypatch.setattr(grouping, "_KEY_BITS", 12)
    assert [groups_at(group_steps(batch, 6, early=early), k) for k in range(7)] == straight


def test_equal_hashes_are_not_equal_contexts() -> None:
    """-1 and -2 have the same hash in CPython."""
    assert hash(-1) == hash(-2)
    batch = StepBatch.from_columns(
        group=[0, 0], trajectory=[0, 1], step=[0, 0], observation=[-1, -2], reward=[0.0, 0.0]
    )
    assert groups_at(group_steps(batch, 0), 0) == [[0], [1]]
