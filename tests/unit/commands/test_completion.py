"""What a shell offers after the printed script was read, asked of bash itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hgpo.cli.main import main

pytest.importorskip("shtab", reason="completion is written by shtab: pip install 'hgpo[completion]'")

ASK = """\
source "$1"; shift
COMP_WORDS=(hgpo "$@"); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_hgpo_complete hgpo "${COMP_WORDS[-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "hgpo.bash"
    with pytest.MonkeyPatch.context() as patch:
        written: list[str] = []
        patch.setattr("sys.stdout.write", written.append)
        assert main(["--print-completion", "bash"]) == 0
    path.write_text("".join(written), encoding="utf-8")
    return path


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["tr"], ["train"]),
        (["train", "quic"], ["quickstart"]),
        (["train", "quickstart", "policy.lora.ra"], ["policy.lora.rank="]),
        (["train", "--e"], ["--env", "--engine"]),
        (["train", "--env", "w"], ["webshop"]),
        (["eval", "runs/x", "environment.max"], ["environment.max_steps="]),
    ],
)
def test_bash_offers(words: list[str], offered: list[str], script: Path, tmp_path: Path) -> None:
    asked = ["bash", "-c", ASK, "bash", str(script), *words]
    answer = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert answer.stdout.split() == offered


def test_zsh_has_a_script_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--print-completion", "zsh"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("#compdef hgpo")
    assert "policy.lora.rank=" in shown
    assert "webshop-tiny" in shown
