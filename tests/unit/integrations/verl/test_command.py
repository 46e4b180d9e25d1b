from __future__ import annotations

from pathlib import Path

import pytest

from hgpo.cli.main import main
from hgpo.config import load_config
from hgpo.integrations.verl.preflight import installed_version

QUICKSTART = Path(__file__).parents[4] / "recipes" / "quickstart" / "hgpo.toml"


@pytest.mark.skipif(installed_version("verl") is not None, reason="verl is installed")
@pytest.mark.parametrize("extra", [["--dry-run"], []])
def test_without_verl_the_engine_says_what_to_install(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, extra: list[str]
) -> None:
    status = main(["train", str(QUICKSTART), f"run.directory={tmp_path}", "--engine", "verl", *extra])
    assert status == 2
    assert "pip install 'hgpo[verl]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())  # nothing was begun


def test_a_resumed_run_keeps_its_engine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["train", "--resume", str(tmp_path), "--engine", "verl"]) == 2
    assert "omit --engine" in capsys.readouterr().err


def test_the_engine_is_a_setting_that_a_run_remembers() -> None:
    assert load_config(QUICKSTART).run.engine == "built-in"
    assert load_config(QUICKSTART, ["run.engine=verl"]).run.engine == "verl"


def test_the_built_in_engine_prints_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(QUICKSTART), "--engine", "built-in", "--dry-run"]) == 0
    assert 'engine = "built-in"' in capsys.readouterr().out
