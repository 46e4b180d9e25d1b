"""Parts of the user's own module, named `module:attribute`, in every command that takes the name of a part."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from corridor_runs import quiet, recipe
from hgpo.assemble import train
from hgpo.cli.main import main
from stored_rollouts import read_rollouts

MODULE = """
import dataclasses
from hgpo.agents.base import Agent, AgentSpec, direct
from hgpo.agents.prompts import TEMPLATES
from hgpo.estimators import Estimator, compute_advantages
from corridor import CorridorSuite as Suite

@dataclasses.dataclass(frozen=True)
class Options:
    history_length: int = 7
    scale: float = 1.0

def compute(batch, gamma, options):
    return compute_advantages(batch, "hgpo", gamma, history_length=options.history_length)

def levels(options):
    return tuple(f"my level {k}" for k in range(options.history_length + 1))

ESTIMATOR = Estimator("own", compute, Options, label="Own", levels=levels)
TEMPLATE = TEMPLATES.get("compact")

def agent(spec: AgentSpec) -> Agent:
    return direct(spec)

class Parts:
    estimator = ESTIMATOR

def state(visit):
    return f"seen: {visit.observation}"
"""
NAMED = {
    "environment.name": "own_parts:Suite",
    "agent.name": "own_parts:agent",
    "agent.template": "own_parts:TEMPLATE",
    "advantage.estimator": "own_parts:ESTIMATOR",
    "rollout.state": "own_parts:state",
}
STEPS = [
    {"group": "task", "trajectory": name, "step": step, "observation": f"room {step}", "reward": float(name == "a")}
    for name in "ab"
    for step in range(2)
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run that was trained with the five parts of `MODULE`, with the module beside it."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_parts.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        names = [f"{setting}={name}" for setting, name in NAMED.items()]
        yield train(recipe(folder, "training.updates=1", "warm_start.max_updates=1", *names), quiet()).path
    sys.modules.pop("own_parts", None)


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the run, the module and stored steps."""
    shutil.copytree(trained, tmp_path / "run")
    shutil.copy(trained.parent / "own_parts.py", tmp_path)
    (tmp_path / "steps.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in STEPS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", (tmp_path / "steps.jsonl").open())
    return tmp_path


TINY = ["training.updates=1", "warm_start.max_updates=1", "run.directory=runs"]
WORKING = {
    "advantages": ["advantages", "steps.jsonl", "--estimator", "own_parts:ESTIMATOR", "--option", "history_length=1"],
    "advantages, of an object": ["advantages", "steps.jsonl", "--estimator", "own_parts:Parts.estimator"],
    "advantages, by own states": ["advantages", "steps.jsonl", "--state", "own_parts:state"],
    "inspect": ["inspect", "steps.jsonl", "--estimator", "own_parts:ESTIMATOR", "--state", "own_parts:state"],
    "inspect a run": ["inspect", "run", "--estimator", "own_parts:ESTIMATOR"],
    "inspect a run without it": ["inspect", "run"],
    "train --env": ["train", "--env", "own_parts:Suite", "--dry-run"],
    "train": ["train", *(f"{setting}={name}" for setting, name in NAMED.items()), *TINY, "--dry-run"],
    "rollout": ["rollout", "run", "-o", "new.jsonl", "--games", "1"],
    "eval": ["eval", "run", "--agent", "own_parts:agent", "-o", "result.json"],
    "play a run": ["play", "run", "--agent", "own_parts:agent"],
    "play": ["play", "own_parts:Suite"],
    "compare": ["compare", "run"],
    "export": ["export", "run", "-o", "exported"],
}
QUICK = ("advantages", "advantages, of an object", "advantages, by own states", "train --env")


@pytest.mark.parametrize(
    "words",
    [pytest.param(words, marks=[] if name in QUICK else pytest.mark.slow) for name, words in WORKING.items()],
    ids=WORKING,
)
def test_own_parts_work(words: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*words, "warm_start.enabled=true"] if words[0] == "train" and "--env" not in words else words
    assert main(words) == 0, capsys.readouterr().err


