"""One policy has the same figures in every way of `hgpo eval` and during training."""

from __future__ import annotations

from pathlib import Path

import pytest

from corridor_runs import quiet, recipe
from hgpo.assemble import train
from hgpo.cli.main import main
from hgpo.evaluation.result_files import StoredEvaluation, read_evaluation
from served_model import ServedModel

SAME_SETTINGS = (
    *("--env", "corridor:CorridorSuite", "--seeds", "1", "2", "--split", "held_out", "agent.template=compact"),
    *("agent.history_length=2", "environment.train_split=train", "environment.max_steps=8"),
    *("policy.max_prompt_tokens=120", "policy.max_response_tokens=4", "run.threads=1"),
)


def evaluate(output: Path, *words: str) -> StoredEvaluation:
    assert main(["eval", *words, "--quiet"]) == 0
    return read_evaluation(output)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.4])
def test_every_way_gives_the_same_figures(temperature: float, tmp_path: Path) -> None:
    settings = ("training.updates=1", "warm_start.max_updates=10", f"evaluation.temperature={temperature}")
    run = train(recipe(tmp_path, *settings, "evaluation.seeds=[1, 2]"), quiet())
    trained = read_evaluation(run.evaluation("after"))
    checkpoint = run.checkpoints / "1"

    of_run = evaluate(run.evaluation(f"held_out-1-t{temperature:g}-s1-2"), str(run.path))
    output = tmp_path / "run.json"
    through_agent = evaluate(output, str(run.path), "-o", str(output))
    output = tmp_path / "model.json"
    heat = ("--temperature", str(temperature))
    of_model = evaluate(output, str(checkpoint), "-o", str(output), *heat, *SAME_SETTINGS)
    found = {"run": of_run, "run -o": through_agent, "model": of_model}

    if temperature == 0:  # a server draws its own random numbers
        served = ServedModel(checkpoint)
        with served.server as server:
            output = tmp_path / "server.json"
            words = (served.name, "--server", server.url, "-o", str(output), *heat, *SAME_SETTINGS)
            found["server"] = evaluate(output, *words)

    assert trained.evaluation.episode_length > 0
    for way, stored in found.items():
        assert stored.evaluation == trained.evaluation, way
        assert (stored.episodes, stored.failed, stored.tokens) == (6, 0, trained.tokens), way
        assert stored.as_dict().keys() == trained.as_dict().keys(), way
