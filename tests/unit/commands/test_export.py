"""A run's policy as a folder that anybody loads."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from hgpo.cli.main import main
from hgpo.evaluation.model_card import model_card
from hgpo.evaluation.result_files import StoredEvaluation, write_evaluation
from hgpo.runs.checkpoints import whole_checkpoint
from hgpo.runs.folder import open_run_directory
from panels import panel


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["export", *map(str, words)]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "folder"),
    [([], "checkpoints/2"), (["--checkpoint", "1"], "checkpoints/1"), (["--checkpoint", "start"], "start")],
)
def test_plain_transformers_answers_as_the_runs_policy_does(
    trained_run: Path, tmp_path: Path, words: list[str], folder: str
) -> None:
    output = tmp_path / "exported"
    assert main(["export", str(trained_run), "-o", str(output), *words]) == 0
    tokenizer = AutoTokenizer.from_pretrained(output)
    text = tokenizer.apply_chat_template([{"role": "user", "content": "go right"}], tokenize=False)
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
    answers = [
        AutoModelForCausalLM.from_pretrained(place).generate(ids, max_new_tokens=4, do_sample=False)
        for place in (output, trained_run / folder)
    ]
    assert torch.equal(*answers)
    assert {path.name for path in output.iterdir()}.isdisjoint({"optimizer.safetensors", "trainer_state.json"})


@pytest.mark.parametrize("agent", ["react", "tools"])
def test_the_card_names_the_agent_whose_prompts_the_policy_knows(trained_run: Path, agent: str) -> None:
    run, config = open_run_directory(trained_run)
    other = config.model_copy(update={"agent": config.agent.model_copy(update={"name": agent})})
    assert f"Prompts are those of the agent `{agent}`" in model_card(run, other, "2")
    assert "one user message each" in model_card(run, config, "2")


def test_the_card_has_settings_and_every_evaluation(trained_run: Path, tmp_path: Path) -> None:
    output = tmp_path / "exported"
    main(["export", str(trained_run), "-o", str(output)])
    card = (output / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: transformers\n")
    for said in (
        "after 2 updates",
        "estimator `hgpo`",
        "| before | held_out |",
        "| after | held_out |",
        "| corridor | 3 |",
    ):
        assert said in card
    assert 'name = "corridor:CorridorSuite"' in card
    assert open_run_directory(trained_run)[1].run.directory not in card


def test_the_card_has_no_path_of_this_machine(trained_run: Path) -> None:
    run, config = open_run_directory(trained_run)
    options = {
        "data_dir": "/data/jane/games",
        "keep_in": "~/jane/shop",
        "size": "small",
        "more": [{"a": "/data/jane/b"}],
    }
    environment = config.environment.model_copy(update={"options": options})
    verl = config.verl.model_copy(update={"overrides": {"trainer": {"default_local_dir": "/data/jane/c"}}})
    card = model_card(run, config.model_copy(update={"environment": environment, "verl": verl}), "2")
    assert "jane" not in card
    assert 'data_dir = "games"' in card
    assert 'size = "small"' in card


def test_one_update_is_singular(trained_run: Path) -> None:
    assert ", after 1 update with" in model_card(*open_run_directory(trained_run), "1")


def test_a_link_to_an_empty_folder_is_followed(trained_run: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "exported").symlink_to(tmp_path / "disk")
    assert main(["export", str(trained_run), "-o", str(tmp_path / "exported")]) == 0
    assert (tmp_path / "exported").is_symlink()
    assert (tmp_path / "disk/README.md").exists()


def test_a_task_type_called_all_is_not_the_whole(trained_run: Path) -> None:
    run, config = open_run_directory(trained_run)
    write_evaluation(run.evaluation("after"), StoredEvaluation(panel({"all": [1, 1], "other": [0, 0]})))
    rows = [line for line in model_card(run, config, "2").splitlines() if line.startswith("| after | held_out | all |")]
    assert [row.split(" | ")[6] for row in rows] == ["50.0 %", "100.0 %"]


def test_names_from_elsewhere_are_no_markup(trained_run: Path) -> None:
    run, config = open_run_directory(trained_run)
    after = run.evaluation("after")
    after.write_text(after.read_text().replace('"corridor"', '"<script>alert(1)</script>|[x](y)"'))
    card = model_card(run, config, "2")
    assert "<script>" not in card
    assert "](y)" not in card


@pytest.mark.slow
def test_an_evaluation_that_is_gone_is_missed_by_name_and_played_again(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = trained_run / "evaluations" / "after.json"
    after.unlink()
    assert f"{after} is missing, but summary.json lists it" in refused(capsys, trained_run, "-o", tmp_path / "x")
    assert not (tmp_path / "x").exists()
    (trained_run / "summary.json").unlink()
    assert main(["train", "--resume", str(trained_run), "--trust", "--quiet"]) == 0
    assert main(["export", str(trained_run), "-o", str(tmp_path / "x")]) == 0


def test_what_cannot_be_exported_is_said(trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "exported"
    output.mkdir()
    (output / "mine.txt").write_text("mine")
    assert "exists already and is not an empty folder" in refused(capsys, trained_run, "-o", output)
    unknown = refused(capsys, trained_run, "-o", tmp_path / "x", "--checkpoint", 9)
    assert "no checkpoint '9'; choose --checkpoint start or 1 or 2" in unknown
    (trained_run / "checkpoints/2/model.safetensors").write_bytes(b"cut")
    assert "bytes instead of" in refused(capsys, trained_run, "-o", tmp_path / "x", "--checkpoint", 2)
    assert not (tmp_path / "x").exists()
    assert (output / "mine.txt").read_text() == "mine"


def test_only_files_that_the_run_wrote_are_exported(trained_run: Path, tmp_path: Path) -> None:
    """A folder from elsewhere may contain links to private files, and code that others would load."""
    (tmp_path / "secret").write_text("secret")
    for folder in (trained_run / "checkpoints/2", trained_run / "start"):
        (folder / "notes.txt").symlink_to(tmp_path / "secret")
        (folder / "modeling.py").write_text("raise SystemExit")
    for number, checkpoint in enumerate(("2", "start")):
        output = tmp_path / str(number)
        assert main(["export", str(trained_run), "-o", str(output), "--checkpoint", checkpoint]) == 0
        assert {"notes.txt", "modeling.py"}.isdisjoint(path.name for path in output.iterdir())
        assert AutoModelForCausalLM.from_pretrained(output)


def test_the_critic_stays_with_the_run(trained_run: Path, tmp_path: Path) -> None:
    with whole_checkpoint(trained_run / "checkpoints", 3, {}) as partial:
        shutil.copytree(trained_run / "checkpoints/2", partial, dirs_exist_ok=True)
        (partial / "trainer_state.json").unlink()
        shutil.copytree(trained_run / "start", partial / "critic")
    assert main(["export", str(trained_run), "-o", str(tmp_path / "x")]) == 0
    assert not (tmp_path / "x/critic").exists()


def test_the_output_is_a_new_folder_and_its_name_cannot_act_on_a_terminal(
    trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "\x1b[31mred"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert "is the current folder; name a new one" in refused(capsys, trained_run, "-o", ".")
    assert main(["export", str(trained_run), "-o", str(folder / "x")]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("model", "base"),
    [
        ("org/Model-1.5B", "org/Model-1.5B"),
        ("1.5", "1.5"),
        ("null", "null"),
        ("a: b", None),
        ("x #y", None),
        ("/data/somebody/models/mine", None),
    ],
)
def test_the_base_model_is_a_name_on_the_hub(model: str, base: str | None, trained_run: Path) -> None:
    run, config = open_run_directory(trained_run)
    config = config.model_copy(update={"policy": config.policy.model_copy(update={"model": model})})
    card = model_card(run, config, "2")
    lines = [line for line in card.splitlines() if line.startswith("base_model:")]
    assert lines == ([] if base is None else [f'base_model: "{base}"'])
    assert "/data/somebody" not in card
    assert Path(model).name in card
