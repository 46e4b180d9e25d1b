"""A package that hgpo does not know brings a part of every kind, and an agent is trained with all of them."""

import json
import sys

import pytest

from hgpo.cli.main import main
from outside_package import install_outside_parts
from stored_rollouts import read_rollouts

pytestmark = pytest.mark.slow
RECIPE = """
[run]
name = "outside"
directory = "."
threads = 1

[environment]
name = "outside_parts.games:mortal_games"
max_steps = 6
options = { size = { receptacles = [3, 3], objects = [1, 1], copies = 1 }, train_games = 24, valid_unseen_games = 4 }

[agent]
template = "terse"

[policy]
model = "tiny"
backend = "own-copy"
max_prompt_tokens = 160
max_response_tokens = 8
tiny = { hidden_size = 16, layers = 1, attention_heads = 2 }
options = { journal = "journal.txt" }

[warm_start]
enabled = true
demonstrations = 20
probe_games = 2
max_updates = 20
evaluate_every = 10
target_low = 0.99
target_high = 1.0

[rollout]
tasks_per_update = 2
group_size = 4

[advantage]
estimator = "centred"
options = { scale = 2.0 }

[training]
updates = 2
learning_rate = 1e-3
mini_batch_size = 16
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the recipe and the finished run; the package can be found as long as the fixture lives."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "recipe.toml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(install_outside_parts(folder / "installed")))
        patch.chdir(folder)
        assert main(["train", "recipe.toml", "--quiet"]) == 0
        yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "outside_parts"]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def _in_the_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)


def test_every_part_is_used(folder):
    rows = [json.loads(line) for line in (folder / "outside" / "metrics.jsonl").read_text().splitlines()]
    assert [row["update"] for row in rows] == [1, 2]
    steps = read_rollouts(folder / "outside" / "rollouts" / "00002.parquet").to_pylist()
    assert all(step["prompt"].startswith("goal :") for step in steps)
    mean = {}
    for step in steps:
        mean.setdefault(step["group"], []).append(step["return"])
    for step in steps:
        returns = mean[step["group"]]
        assert step["advantage"] == pytest.approx(2 * (step["return"] - sum(returns) / len(returns)))


def test_the_backend_is_handed_the_weights_of_the_warm_start_and_of_every_update(folder):
    handed_over = (folder / "journal.txt").read_text().split()
    assert handed_over[-2:] == ["new", "new"]  # one for each update
    assert len(handed_over) == 2 + 2  # the warm start is probed twice


def test_old_log_probs_are_those_of_the_policy_that_is_trained(folder):
    """Sampled by the copy in update 2, after the hand-over: the first ratio of the update is 1."""
    [_, row] = [json.loads(line) for line in (folder / "outside" / "metrics.jsonl").read_text().splitlines()]
    assert row["clip_fraction"] < 0.2
    assert abs(row["approximate_kl"]) < 0.05


def test_the_run_is_evaluated_and_its_parts_are_listed(monkeypatch, capsys):
    assert main(["eval", "outside", "--games", "2"]) == 0
    assert "Stored in" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["doctor"]) == 0
    listed = " ".join(capsys.readouterr().out.split())
    for name in ("mortal-games", "centred", "own-copy"):
        assert name in listed


def test_an_option_that_the_backend_does_not_take_is_refused_before_anything_is_written(folder, capsys):
    assert main(["train", "recipe.toml", "run.name=other", "policy.options.speed=9"]) == 2
    assert "policy backend 'own-copy' has no option speed; it takes journal" in capsys.readouterr().err
    assert not (folder / "other").exists()
