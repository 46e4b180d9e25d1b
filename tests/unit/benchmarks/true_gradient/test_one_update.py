"""One update of equal divergence, and what it changes: beside rollouts of the new policy."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from corridor_runs import start_folder
from hgpo.config import PolicySettings
from hgpo.rollout.records import by_trajectory
from hgpo.rollout.runner import collect
from hgpo.training.load import make_backend_policy
from true_gradient.one_update import (
    TOLERANCE,
    Updated,
    UpdatePlan,
    Updater,
    UpdateRows,
    change_of_success,
    log_ratios,
    search_rate,
    update_to,
)
from true_gradient.pools import Player, PoolSettings, make_pool, open_player

KEY = "observation"
HALF_LEARNT = (  # the policy wins the shortest corridor in about half of the episodes
    "warm_start.max_updates=38",
    "warm_start.evaluate_every=38",
    "warm_start.learning_rate=1e-2",
    "environment.max_steps=3",
)
TASK = "train/1"
PLAN = UpdatePlan(tasks=1, size=16, divergence=0.01, evaluated=128, seed=0)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("updates")
    run = start_folder(folder, *HALF_LEARNT).parent
    make_pool(folder / "pool", PoolSettings(str(run), "start", tasks=1, rollouts=600))
    return folder / "pool"


@pytest.fixture(scope="module")
def player(pool: Path) -> Player:
    return open_player(PoolSettings(str(pool.parent / "start"), "start", tasks=1))


@pytest.fixture(scope="module")
def updater(pool: Path) -> Updater:
    return Updater.of_pool(pool, [KEY], PLAN)


def test_the_old_policy_changes_nothing(updater: Updater) -> None:
    ratios = log_ratios(updater.model, updater.by_key[KEY][TASK][0], updater.sampling)
    assert np.abs(np.concatenate(ratios)).max() < 1e-5
    assert change_of_success(updater.model, updater.by_key[KEY], updater.sampling) == pytest.approx(0, abs=1e-5)


def test_a_change_by_hand(monkeypatch: pytest.MonkeyPatch, updater: Updater) -> None:
    steps = [rollout[0] for rollout in updater.by_key[KEY][TASK][:4]]
    won = [True, False, True, False]
    rollouts = [[dataclasses.replace(step, won=one)] for step, one in zip(steps, won, strict=True)]
    ratios = [np.log(weight) * np.array([0.5, 0.5]) for weight in (1.3, 1.0, 1.0, 0.7)]
    monkeypatch.setattr("true_gradient.one_update.log_ratios", lambda *_: ratios)
    found = change_of_success(None, {"a": rollouts[:2], "b": rollouts[2:]}, updater.sampling)
    assert found == pytest.approx(np.mean([(0.3 * 1 + 0) / 2, (0 + 0.3 * 1) / 2]))


@pytest.mark.parametrize("power", [0.5, 1, 2, 4, 6, 9])
@pytest.mark.parametrize("first", [1e-6, 5e-4, 1e-1])
def test_the_rate_is_found_however_steep_the_divergence_is(power: float, first: float) -> None:
    """With power 4, steps as for a square go back and forth between two rates for ever."""
    updated = search_rate(lambda rate: Updated(None, rate, (rate / 3e-4) ** power, 1), first, 0.01)
    assert updated.divergence == pytest.approx(0.01, rel=TOLERANCE)


def test_a_divergence_that_jumps_over_the_goal_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"no learning rate gave a divergence of 0\.01"):
        search_rate(lambda rate: Updated(None, rate, 1.0 if rate > 1e-4 else 1e-4, 1), 1e-3, 0.01)


def test_where_the_divergence_jumps_the_nearest_update_is_taken() -> None:
    updated = search_rate(lambda rate: Updated(None, rate, 0.0088 if rate < 1e-4 else 0.014, 1), 1e-3, 0.01)
    assert updated.divergence == 0.0088


@pytest.mark.slow
def test_the_change_is_that_of_rollouts_of_the_new_policy(updater: Updater, player: Player) -> None:
    rollouts = updater.by_key[KEY][TASK]
    batch, judges = rollouts[:64], rollouts[64:]
    won_N = np.array([2.0 * rollout[-1].won - 1 for rollout in batch for _ in rollout])
    before = {name: parameter.clone() for name, parameter in updater.model.named_parameters()}
    updated = update_to(updater.model, batch, won_N, updater.training, updater.sampling, 0.03)
    assert updated.divergence == pytest.approx(0.03, rel=TOLERANCE)
    assert all(torch.equal(value, before[name]) for name, value in updater.model.named_parameters())
    change = change_of_success(updated.model, {TASK: judges}, updater.sampling)

    language_model = copy.copy(player.language_model)
    language_model.model = updated.model
    policy = make_backend_policy(PolicySettings(), language_model)
    steps = collect([player.tasks[TASK]], policy, player.rules, np.random.default_rng(3), group_size=1500)
    played = [one[-1].won for one in by_trajectory(steps)]
    recorded = [rollout[-1].won for rollout in rollouts]
    error = np.sqrt(np.var(played) / len(played) + np.var(recorded) / len(recorded))
    assert change > 0.02
    assert change == pytest.approx(np.mean(played) - np.mean(recorded), abs=3 * error)


def test_no_advantage_has_no_update(updater: Updater) -> None:
    batch = updater.by_key[KEY][TASK][:4]
    nothing_N = np.zeros(sum(map(len, batch)))
    with pytest.raises(ValueError, match="no learning rate"):
        update_to(updater.model, batch, nothing_N, updater.training, updater.sampling, PLAN.divergence)


def test_rows_are_kept_by_plan(tmp_path: Path, updater: Updater) -> None:
    rows, pair = UpdateRows(tmp_path / "updates.jsonl", PLAN), ("gigpo", KEY)
    for number in range(2):
        rows.add(number, pair, {"same": 0.01 * number, "other": 0.02, "learning_rate": 1e-3})
    again = UpdateRows(tmp_path / "updates.jsonl", PLAN)
    assert [again.has(number, pair) for number in range(3)] == [True, True, False]
    np.testing.assert_allclose(again.changes(pair, 2), [[0, 2], [1, 2]])
    again.add(2, pair, {"same": 0.03, "other": 0.02, "learning_rate": 1e-3})
    np.testing.assert_allclose(UpdateRows(tmp_path / "updates.jsonl", PLAN).changes(pair, 3)[2], [3, 2])
    assert not UpdateRows(tmp_path / "updates.jsonl", dataclasses.replace(PLAN, size=8)).has(0, pair)
