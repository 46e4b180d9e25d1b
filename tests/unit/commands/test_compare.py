"""`hgpo compare` as a person runs it: what it prints and writes, and what it says of mistakes."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from compared import write_run
from hgpo.cli.main import main
from hgpo.evaluation.result_files import StoredEvaluation, write_evaluation
from panels import panel

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs that differ in their seed, and the evaluation of a model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HGPO_DEBUG", raising=False)
    for seed, won in ((1, 8), (2, 10)):
        evaluations = {"before": panel({"walk": [0] * 10}), "after": panel({"walk": [1] * won + [0] * (10 - won)})}
        write_run(tmp_path / f"hgpo-{seed}", evaluations, f"run.seed={seed}", success=[0.1 * seed, 0.2])
    model = StoredEvaluation(panel({"walk": [1] * 5 + [0] * 5}), model="gpt", agent="react", failed=1)
    write_evaluation(tmp_path / "gpt.json", model)
    return tmp_path


def test_runs_and_models_stand_in_one_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "start=hgpo-1:before", "hgpo-1", "hgpo-2", "gpt.json", "--reference", "hgpo-1"]) == 0
    shown = capsys.readouterr()
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["hgpo-1", "after", "–", "–", "1", "80.0", "(49.0–94.3)", "0.800", "8.0", "10", "–"] in lines
    assert ["gpt.json", "–", "gpt", "react", "1", "50.0", "(23.7–76.3)", "0.500", "8.0", "10", "1"] in lines
    difference = "hgpo-2 +20.0 (-11.2 to +51.0) 10 tasks ≥ 49.9; 5 with 793 not significant"
    assert difference in " ".join(shown.out.split())
    assert shown.err == ""


def test_runs_of_one_label_are_one_row(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["hgpo=hgpo-*", "gpt.json"], ["hgpo-1", "hgpo-2", "gpt.json", "--by", "advantage.estimator"]):
        assert main(["compare", *words, "--reference", "gpt.json"]) == 0
        printed = capsys.readouterr().out
        assert ["hgpo", "after", "–", "–", "2", "90.0", "±", "14.1"] in [
            line.split()[:8] for line in printed.splitlines()
        ]
        assert "±: standard deviation over n training seeds, or n evaluations where a note says so." in printed
        assert "gpt.json: 1 of 11 episodes failed and are not counted in success" in printed


def test_the_papers_table_is_one_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluation = panel({"walk": [1, 0]}, split="valid_seen")
    write_evaluation(Path("home.json"), StoredEvaluation(evaluation, environment="alfworld"))
    assert main(["compare", "gpt=home.json", "--layout", "paper", "--format", "latex"]) == 0
    assert r"gpt & 1 & 50.0 & \textendash{} & \textendash{} & \textendash{} \\" in capsys.readouterr().out


def test_the_page_shows_what_the_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(DATA / "comparison")
    page = (DATA.parents[1] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    examples = re.findall(r"^    hgpo (compare [^\n]*)\n\n```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert [language for _, language, _ in examples] == ["text"]
    for words, _, printed in examples:
        assert main(shlex.split(words)) == 0
        assert capsys.readouterr().out == printed


def test_the_format_is_what_the_file_ends_in_unless_one_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, begins in (("t.md", "corridor:"), ("t.csv", '"label"'), ("t.tex", "% needs"), ("t.txt", "corridor:")):
        assert main(["compare", "hgpo-1", "gpt.json", "-o", name]) == 0
        assert Path(name).read_text().startswith(begins)
        assert capsys.readouterr().out == f"The table is in {name}\n"
    assert main(["compare", "hgpo-1", "gpt.json", "-o", "new.txt", "--format", "markdown"]) == 0
    assert Path("new.txt").read_text() == Path("t.md").read_text()
    assert main(["compare", "hgpo-1", "gpt.json", "--format", "markdown"]) == 0
    assert Path("t.md").read_text() in capsys.readouterr().out


def test_nothing_is_overwritten_unless_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = Path("gpt.json").read_text()
    assert main(["compare", "hgpo-1", "-o", "gpt.json"]) == 2
    assert "gpt.json exists already; choose another name or add --force" in capsys.readouterr().err
    assert Path("gpt.json").read_text() == before
    assert main(["compare", "hgpo-1", "-o", "gpt.json", "--force"]) == 0
    assert Path("gpt.json").read_text() != before


@pytest.mark.slow
def test_a_figure_is_drawn_beside_the_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason='matplotlib is missing: pip install "hgpo[report]"')
    words = ["compare", "hgpo=hgpo-*", "gpt.json", "--format", "csv", "--smooth", "2"]
    assert main([*words, "--figure", "out/figure.svg"]) == 0
    shown = capsys.readouterr()
    assert len(list(csv.reader(io.StringIO(shown.out)))) == 3  # the table is alone on standard output
    assert shown.err == "The figure is in out/figure.svg\n"
    assert "hgpo: mean of 2 runs, band min to max" in Path("out/figure.svg").read_text(encoding="utf-8")


def test_without_matplotlib_it_is_said_what_to_install(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.figure", raising=False)
    assert main(["compare", "hgpo-1", "--figure", "figure.svg"]) == 2
    assert capsys.readouterr() == ("", 'hgpo compare: figures need matplotlib: pip install "hgpo[report]"\n')


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere: no such run directory or file of an evaluation"),
        (["hgpo-1:update-7"], "has no evaluation 'update-7'; RUN:NAME selects one of: after, before"),
        (["hgpo-1", "hgpo-2", "--reference", "x"], "--reference x: no such row; choose one of: hgpo-1, hgpo-2"),
        (["hgpo-1", "--by", "nothing.here"], "--by nothing.here: no such setting"),
        (["hgpo-1", "--layout", "paper", "--format", "csv"], "--layout paper is for text, Markdown and LaTeX"),
        (["hgpo-1/metrics.jsonl"], "an evaluation is one JSON object"),
        (["hgpo-1", "-o", "hgpo-2"], "hgpo-2 is a folder"),
        (["hgpo-1", "--figure", "figure.jpg"], "must end in .pdf, .png, .svg"),
        (["."], "is not a run directory"),
    ],
)
def test_a_mistake_is_one_line(
    folder: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *words]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("hgpo compare: ")
    assert message in shown.err
    assert (shown.err.count("\n"), shown.out) == (1, "")


def test_texts_of_a_file_cannot_act_on_the_terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b]0;owned\x07\u202e"
    write_evaluation(Path("bad.json"), StoredEvaluation(panel({hostile: [1]}, split=hostile), model=hostile))
    for words in (["bad.json", "hgpo-1"], ["hgpo-1", "bad.json", "--format", "markdown"], [f"{hostile}=bad.json"]):
        assert main(["compare", *words]) == 0
        shown = capsys.readouterr().out
        assert "]0;owned" in shown.replace("\\", "")
        assert not {*hostile} & {"\x1b", "\x07", "\u202e"} & {*shown}
    Path("bad.json").write_text(json.dumps({**json.loads(Path("bad.json").read_text()), "tasks_won": {hostile: 2}}))
    assert main(["compare", "bad.json"]) == 2
    assert not {*hostile} & {"\x1b", "\x07", "\u202e"} & {*capsys.readouterr().err}


@pytest.mark.slow
def test_nothing_heavy_is_loaded(folder: Path) -> None:
    code = (
        "import sys\nfrom hgpo.cli.main import main\nmain(['compare', 'hgpo-1', 'gpt.json'])\n"
        "print([m for m in ('torch', 'transformers', 'matplotlib', 'corridor') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
