"""How the command ends: readers that go away, characters that cannot be shown, Ctrl-C, SIGTERM, missing packages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from safetensors import SafetensorError

from hgpo.cli import doctor, play, train
from hgpo.cli import main as cli
from hgpo.runs.checkpoints import CheckpointError
from hgpo.utils.files import write_text

HGPO = [sys.executable, "-c", "import sys; from hgpo.cli.main import main; sys.exit(main())"]
RECIPE = Path(__file__).parents[1] / "corridor.toml"
SHORT = ["warm_start.max_updates=1", "training.updates=3", "training.checkpoint_every=1", "run.threads=1"]


def closed_pipe() -> Iterator[int]:
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.fixture
def nobody_reads() -> Iterator[int]:
    """The writing end of a pipe whose reader is gone."""
    yield from closed_pipe()


def hgpo(*words: str, cwd: Path | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(RECIPE.parent), **options.pop("env", {})}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run([*HGPO, *words], cwd=cwd, env=environment, text=True, timeout=120, check=False, **options)


@pytest.mark.slow
@pytest.mark.parametrize("words", [["advantages"], ["advantages", "--json"]])
def test_output_that_nobody_reads_is_no_failure(words: list[str], stored: Path, nobody_reads: int) -> None:
    output = stored.with_name("out.jsonl")
    ended = hgpo(*words, str(stored), "-o", str(output), stdout=nobody_reads)
    assert ended.returncode == 0
    assert ended.stderr == "" or ("--json" in words and ended.stderr.startswith(f"Wrote {output}: 6 rows"))
    assert len(output.read_text().splitlines()) == 6


@pytest.mark.parametrize(
    "words",
    [["--help"], *(pytest.param(words, marks=pytest.mark.slow) for words in (["advantages", "--help"], ["--version"]))],
)
def test_help_that_nobody_reads_is_no_failure(words: list[str], nobody_reads: int) -> None:
    ended = hgpo(*words, stdout=nobody_reads)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
def test_an_error_that_nobody_reads_keeps_its_status(nobody_reads: int) -> None:
    assert hgpo("advantages", "none.parquet", stdout=nobody_reads, stderr=nobody_reads).returncode == 2


@pytest.mark.slow
def test_closed_output_is_no_failure(stored: Path) -> None:
    command = " ".join(["exec", "'" + "' '".join([*HGPO, "advantages", str(stored), "--json"]) + "'", ">&-"])
    ended = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
def test_training_goes_on_when_the_reader_has_seen_enough(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(RECIPE.parent)}
    command = [*HGPO, "train", str(RECIPE), *SHORT]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(120) == 0
    assert (tmp_path / "runs" / "corridor" / "summary.json").exists()


@pytest.mark.slow
def test_characters_that_cannot_be_shown_are_replaced(stored: Path) -> None:
    ended = hgpo("advantages", str(stored), env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "6 steps" in ended.stdout
    assert "?" in ended.stdout


TRAINING_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "jinja2")
ENDS: dict[str, tuple[BaseException, int, str]] = {
    "a pipe breaks": (BrokenPipeError(32, "Broken pipe"), 141, ""),
    "Ctrl-C": (KeyboardInterrupt(), 130, "\nStopped.\n"),
    "a damaged checkpoint": (CheckpointError("it is cut short"), 2, "hgpo play: it is cut short\n"),
    "damaged weights": (SafetensorError("they are cut short"), 2, "hgpo play: they are cut short\n"),
    "a message that quotes a file": (
        ValueError("run.toml: \x1b[2J\u202e: unknown setting\nand another"),
        2,
        "hgpo play: run.toml: �[2J�: unknown setting\nand another\n",
    ),
    **{
        f"without {package}": (
            ModuleNotFoundError(f"No module named '{package}.deep'", name=f"{package}.deep"),
            2,
            f"hgpo play: {package} is missing or cannot be loaded (No module named '{package}.deep'): pip install "
            '"hgpo[train]"; see `hgpo doctor`\n',
        )
        for package in TRAINING_PACKAGES
    },
}


@pytest.mark.parametrize("stage", ["configure", "run"])
@pytest.mark.parametrize("end", ENDS)
def test_how_an_error_ends_the_command(
    end: str, stage: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error, status, said = ENDS[end]
    monkeypatch.delenv("HGPO_DEBUG", raising=False)
    monkeypatch.setattr(play, stage, Mock(side_effect=error))
    assert cli.main(["play", "corridor:CorridorSuite"]) == status
    assert capsys.readouterr().err == (said if stage == "run" else said.replace("hgpo play", "hgpo"))


def test_another_missing_module_is_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ModuleNotFoundError("No module named 'hgpo.gone'", name="hgpo.gone")
    monkeypatch.setattr(play, "run", Mock(side_effect=error))
    with pytest.raises(ModuleNotFoundError):
        cli.main(["play", "corridor:CorridorSuite"])


@pytest.mark.parametrize(
    ("words", "run"),
    [(["--resume", "runs/my run"], "'runs/my run'"), ([str(RECIPE), "run.name=mine"], "runs/mine")],
)
def test_ctrl_c_in_training_says_how_to_go_on(
    words: list[str], run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **options: object) -> int:
        for name in ("mine", "my run"):
            write_text(Path("runs", name, "config.toml"), "")
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, "_train", interrupted)
    monkeypatch.setattr(train, "_resume", interrupted)
    assert cli.main(["train", *words]) == 130
    assert capsys.readouterr().err == (f"\nStopped. Files are kept; `hgpo train --resume {run}` continues the run.\n")


@pytest.mark.parametrize("stage", ["run", "load_config", "_train"])
@pytest.mark.parametrize("words", [[str(RECIPE)], ["--env", "alfworld"]])
def test_ctrl_c_before_there_is_a_run_advises_nothing(
    words: list[str], stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train, stage, interrupted)
    assert cli.main(["train", *words]) == 130
    assert capsys.readouterr().err == "\nStopped.\n"


@pytest.mark.slow
def test_sigterm_unwinds_and_says_so(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(RECIPE.parent)}
    command = [*HGPO, "play", "corridor:CorridorSuite"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
        assert process.stderr.read() == "Stopped.\n"


def test_sigterm_is_left_alone_outside_a_verb_and_where_it_is_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(doctor, "run", lambda _: seen.append(signal.getsignal(signal.SIGTERM)) or 0)
    before = signal.getsignal(signal.SIGTERM)
    assert cli.main(["doctor"]) == 0
    assert signal.getsignal(signal.SIGTERM) is before
    try:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        assert cli.main(["doctor"]) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen[1] is signal.SIG_IGN


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_worker_ends_at_once_on_sigterm(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, time\nfrom hgpo.cli import doctor, main as cli\n"
        "def run(_):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        time.sleep(60)\n"
        "        os._exit(0)\n"
        "    time.sleep(0.3)\n"
        "    os.kill(child, signal.SIGTERM)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "    return 0\n"
        "doctor.run = run\nsys.exit(cli.main(['doctor']))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout.strip(), ended.stderr, ended.returncode) == (str(-signal.SIGTERM), "", 0)


@pytest.mark.slow
def test_training_without_torch_is_one_line(tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from hgpo.cli.main import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": str(RECIPE.parent)}
    command = [sys.executable, "-c", code, "train", str(RECIPE)]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("hgpo train: torch is missing or cannot be loaded")
    assert ended.stderr.count("\n") == 1


def test_every_heavy_error_is_where_it_is_looked_for() -> None:
    import importlib

    for module, name in (*cli.HEAVY_ERRORS, *cli.SERVER_ERRORS):
        assert issubclass(getattr(importlib.import_module(module), name), Exception)
