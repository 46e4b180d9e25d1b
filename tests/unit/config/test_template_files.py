"""`agent.template` as a file: found next to the recipe, stored as text, and never opened again."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from corridor_runs import RECIPE, evaluations
from hgpo.cli.main import main
from hgpo.config import Config, ConfigError, dump_config, load_config
from hgpo.runs.folder import RunDirectory, RunDirectoryError, create_run_directory, open_run_directory
from hgpo.runs.load_settings import settings_for
from hgpo.runs.trust import settings_to_trust

TEXT = "goal: {task} past {history} now {observation} step {step} costs ${{price}} can {actions}\n"
SMALL = ["training.updates=1", "warm_start.max_updates=1", "warm_start.evaluate_every=1", "rollout.tasks_per_update=1"]


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "prompts" / "mine.txt"
    path.parent.mkdir()
    path.write_text(TEXT)
    return path


def test_a_recipe_names_a_file_next_to_it_and_holds_its_text(template: Path, tmp_path: Path) -> None:
    base = tmp_path / "base.toml"
    base.write_text(f'extends = {str(RECIPE)!r}\n[agent]\ntemplate = "prompts/mine.txt"\n')
    (tmp_path / "sub").mkdir()
    recipe = tmp_path / "sub" / "mine.toml"
    recipe.write_text('extends = "../base.toml"\n[run]\nname = "mine"\n')
    config = load_config(recipe)
    assert config.agent.template == TEXT
    assert tomllib.loads(dump_config(config))["agent"]["template"] == TEXT
    (tmp_path / "dumped.toml").write_text(dump_config(config))
    template.unlink()
    assert load_config(tmp_path / "dumped.toml") == config
    assert load_config(recipe, ["agent.template=compact"]).agent.template == "compact"  # the base's file is not opened
    with pytest.raises(ConfigError, match=r"prompts/mine\.txt cannot be read: No such file"):
        load_config(recipe)


def test_an_override_is_relative_to_the_working_folder(template: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(template.parent)
    assert load_config(RECIPE, ["agent.template=mine.txt"]).agent.template == TEXT
    monkeypatch.setenv("HOME", str(template.parent))
    assert load_config(RECIPE, ["agent.template=~/mine.txt"]).agent.template == TEXT


def test_a_model_is_evaluated_with_a_file(template: Path) -> None:
    config = settings_for("some/model", environment="alfworld", overrides=[f"agent.template={template}"])
    assert config.agent.template == TEXT


def test_a_mistake_in_the_file_names_file_and_placeholder(template: Path) -> None:
    template.write_text("{observation} {history.actions}")
    with pytest.raises(ConfigError, match=r"mine\.txt: '\{history\.actions\}' is no placeholder.*\{steps_taken\}"):
        load_config(RECIPE, [f"agent.template={template}"])


def test_a_text_is_no_module(template: Path) -> None:
    config = load_config(RECIPE, [f"agent.template={template}"])
    assert settings_to_trust(config) == {"environment.name": "corridor:CorridorSuite"}


def test_a_run_never_opens_a_file_that_its_settings_name(template: Path, tmp_path: Path) -> None:
    """Even if a run's settings were edited to name a file that exists."""
    config = load_config(RECIPE, [f"run.directory={str(tmp_path)!r}", f"agent.template={template}"])
    run = create_run_directory(config)
    written = run.config.read_text()
    changed = "\n".join(
        f"template = {str(template)!r}" if line.startswith("template = ") else line for line in written.splitlines()
    )
    run.config.write_text(changed)
    for read in (open_run_directory, lambda path: settings_for(str(path), trusted=True)):
        with pytest.raises(RunDirectoryError, match="is a path, which only a recipe or a command may name"):
            read(run.path)
    with pytest.raises(ValueError, match=r"agent\.template"):
        Config.model_validate({"policy": {"model": "m"}, "agent": {"template": str(template)}})


def test_a_run_is_trained_resumed_evaluated_and_inspected_without_the_file(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    prompts = f"agent.template={template}"
    assert main(["train", str(RECIPE), *SMALL, prompts, "policy.max_prompt_tokens=300", "--quiet"]) == 0
    run = RunDirectory(tmp_path / "runs" / "corridor")
    before = evaluations(run)
    template.unlink()
    run.summary.unlink()
    assert main(["train", "--resume", str(run.path), "--quiet"]) == 0
    assert evaluations(run) == before
    assert main(["eval", str(run.path), "--games", "2", "--quiet"]) == 0
    assert main(["inspect", str(run.path)]) == 0
    assert main(["train", "--resume", str(run.path), "--dry-run"]) == 0
    assert "{observation} step {step}" in capsys.readouterr().out
    prompt = pq.read_table(run.rollout_file(1))["prompt"][0].as_py()
    assert "costs ${price} can" in prompt
    assert "now you are at place" in prompt
