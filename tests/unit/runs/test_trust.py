"""Whose modules are imported: those of runs that this user has made, and of others on request."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from corridor_runs import recipe
from hgpo.config import load_config
from hgpo.runs.folder import create_run_directory
from hgpo.runs.trust import (
    SIGNATURE_FILE,
    UntrustedRunError,
    allow_imports,
    allow_pickles,
    made_here,
    modules_named,
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def run_of(directory: Path, *overrides: str) -> Path:
    return create_run_directory(recipe(directory, *overrides)).path


def test_a_run_made_here_is_known_and_its_modules_are_said(tmp_path: Path, home: Path) -> None:
    run, said = run_of(tmp_path), []
    assert made_here(run)
    allow_imports(run, modules_named(recipe(tmp_path)), trusted=False, say=said.append)
    assert said == ["Importing what the run names: 'corridor:CorridorSuite' (environment.name)"]
    assert stat.S_IMODE((home / "hgpo" / "key").stat().st_mode) == 0o600
    assert len(list((home / "hgpo").iterdir())) == 1


def test_another_users_run_and_one_that_was_changed_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path)
    settings = run / "config.toml"
    whole = settings.read_text()
    settings.write_text(whole.replace("corridor:", "innocent:"))
    assert not made_here(run)
    with pytest.raises(UntrustedRunError, match=r"made elsewhere, or its config\.toml was changed"):
        allow_imports(run, modules_named(recipe(tmp_path)), trusted=False, say=print)
    settings.write_text(whole)
    assert made_here(run)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another home"))
    assert not made_here(run)
    run_of(tmp_path, "run.name=other")  # draws that home's key
    assert not made_here(run)
    allow_imports(run, modules_named(recipe(tmp_path)), trusted=True, say=lambda line: None)


def test_checkpoints_of_verl_are_read_of_trusted_runs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(
        None, ["run.engine=verl", "warm_start.enabled=true", f"run.directory={tmp_path}", "run.name=on-verl"]
    )
    run = create_run_directory(config).path
    allow_pickles(run, trusted=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another home"))
    with pytest.raises(UntrustedRunError, match="pickle files that can run code"):
        allow_pickles(run, trusted=False)
    allow_pickles(run, trusted=True)


@pytest.mark.parametrize("signature", ["", "ü", "0" * 64])
def test_a_forged_signature_is_none(tmp_path: Path, signature: str) -> None:
    run = run_of(tmp_path)
    (run / SIGNATURE_FILE).write_text(signature)
    assert not made_here(run)


def test_a_home_that_cannot_be_written_costs_the_signature_alone(
    tmp_path: Path, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home.write_text("a file")
    run = run_of(tmp_path)
    assert "not signed" in caplog.text
    assert not made_here(run)


def test_a_run_that_names_nothing_by_path_asks_for_nothing(tmp_path: Path, home: Path) -> None:
    settings = recipe(tmp_path, "environment.name=alfworld", "run.name=plain", "warm_start.probe_games=1")
    assert modules_named(settings) == {}
    run = create_run_directory(settings).path
    allow_imports(run, modules_named(settings), trusted=False, say=print)
    assert not home.exists()
    assert not (run / SIGNATURE_FILE).exists()


def test_a_state_key_by_path_needs_trust(tmp_path: Path, home: Path) -> None:
    settings = recipe(tmp_path, "rollout.state=pprint:pformat", "environment.name=alfworld", "warm_start.probe_games=1")
    assert modules_named(settings) == {"rollout.state": "pprint:pformat"}
    with pytest.raises(UntrustedRunError, match=r"names code that would be run: 'pprint:pformat' \(rollout.state\)"):
        allow_imports(tmp_path, modules_named(settings), trusted=False, say=print)
    allow_imports(tmp_path, modules_named(settings), trusted=True, say=print)


def test_a_server_that_a_run_from_elsewhere_names_is_not_asked(tmp_path: Path) -> None:
    config, said = load_config(None, ["environment.name=openenv:http://127.0.0.1:1", "warm_start.enabled=true"]), []
    with pytest.raises(
        UntrustedRunError, match=r"names a server that would be contacted: 'openenv:http://127.0.0.1:1'"
    ):
        allow_imports(tmp_path, modules_named(config), trusted=False, say=said.append)
    allow_imports(tmp_path, modules_named(config), trusted=True, say=said.append)
    assert said == ["Contacting what the run names: 'openenv:http://127.0.0.1:1' (environment.name)"]