@pytest.mark.slow
def test_the_levels_of_an_own_estimator_are_reported(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "run", "--estimator", "own_parts:ESTIMATOR"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Levels of Own" in out
    assert "2, my level 2" in out  # the run's history_length, not the default of 7
    assert "my level 3" not in out


def test_an_own_estimator_gets_the_memory_of_the_agent(trained: Path) -> None:
    assert json.loads((trained / "summary.json").read_text())["estimator_options"] == {"history_length": 2}


def test_an_own_state_key_is_what_steps_are_stored_with(trained: Path) -> None:
    stored = read_rollouts(trained).column("observation").to_pylist()
    assert all(text.startswith("seen: ") for text in stored)


def test_own_environments_are_trained_and_evaluated_on_their_own_splits(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--env", "own_parts:Suite", "--dry-run", "policy.model=some/model"]) == 0
    settings = capsys.readouterr().out
    assert 'train_split = "train"' in settings
    assert 'split = "held_out"' in settings
    assert 'template = "reasoning"' in settings


MISTAKES = {
    "advantages, name": (["advantages", "steps.jsonl", "--estimator", "gigop"], "'gigop'; did you mean gigpo?"),
    "advantages, attribute": (
        ["advantages", "steps.jsonl", "--estimator", "own_parts:ESTIMATR"],
        "'own_parts' has no 'ESTIMATR'; did you mean ESTIMATOR",
    ),
    "advantages, module": (
        ["advantages", "steps.jsonl", "--estimator", "own_part:ESTIMATOR"],
        "estimator 'own_part:ESTIMATOR': cannot import 'own_part'",
    ),
    "advantages, dot": (
        ["advantages", "steps.jsonl", "--estimator", "own_parts.ESTIMATOR"],
        "or 'own_parts:ESTIMATOR'",
    ),
    "advantages, file": (
        ["advantages", "steps.jsonl", "--estimator", "own_parts.py:ESTIMATOR"],
        "the module of that file is 'own_parts'",
    ),
    "advantages, another kind": (
        ["advantages", "steps.jsonl", "--estimator", "own_parts:agent"],
        "'agent' is no `hgpo.estimators.Estimator`",
    ),
    "advantages, option": (
        ["advantages", "steps.jsonl", "--estimator", "own_parts:ESTIMATOR", "--option", "width=1"],
        "unknown option 'width' for estimator 'own'; valid: history_length, scale",
    ),
    "inspect, name": (["inspect", "run", "--estimator", "hgop"], "'hgop'; did you mean hgpo?"),
    "a module that fails": (["play", "fails:Suite"], "cannot import 'fails' (ZeroDivisionError: division by zero)"),
    "a module that cannot be parsed": (["serve-env", "unparsed:Suite"], "cannot import 'unparsed' (SyntaxError"),
    "train --env": (["train", "--env", "alfwrold"], "unknown environment 'alfwrold'; did you mean alfworld?"),
    "train, template": (["train", "quickstart", "agent.template=compct"], "did you mean compact?"),
    "train, estimator": (["train", "quickstart", "advantage.estimator=hgop"], "did you mean hgpo?"),
    "train, state": (["train", "quickstart", "rollout.state=jsn"], "unknown state key 'jsn'; did you mean json?"),
    "train, backend": (["train", "quickstart", "policy.backend=vlm"], "did you mean vllm?"),
    "eval, environment": (["eval", "model", "--env", "webshp", "-o", "r.json"], "did you mean webshop?"),
    "eval, agent": (["eval", "run", "--agent", "reakt", "-o", "r.json"], "did you mean react?"),
    "play, environment": (["play", "webshpo"], "did you mean webshop?"),
    "play, agent": (["play", "run", "--agent", "dirct"], "did you mean direct?"),
    "play, attribute": (["play", "own_parts:Suit"], "'own_parts' has no 'Suit'; did you mean Suite?"),
    "serve-env": (["serve-env", "alfwold"], "did you mean alfworld?"),
}


@pytest.mark.parametrize(("words", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_wrong_name_gets_the_right_one(
    words: list[str], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "fails.py").write_text("x = 1 / 0")
    (here / "unparsed.py").write_text("def (")
    assert main(words) == 2
    assert message in capsys.readouterr().err
