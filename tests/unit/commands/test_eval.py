"""Held-out success of a finished run: what is stored under which name, and what a damaged checkpoint says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from corridor_runs import quiet, recipe
from hgpo.assemble import train
from hgpo.cli.main import main
from hgpo.utils.files import exclusive_path


def stored(run: Path) -> dict[str, int]:
    """Evaluations that `hgpo eval` added, with how many games each played."""
    return {
        path.name: json.loads(path.read_text())["success"]["tasks"]
        for path in (run / "evaluations").glob("held_out-*.json")
    }


def test_fewer_games_are_stored_beside_the_whole_panel(trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(trained_run)]) == 0
    assert main(["eval", str(trained_run), "--games", "2"]) == 0
    assert stored(trained_run) == {"held_out-2-t0.4-s1.json": 3, "held_out-2-t0.4-s1-first2.json": 2}
    assert "held_out-2-t0.4-s1-first2.json" in capsys.readouterr().out


def test_it_takes_the_threads_of_the_run(three_threads: Path) -> None:
    """Sums are rounded differently with another number, so figures would not be those of the training's evaluations."""
    assert main(["eval", str(three_threads), "--games", "1", "--trust", "--quiet"]) == 0
    assert torch.get_num_threads() == 3


def test_a_run_can_be_evaluated_while_it_is_trained(trained_run: Path) -> None:
    from hgpo.runs.folder import exclusive

    with exclusive(trained_run):
        assert main(["eval", str(trained_run), "--checkpoint", "1", "--quiet"]) == 0
    assert stored(trained_run) == {"held_out-1-t0.4-s1.json": 3}


def test_an_evaluation_is_not_continued_with_another_precision(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", str(trained_run), "-o", str(tmp_path / "result.json"), "--quiet"]
    assert main(words) == 0
    assert main([*words, "policy.precision=bfloat16"]) == 2
    assert "belongs to an evaluation with other settings (precision)" in capsys.readouterr().err


def test_a_models_evaluation_is_not_continued_with_other_weights_of_its_name(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, output = tmp_path / "model", tmp_path / "result.json"
    words = ["eval", str(model), "--env", "corridor:CorridorSuite", "--trust", "-o", str(output), "--quiet"]
    words += ["--split", "held_out", "policy.max_prompt_tokens=100", "policy.max_response_tokens=12"]
    for checkpoint in ("start", "2"):
        shutil.rmtree(model, ignore_errors=True)
        assert main(["export", str(trained_run), "--checkpoint", checkpoint, "-o", str(model)]) == 0
        status = main(words)
    assert status == 2
    assert "belongs to an evaluation with other settings (weights)" in capsys.readouterr().err


def test_only_runs_have_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--env", "alfworld", "-o", str(tmp_path / "x.json"), "--checkpoint", "40"]
    assert main(["eval", str(tmp_path), *words]) == 2
    assert "--checkpoint 40" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["cut", "garbage"])
def test_a_damaged_checkpoint_is_named_with_what_to_do(
    trained_run: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = trained_run / "checkpoints" / "2" / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-9] if damage == "cut" else b"\xff" * len(content))
    assert main(["eval", str(trained_run), "--checkpoint", "2"]) == 2
    error = capsys.readouterr().err
    assert str(weights if damage == "cut" else weights.parent) in error
    assert f"Delete the checkpoint folder {weights.parent}" in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_a_runs_policy_is_played_through_any_agent(tmp_path: Path) -> None:
    short = ("training.updates=1", "warm_start.max_updates=1")
    run = train(recipe(tmp_path, "policy.max_prompt_tokens=400", *short), quiet()).path
    output = tmp_path / "react.json"
    words = ["eval", str(run), "--agent", "reflexion", "-o", str(output), "agent.options.trials=2", "--quiet"]
    assert main(words) == 0
    found = json.loads(output.read_text())
    assert (found["agent"], found["episodes"], found["failed"]) == ("reflexion", 3, 0)
    assert len(found["success_by_trial"]) <= 2
    assert found["model"] == "corridor (1)"
    assert found["tokens"]["response"] > 0
    assert not list((run / "evaluations").glob("*react*"))


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", ["newest", "start"])
def test_episodes_of_a_deleted_run_are_not_those_of_a_new_run_with_its_name(
    checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ("training.updates=1", "warm_start.max_updates=1")
    run = train(recipe(tmp_path, *short), quiet()).path
    words = ["eval", str(run), "--checkpoint", checkpoint, "-o", str(tmp_path / "result.json"), "--quiet"]
    assert main(words) == main(words) == 0
    shutil.rmtree(run)
    train(recipe(tmp_path, *short, "run.seed=1"), quiet())
    assert main(words) == 2
    assert "belongs to an evaluation with other settings (weights)" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["result.json", "result.rollouts.jsonl"])
def test_a_file_of_another_origin_is_not_overwritten(
    name: str, trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text('{"name": "package"}')
    words = ["eval", str(trained_run), "--games", "1", "-o", str(tmp_path / "result.json"), "--quiet"]
    assert main(words) == 2
    assert f"{name} exists already; choose another name or add --force" in capsys.readouterr().err
    assert (tmp_path / name).read_text() == '{"name": "package"}'
    assert not (tmp_path / "result.games.jsonl").exists()
    assert main([*words, "--force"]) == 0
    assert main(words) == 0  # the same evaluation continues
    assert json.loads((tmp_path / "result.json").read_text())["success"]["tasks"] == 1


def test_a_result_has_one_writer_at_a_time(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "result.json"
    words = ["eval", str(trained_run), "--games", "1", "-o", str(output), "--quiet"]
    with exclusive_path(output):  # as by another `hgpo eval`
        assert main(words) == 2
    assert f"another process is writing to {output}; wait until it has ended" in capsys.readouterr().err
    assert main(words) == 0
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
        *("result.json", "result.games.jsonl", "result.rollouts.jsonl"),
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no/such-model"], "it has no config.toml); if it is a model, name its environment: --env"),
        (["no/such-model", "--env", "alfworld"], "-o FILE.json is needed"),
        (["RUN", "--server", "http://127.0.0.1:9/v1"], "name the environment that the server's model plays: --env"),
        (["RUN", "--agent", "react"], "with changed settings the result does not belong to the run"),
        (["RUN", "-o", "x.txt"], "the name must end in .json"),
        (["RUN", "--max-cost", "1"], "--max-cost needs --prices"),
        *(
            (["RUN", "--checkpoint", name], f"has no checkpoint '{name}'; choose --checkpoint start or 1 or 2")
            for name in ("9", "../start", "", "./2")
        ),
    ],
)
def test_what_cannot_be_evaluated_is_said(
    words: list[str], message: str, trained_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", *(str(trained_run) if word == "RUN" else word for word in words)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("command", "needed"), [("eval", "RUN_OR_MODEL"), ("manifest", "action")])
def test_only_what_is_needed_is_called_required(command: str, needed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command])
    assert capsys.readouterr().err.endswith(f"error: the following arguments are required: {needed}\n")


@pytest.mark.parametrize("words", [["--prices", "-1", "2"], ["--prices", "1", "nan"], ["--max-cost", "inf"]])
def test_a_price_or_limit_that_is_no_amount_is_refused_before_anything_is_paid(
    words: list[str], trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["eval", str(trained_run), "-o", str(tmp_path / "x.json"), "--prices", "1", "2", *words])
    assert f"argument {words[0]}: not a finite number of at least 0: '" in capsys.readouterr().err
    assert not list(tmp_path.glob("x*"))
