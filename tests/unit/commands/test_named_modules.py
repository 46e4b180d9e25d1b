"""A run's settings may name modules. Commands that only read the run never import them; those that play it do."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from chat_server import ChatServer, says
from corridor_runs import quiet, recipe
from hgpo.assemble import train
from hgpo.cli.main import main
from hgpo.config import dump_config, load_config, read_config
from hgpo.runs.folder import create_run_directory, open_run_directory
from hgpo.runs.metrics import store_rollouts
from killed import Killed


def in_a_module(trained: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a run; its environment leaves the file `imported` beside itself when its module is run."""
    module = "from pathlib import Path\nfrom corridor import CorridorSuite as Suite\n"
    (folder / "innocent.py").write_text(module + 'Path(__file__).with_name("imported").touch()\n')
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "innocent", raising=False)
    run = Path(shutil.copytree(trained, folder / "run"))
    settings = (run / "config.toml").read_text()
    (run / "config.toml").write_text(settings.replace("corridor:CorridorSuite", "innocent:Suite"))
    return run


@pytest.fixture
def run(trained_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return in_a_module(trained_run, tmp_path, monkeypatch)


READING = {
    "inspect": ["inspect"],
    "advantages": ["advantages"],
    "compare": ["compare"],
    "audit": ["audit"],
    "export": ["export", "-o", "exported"],
    "dry-run": ["train", "--dry-run", "--resume"],
}


@pytest.mark.parametrize(
    "words",
    [pytest.param(words, marks=pytest.mark.slow if words[0] == "inspect" else []) for words in READING.values()],
    ids=READING,
)
def test_what_only_reads_a_run_imports_nothing_that_it_names(
    words: list[str], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = (run / "config.toml").read_text()
    for name in ('estimator = "hgpo"', 'template = "compact"', 'name = "direct"', 'state = "observation"'):
        assert name in settings
        settings = settings.replace(name, f'{name.partition(" = ")[0]} = "innocent:Part"')
    (run / "config.toml").write_text(settings)
    monkeypatch.chdir(run.parent)
    assert main([*words, str(run)]) == 0
    assert open_run_directory(run)[1].environment.name == "innocent:Suite"
    assert open_run_directory(run)[1].agent.name == "innocent:Part"
    assert not (run.parent / "imported").exists()


PLAYING = {
    "eval": ["eval", "--games", "1", "--quiet"],
    "rollout": ["rollout", "--games", "1", "-o", "steps.jsonl", "--quiet"],
    "play": ["play"],
    "resume": ["train", "--resume"],
}


@pytest.mark.parametrize("words", PLAYING.values(), ids=PLAYING)
def test_what_plays_a_run_from_elsewhere_asks_first(
    words: list[str], run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "summary.json").unlink()  # which says that there is nothing to resume
    monkeypatch.chdir(run.parent)
    assert main([*words, str(run)]) == 2
    error = capsys.readouterr().err
    assert "was made elsewhere" in error
    assert "'innocent:Suite' (environment.name)" in error
    assert "--trust" in error
    assert not (run.parent / "imported").exists()


@pytest.mark.parametrize("words", PLAYING.values(), ids=PLAYING)
def test_a_run_from_elsewhere_sends_no_secret(
    words: list[str],
    trained_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = Path(shutil.copytree(trained_run, tmp_path / "run"))
    (run / "summary.json").unlink()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_SECRET", "secret")
    with ChatServer(lambda body: says("go right")) as server:
        theirs = [
            "policy.backend=server",
            f"policy.options.url={server.url!r}",
            "policy.options.key_variable=MY_SECRET",
        ]
        theirs += ["policy.options.adapters='theirs'", "environment.name=alfworld", "evaluation.split=valid_unseen"]
        (run / "config.toml").write_text(dump_config(read_config(run / "config.toml", theirs)))
        status = main([*words, str(run)])
        assert server.asked == server.keys == []
    assert status == 2
    error = capsys.readouterr().err
    assert "was made elsewhere" in error
    assert all(f"(policy.options.{option})" in error for option in ("url", "key_variable", "adapters"))
    assert not (tmp_path / "theirs").exists()


def test_the_pickles_of_a_run_from_elsewhere_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = create_run_directory(
        load_config(
            None, ["run.engine=verl", "warm_start.enabled=true", f"run.directory={tmp_path}", "run.name=theirs"]
        )
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another home"))
    assert main(["train", "--resume", str(run.path)]) == 2
    assert "pickle files that can run code" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["eval", "rollout", "play"])
def test_what_plays_a_trusted_run_imports_them(command: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent)
    assert main([*PLAYING[command], str(run), "--trust"]) == 0
    assert (run.parent / "imported").exists()


@pytest.mark.slow
def test_what_resumes_a_trusted_run_imports_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was killed in its second update, after checkpoint 1."""
    stored: list[None] = []

    def die_at_the_second_call(*arguments: Any) -> None:
        stored.append(store_rollouts(*arguments))
        if len(stored) == 2:
            raise Killed

    short = ("warm_start.max_updates=1", "training.updates=2", "training.checkpoint_every=1")
    with patch("hgpo.training.trainer.store_rollouts", die_at_the_second_call), pytest.raises(Killed):
        train(recipe(tmp_path / "killed", *short), quiet())
    run = in_a_module(tmp_path / "killed" / "corridor", tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert main([*PLAYING["resume"], str(run), "--trust"]) == 0
    assert (tmp_path / "imported").exists()


@pytest.mark.slow
def test_the_estimator_of_a_run_is_not_imported_to_read_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = (run / "config.toml").read_text()
    assert 'estimator = "hgpo"' in settings
    (run / "config.toml").write_text(settings.replace('estimator = "hgpo"', 'estimator = "innocent:ESTIMATOR"'))
    assert main(["inspect", str(run)]) == 0
    assert "'innocent:ESTIMATOR'; reading a run does not import it" in " ".join(capsys.readouterr().out.split())
    assert not (run.parent / "imported").exists()
