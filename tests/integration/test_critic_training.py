"""A run with a critic: resumed, it ends with the figures of an uninterrupted one; its values can be read again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from corridor_runs import config, evaluations, killed_after, quiet, untimed
from hgpo.assemble import resume, train
from hgpo.cli.main import main
from hgpo.runs.checkpoints import CheckpointError, check_bytes
from hgpo.runs.folder import RunDirectory, read_metrics
from metric_keys import OF_A_CRITIC, explained, general

WINS_SOMETIMES = ("warm_start.max_updates=120", "warm_start.learning_rate=3e-3", "rollout.temperature=0.5")
UNTRAINED = ("warm_start.max_updates=1",)
GAE = (
    "advantage.estimator=gae",
    "critic.learning_rate=1e-2",
    "critic.pretrain_updates=1",
    "training.learning_rate=2e-3",
    "evaluation.every=0",
)
KINDS = {
    "separate": (),
    "shared": ("critic.shared=true",),
    "adapters": ("policy.lora.rank=2", "policy.lora.dropout=0.1"),
    "baseline": ("advantage.estimator=hgpo", 'advantage.options.baseline="critic"', "training.kl_coefficient=0"),
}


@pytest.fixture(scope="module", params=[pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS])
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, str]:
    return train(
        config(tmp_path_factory.mktemp("runs"), *GAE, *WINS_SOMETIMES, *KINDS[request.param]), quiet()
    ), request.param


def weights(run: RunDirectory) -> dict[str, torch.Tensor]:
    """All tensors of the last checkpoint, those of the critic included."""
    folder = run.checkpoints / "3"
    return {
        f"{file.relative_to(folder)} {name}": tensor
        for file in folder.rglob("*.safetensors")
        for name, tensor in load_file(file).items()
    }


def test_killed_and_resumed_it_ends_with_the_same_figures(finished: tuple[RunDirectory, str], tmp_path: Path) -> None:
    whole, kind = finished
    run = killed_after(2, config(tmp_path, *GAE, *WINS_SOMETIMES, *KINDS[kind]))
    resume(run.path, quiet())
    assert untimed(run) == untimed(whole)
    assert evaluations(run) == evaluations(whole)
    found, expected = weights(run), weights(whole)
    assert found.keys() == expected.keys()
    assert any(name.startswith("critic/value_head") for name in found)
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []


def test_the_critic_learns_and_the_policy_waits_for_it(finished: tuple[RunDirectory, str]) -> None:
    run, kind = finished
    first, *later = read_metrics(run)
    assert first["samples"] == 0
    assert "policy_loss" not in first
    for row in (first, *later):
        assert row["critic_loss"] > 0
        assert row["critic_gradient_norm"] > 0
        assert row["explained_variance"] <= 1
        assert row.keys() >= OF_A_CRITIC
        assert general(row) <= explained()
    assert all(row["samples"] == row["steps"] for row in later)
    parts = {path.name for path in (run.checkpoints / "3" / "critic").iterdir()}
    assert ("model.safetensors" in parts) is (kind in ("separate", "baseline"))
    assert ("adapter_model.safetensors" in parts) is (kind == "adapters")


def test_stored_steps_give_the_advantages_of_the_training(finished: tuple[RunDirectory, str], tmp_path: Path) -> None:
    run, kind = finished
    stored = pq.read_table(run.rollout_file(3))
    cut = np.array(stored["bootstrap"]) != 0
    assert cut.any()
    assert np.array(stored["truncated"])[cut].all()
    output = tmp_path / "advantages.parquet"
    estimator = ("hgpo", "--option", "baseline=critic") if kind == "baseline" else ("gae",)
    assert main(["advantages", str(run.rollout_file(3)), "-o", str(output), "--estimator", *estimator]) == 0
    assert pq.read_table(output)["advantage"].to_pylist() == stored["advantage"].to_pylist()


def test_without_bootstrapping_a_cut_episode_has_ended(tmp_path: Path) -> None:
    run = train(config(tmp_path, *GAE, *UNTRAINED, "training.updates=1", "training.bootstrap_truncated=false"), quiet())
    stored = pq.read_table(run.rollout_file(1))
    assert np.array(stored["truncated"]).any()
    assert not np.array(stored["bootstrap"]).any()


def test_a_damaged_critic_is_named(finished: tuple[RunDirectory, str]) -> None:
    run, _ = finished
    head = run.checkpoints / "2" / "critic" / "value_head.safetensors"
    tensors = load_file(head)
    save_file({**tensors, "bias": tensors["bias"] + 1}, head)
    with pytest.raises(CheckpointError, match=r"critic/value_head\.safetensors"):
        check_bytes(head.parents[1])
