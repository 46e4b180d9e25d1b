"""`hgpo doctor`: what it names, what it says of a broken installation, and that nothing is cut."""

from __future__ import annotations

import builtins
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from hgpo.cli import doctor
from hgpo.cli.main import main
from hgpo.integrations.verl import preflight

Examine = Callable[..., tuple[int, str]]


@pytest.fixture
def examine(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Examine:
    """Runs `hgpo doctor` in a wide terminal; gives its status and its output without line breaks."""
    monkeypatch.setenv("COLUMNS", "300")

    def run(*words: str) -> tuple[int, str]:
        status = main(["doctor", *words])
        return status, " ".join(capsys.readouterr().out.split())

    return run


def test_it_names_what_it_promises(examine: Examine) -> None:
    status, table = examine()
    assert status == 0
    for row in (
        f"hgpo │ {version('hgpo')} ",
        "verl │ ",
        "agents │ direct, react",
        "state keys │ json, observation",
        "ALFWorld games │ ",
        "WebShop shops │ ",
        "Training can run on this machine.",
    ):
        assert row in table


def test_verl_is_reported_and_not_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "installed_version", lambda package: None)
    finding = doctor._verl_finding()
    assert (finding.what, finding.fatal) == ("verl", True)
    assert finding.found in ("missing", doctor.installed_version("verl"))
    assert "pip install 'hgpo[verl]'" in finding.remedy
    monkeypatch.setattr(preflight, "installed_version", lambda package: "0.9.2")
    assert str(doctor._verl_finding()) == "verl: 0.9.2"


@pytest.mark.parametrize("error", [ImportError("libcudart.so.12: cannot open"), OSError("[WinError 126] c10.dll")])
def test_a_torch_that_does_not_load_is_a_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, examine: Examine
) -> None:
    import_module = builtins.__import__

    def broken(name: str, *arguments: Any) -> Any:
        if name == "torch":
            raise error
        return import_module(name, *arguments)

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(builtins, "__import__", broken)
    status, table = examine()
    assert status == 1
    assert f"torch is installed but cannot be loaded ({type(error).__name__}: {error})" in table
    assert "Training cannot run on this machine." in table


def test_a_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch, examine: Examine) -> None:
    monkeypatch.setattr(doctor, "installed_version", lambda package: None)
    status, table = examine()
    assert status == 1
    assert 'tokenizers │ missing │ needed for train: pip install "hgpo[train]"' in table
    assert 'igraph │ missing │ needed for hgpo inspect: pip install "hgpo[report]"' in table


def test_nothing_is_cut_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(doctor, "installed_version", lambda package: None)
    main(["doctor"])
    out = capsys.readouterr().out
    assert "…" not in out
    last = "".join(line.split("│")[3].strip() for line in out.splitlines() if line.count("│") == 4)
    assert 'pipinstall"hgpo[report]"' in last.replace(" ", "")


def test_it_says_at_once_that_it_is_looking(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])
    assert capsys.readouterr().err.startswith("Checking ")


def test_a_folder_of_games_that_is_gone_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "gone"))
    assert doctor._games_finding().found == f"generated only; ALFWORLD_DATA={tmp_path / 'gone'} is no folder"
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    assert doctor._games_finding().found == str(tmp_path)


def test_the_engine_is_looked_at_without_a_recipe(monkeypatch: pytest.MonkeyPatch, examine: Examine) -> None:
    found = {"verl": "0.9.1", "ray": "2.60.0", "TransferQueue": "0.1.11", "torch": "2.11.0", "vllm": "0.33.0"}
    monkeypatch.setattr(preflight, "installed_version", found.get)
    monkeypatch.setattr(preflight, "_gpus", lambda: (24 * 2**30,))
    status, table = examine("--engine", "verl")
    assert status == 0
    assert "GPUs │ 24.0 GiB" in table
    assert "vllm │ 0.33.0 │" in table
    assert "flash-attn │ missing │ pip install --no-build-isolation flash-attn" in table
    assert "verl can start on this machine." in table


def test_a_machine_without_gpus_runs_the_engine_on_its_cpus(monkeypatch: pytest.MonkeyPatch, examine: Examine) -> None:
    found = {"verl": "0.9.1", "ray": "2.60.0", "TransferQueue": "0.1.11", "torch": "2.11.0+cpu"}
    monkeypatch.setattr(preflight, "installed_version", found.get)
    monkeypatch.setattr(preflight, "_gpus", lambda: None)
    status, table = examine("--engine", "verl")
    assert status == 0
    assert "GPUs │ none that nvidia-smi lists │ without a GPU: policy.device=cpu" in table


def test_a_recipe_for_cpus_needs_no_gpu_and_its_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, examine: Examine
) -> None:
    """verl is not installed for this test, so the checks that compose its settings are left out."""
    monkeypatch.setattr(preflight, "installed_version", {"torch": "2.11.0+cpu"}.get)
    monkeypatch.setattr(preflight, "_gpus", lambda: None)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('extends = "quickstart"\n[policy]\ndevice = "cpu"\n')
    _, table = examine("--engine", "verl", str(recipe))
    assert "verl │ missing" in table
    assert "memory, GPU hours and disk are estimated where verl is installed" in table
    assert "torch" not in table
    assert "GPUs │" not in table
    _, table = examine("--engine", "verl", str(recipe), "policy.device=auto")
    assert "a build without CUDA" in table


def test_missing_data_of_a_recipe_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, examine: Examine) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    status, table = examine("--engine", "verl", "verl/alfworld")
    assert status == 1
    assert "environment.options.data_dir │ '$ALFWORLD_DATA' contains a variable that is not set" in table
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "gone"))
    assert "data_dir │ $ALFWORLD_DATA does not exist" in examine("--engine", "verl", "verl/alfworld")[1]
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    assert "data_dir" not in examine("--engine", "verl", "verl/alfworld")[1]


def test_a_folder_that_the_first_run_writes_need_not_exist(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, examine: Examine
) -> None:
    monkeypatch.setenv("WEBSHOP_DATA", str(tmp_path))
    new = f"environment.options.keep_in={tmp_path / 'new'}"
    assert "environment.options" not in examine("--engine", "verl", "verl/webshop", new)[1]


def test_an_engine_that_is_not_there_ends_with_one(monkeypatch: pytest.MonkeyPatch, examine: Examine) -> None:
    monkeypatch.setattr(preflight, "installed_version", lambda package: None)
    status, table = examine("--engine", "verl")
    assert status == 1
    assert "pip install 'hgpo[verl]'" in table


def test_a_recipe_belongs_to_an_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "recipe.toml"]) == 2
    assert "--engine verl" in capsys.readouterr().err


@pytest.mark.slow
def test_the_engine_is_looked_at_where_there_is_no_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import hgpo.cli.doctor as d; d.engine_findings(None, [])"
    subprocess.run([sys.executable, "-c", code], check=True)
