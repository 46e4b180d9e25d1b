"""Whose modules, servers, variables and paths are used: those of runs that this user made, and of others on request."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from corridor_runs import recipe
from hgpo.config import load_config, read_config
from hgpo.runs.folder import create_run_directory
from hgpo.runs.trust import (
    SIGNATURE_FILE,
    UntrustedRunError,
    allow_pickles,
    allow_settings,
    made_here,
    settings_to_trust,
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
    allow_settings(run, settings_to_trust(recipe(tmp_path)), trusted=False, say=said.append)
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
        allow_settings(run, settings_to_trust(recipe(tmp_path)), trusted=False, say=print)
    settings.write_text(whole)
    assert made_here(run)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another home"))
    assert not made_here(run)
    run_of(tmp_path, "run.name=other")  # draws that home's key
    assert not made_here(run)
    allow_settings(run, settings_to_trust(recipe(tmp_path)), trusted=True, say=lambda line: None)


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
    assert settings_to_trust(settings) == {}
    run = create_run_directory(settings).path
    allow_settings(run, settings_to_trust(settings), trusted=False, say=print)
    assert not home.exists()
    assert not (run / SIGNATURE_FILE).exists()


def test_a_state_key_by_path_needs_trust(tmp_path: Path, home: Path) -> None:
    settings = recipe(tmp_path, "rollout.state=pprint:pformat", "environment.name=alfworld", "warm_start.probe_games=1")
    assert settings_to_trust(settings) == {"rollout.state": "pprint:pformat"}
    with pytest.raises(UntrustedRunError, match=r"names code that would be run: 'pprint:pformat' \(rollout.state\)"):
        allow_settings(tmp_path, settings_to_trust(settings), trusted=False, say=print)
    allow_settings(tmp_path, settings_to_trust(settings), trusted=True, say=print)


def test_a_folder_that_is_a_link_needs_trust(tmp_path: Path, home: Path) -> None:
    run, mine = run_of(tmp_path), tmp_path / "mine"
    mine.mkdir()
    (run / "evaluations").symlink_to(mine)
    allow_settings(run, {}, trusted=False, say=print)
    (run / SIGNATURE_FILE).unlink()
    with pytest.raises(UntrustedRunError, match=rf"links in place of folders, .*evaluations to {mine}\. .* --trust"):
        allow_settings(run, {}, trusted=False, say=print)
    allow_settings(run, {}, trusted=True, say=print)


def test_a_server_that_a_run_from_elsewhere_names_is_not_asked(tmp_path: Path) -> None:
    config, said = load_config(None, ["environment.name=openenv:http://127.0.0.1:1", "warm_start.enabled=true"]), []
    with pytest.raises(UntrustedRunError, match=r"or paths that would be used: 'openenv:http://127.0.0.1:1'"):
        allow_settings(tmp_path, settings_to_trust(config), trusted=False, say=said.append)
    allow_settings(tmp_path, settings_to_trust(config), trusted=True, say=said.append)
    assert said == ["Using what the run names: 'openenv:http://127.0.0.1:1' (environment.name)"]


PLAIN = ("environment.name=alfworld", "warm_start.enabled=true")
SERVER = ("policy.backend=server", "policy.options.url='http://evil/v1'", "policy.options.adapters='/elsewhere'")


@pytest.mark.parametrize(
    ("overrides", "listed"),
    [
        (SERVER, {"policy.options.url": "http://evil/v1", "policy.options.adapters": "/elsewhere"}),
        (
            ["policy.options.key_variable=AWS_SECRET_ACCESS_KEY"],
            {"policy.options.key_variable": "AWS_SECRET_ACCESS_KEY"},
        ),
        (["policy.options.more={hosts = ['evil']}"], {"policy.options.more": "{'hosts': ['evil']}"}),
        (["policy.options.max_batch_size=8"], {}),
        (["environment.options.keep_in=shop"], {"environment.options.keep_in": "shop"}),
        (["environment.options.data_dir='$AWS_SECRET/x'"], {"environment.options.data_dir": "$AWS_SECRET/x"}),
        (["environment.options.data_dir='%SECRET%'"], {"environment.options.data_dir": "%SECRET%"}),
        (
            ["environment.options.data_dir='$WEBSHOP_DATA$SECRET'"],
            {"environment.options.data_dir": "$WEBSHOP_DATA$SECRET"},
        ),
        (["environment.options.data_dir='//evil/share'"], {"environment.options.data_dir": "//evil/share"}),
        (["environment.options.data_dir='$ALFWORLD_DATA/more'", "environment.options.size=small"], {}),
        (["environment.options.data_dir='~/games'", "environment.options.split_scheme={test = 50}"], {}),
        (["agent.options.search={hosts = ['evil:80']}"], {"agent.options.search": "{'hosts': ['evil:80']}"}),
        (["agent.template='{observation} http://host:1'"], {}),
    ],
)
def test_what_leaves_the_run_needs_trust(overrides: Sequence[str], listed: dict[str, str], tmp_path: Path) -> None:
    config = read_config(None, [*PLAIN, *overrides, f"run.directory={str(tmp_path)!r}"])
    assert settings_to_trust(config) == settings_to_trust(config, trains=True) == listed
    run = create_run_directory(config).path
    assert made_here(run) is bool(listed)
    allow_settings(run, listed, trusted=False, say=print)
    (run / SIGNATURE_FILE).unlink(missing_ok=True)
    if listed:
        with pytest.raises(UntrustedRunError, match="servers, environment variables or paths that would be used"):
            allow_settings(run, listed, trusted=False, say=print)
        allow_settings(run, listed, trusted=True, say=print)


@pytest.mark.parametrize(
    ("overrides", "listed"),
    [
        (['tracking.to=["tensorboard"]'], {}),
        (['tracking.to=["tensorboard", "wandb", "mlflow"]'], {"tracking.to": "wandb, mlflow"}),
        (["run.engine=verl", "verl.ray_address=evil:6379"], {"verl.ray_address": "evil:6379"}),
        (["verl.ray_address=evil:6379"], {}),  # which the built-in engine ignores
    ],
)
def test_what_training_alone_contacts(overrides: Sequence[str], listed: dict[str, str], tmp_path: Path) -> None:
    config = read_config(None, [*PLAIN, *overrides])
    assert settings_to_trust(config) == {}
    assert settings_to_trust(config, trains=True) == listed
    if listed:
        with pytest.raises(UntrustedRunError, match="or paths that would be used"):
            allow_settings(tmp_path, listed, trusted=False, say=print)
