"""Pools of rollouts with sketched gradients, and what is read from them."""

from __future__ import annotations

import dataclasses
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradients
from corridor_runs import start_folder
from gradients import align, batch_of, branched_errors, group_name, sums
from hgpo.rollout.state_keys import COMMANDS_FOLLOW
from hgpo.training.batching import Sample
from true_gradient.branches import Branches, branch
from true_gradient.contenders import true_gradient_weights
from true_gradient.pools import PoolSettings, make_pool, open_player, read_pool, replayed
from true_gradient.sketches import Sketcher

KEYS = ("observation", "observation_and_commands")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PoolSettings]:
    folder = tmp_path_factory.mktemp("pools")
    settings = PoolSettings(str(start_folder(folder).parent), "start", tasks=2, rollouts=8, at_once=1)
    make_pool(folder / "pool", settings)
    return folder / "pool", settings


def test_rows_of_sketches_are_those_of_their_steps(pool: tuple[Path, PoolSettings]) -> None:
    folder, settings = pool
    player = open_player(settings)
    sketcher = Sketcher(player.language_model.model)
    parts = list(read_pool(folder, player, KEYS))
    assert len(parts) == 2
    for part in parts:
        steps = part.steps["observation"]
        assert len({step.trajectory for step in steps}) == 8
        samples = [Sample(step.prompt_ids, step.token_ids, step.log_probs, 0.0) for step in steps]
        found_NW = sketcher.of_samples(samples, player.rules.temperature)
        np.testing.assert_allclose(part.sketch_NW, found_NW, rtol=2e-3, atol=2e-3)
        keyed = part.steps["observation_and_commands"]
        for step, own in zip(keyed, steps, strict=True):
            assert step.observation.startswith(f"{own.observation}\n")
            assert step.next_observation.startswith(own.next_observation)


def test_an_interrupted_pool_goes_on(pool: tuple[Path, PoolSettings]) -> None:
    folder, settings = pool
    before = {path: path.read_bytes() for path in sorted(folder.iterdir())}
    for path in (folder / "sketches-001.npy", folder / "steps-001.parquet"):
        path.unlink()
    make_pool(folder, settings)
    again = np.load(folder / "sketches-001.npy")
    assert {path.name for path in folder.iterdir()} == {path.name for path in before}
    assert before[folder / "sketches-000.npy"] == (folder / "sketches-000.npy").read_bytes()
    assert before[folder / "sketches-001.npy"] == (folder / "sketches-001.npy").read_bytes(), again.shape
    with pytest.raises(SystemExit, match=r"other settings"):
        make_pool(folder, dataclasses.replace(settings, rollouts=4))


def test_steps_of_another_environment_are_noticed(pool: tuple[Path, PoolSettings]) -> None:
    folder, settings = pool
    player = open_player(settings)
    part = next(iter(read_pool(folder, player, KEYS)))
    *steps, last = part.steps["observation"]
    steps.append(dataclasses.replace(last, action="go right" if last.action != "go right" else "go left"))
    with pytest.raises(ValueError, match=r"recorded in another environment"):
        replayed(steps, player.tasks, KEYS, "observation")


def test_sums_of_a_batch_are_weighted_sketches(pool: tuple[Path, PoolSettings]) -> None:
    folder, settings = pool
    part = next(iter(read_pool(folder, open_player(settings), KEYS)))
    batch = batch_of(part, "observation", 4)
    weight_N = true_gradient_weights(batch)
    found = sums(part, batch, weight_N)
    assert len(found) == 2
    for number in range(2):
        sum_W = found[group_name(part.steps["observation"][0].task_id, number)]
        rollouts = [
            s.trajectory for s in part.steps["observation"] if int(s.trajectory.rpartition("#")[2]) // 4 == number
        ]
        rows = [row for row, step in enumerate(part.steps["observation"]) if step.trajectory in rollouts]
        won = {step.trajectory: step.won for step in part.steps["observation"] if step.terminated or step.truncated}
        expected = np.zeros(part.sketch_NW.shape[1])
        for row in rows:
            own = part.steps["observation"][row].trajectory
            others = [won[other] for other in set(rollouts) - {own}]
            expected += (won[own] - np.mean(others)) * part.sketch_NW[row]
        np.testing.assert_allclose(sum_W, expected, atol=1e-3)


def test_all_parts_together(pool: tuple[Path, PoolSettings]) -> None:
    folder, _ = pool
    with pytest.raises(SystemExit, match=r"--sizes 3"):
        align(folder, [4, 3], KEYS, ["grpo"])
    found = align(folder, [4], KEYS, ["grpo, no std", "proposal 1"])[4]
    assert set(found) == {f"{name} / {key}" for name in ("grpo, no std", "proposal 1") for key in KEYS}
    one, other = (found[f"grpo, no std / {key}"]["noise"][""].value for key in KEYS)
    assert one == pytest.approx(other, nan_ok=True)


def test_branches_have_the_state_key_of_the_measured_steps(
    pool: tuple[Path, PoolSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    branched: list[Branches] = []

    def kept(*given: Any) -> list[Branches]:
        branched.extend(branch(*given))
        return branched

    monkeypatch.setattr(gradients, "branch", kept)
    folder = shutil.copytree(pool[0], tmp_path / "pool")
    branched_errors(folder, Namespace(key=KEYS[1], steps=8, branches=2, size=2, seed=0))
    after = [step.observation for one in branched for future in one.futures for step in future]
    assert after
    assert all(COMMANDS_FOLLOW in observation for observation in after)
