"""How arguments are split, which evaluations are read, and the labels of entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from compared import write_run
from hgpo.evaluation.result_files import StoredEvaluation, write_evaluation
from hgpo.report.compare_entries import Source, parse_source, read_entries
from hgpo.report.compare_table import compare
from panels import panel

EARLY, LATE = panel({"walk": [0, 0]}), panel({"walk": [1, 0]})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "a", {"before": EARLY, "after": LATE, "held_out-2-t0-s1": EARLY})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gpt.json"
    write_evaluation(path, StoredEvaluation(LATE, model="gpt", environment="alfworld"))
    return path


def test_an_argument_has_a_path_a_name_and_a_label(run: Path, file: Path) -> None:
    assert parse_source(str(run)) == [Source(run)]
    assert parse_source(f"{run}:before") == [Source(run, "before")]
    assert parse_source(f"start={run}:before") == [Source(run, "before", "start")]
    assert parse_source(f"the model={file}") == [Source(file, None, "the model")]


def test_what_is_there_is_meant_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("lr=1", "at:noon"):
        write_run(tmp_path / name, {"after": LATE})
        assert parse_source(name) == [Source(Path(name))]
    assert parse_source("low=lr=1:after") == [Source(Path("lr=1"), "after", "low")]
    assert parse_source("at:noon:after") == [Source(Path("at:noon"), "after")]


@pytest.mark.parametrize("argument", ["nowhere", "nowhere:after", "x=nowhere", "a\0b"])
def test_what_is_not_there_is_named(argument: str) -> None:
    with pytest.raises(ValueError, match="no such run directory or file of an evaluation"):
        parse_source(argument)


@pytest.mark.parametrize("argument", ["=x", "x=", " =x"])
def test_half_a_label_is_refused(argument: str) -> None:
    with pytest.raises(ValueError, match="write LABEL=PATH"):
        parse_source(argument)


def test_a_pattern_stands_for_all_its_matches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("hgpo-2", "hgpo-1"):
        write_run(tmp_path / name, {"after": LATE})
    assert parse_source("hgpo=hgpo-*") == [Source(Path(name), None, "hgpo") for name in ("hgpo-1", "hgpo-2")]
    assert [source.name for source in parse_source("hgpo-*:after")] == ["after", "after"]


def test_of_a_run_the_newest_is_taken_unless_one_is_named(run: Path, file: Path) -> None:
    found = read_entries([str(run), f"{run}:before", str(file)])
    assert [(entry.name, entry.evaluation) for entry in found] == [("after", LATE), ("before", EARLY), (None, LATE)]
    assert [entry.environment for entry in found] == ["corridor:CorridorSuite", "corridor:CorridorSuite", "alfworld"]
    named = read_entries([f"x={run}", f"y={run}:after", f"z={file}"], "held_out-2-t0-s1")
    assert [entry.name for entry in named] == ["held_out-2-t0-s1", "after", None]


def test_further_splits_of_the_newest_policy_are_read_too(tmp_path: Path) -> None:
    seen = panel({"walk": [1, 1]}, split="seen")
    names = ("seen-5-t0.4-s1", "seen-4-t0.4-s1", "seen-5-t1-s1", "seen-5-t0.4-s1-first1", "held_out-5-t0.4-s1")
    run = write_run(tmp_path / "a", {"after": LATE, **dict.fromkeys(names, seen)}, "training.updates=5")
    assert [entry.name for entry in read_entries([f"a={run}"])] == ["after", "seen-5-t0.4-s1"]
    assert [entry.name for entry in read_entries([f"a={run}:after"])] == ["after"]


def test_further_splits_of_the_start_policy_are_read_too(tmp_path: Path) -> None:
    names = ("before", "seen-start-t0.4-s1", "seen-0-t0.4-s1", "held_out-start-t0.4-s1", "seen-start-t1-s1")
    run = write_run(tmp_path / "a", dict.fromkeys(names, EARLY))
    assert [entry.name for entry in read_entries([f"a={run}"])] == ["before", "seen-start-t0.4-s1"]


def test_runs_are_labelled_by_their_settings(tmp_path: Path, file: Path) -> None:
    for name, estimator in (("a", "grpo"), ("b", "hgpo"), ("c", "hgpo")):
        write_run(tmp_path / name, {"after": LATE}, f"advantage.estimator={estimator}")
    write_run(tmp_path / "d", {"after": LATE}, "advantage.estimator=hgpo", "advantage.options.preset=verl-agent")
    paths = [f"{tmp_path}/[a-d]", f"own={tmp_path}/a", f"model={file}"]
    labels = [entry.label for entry in read_entries(paths, by=["advantage.estimator"])]
    assert labels == ["grpo", "hgpo", "hgpo", "hgpo", "own", "model"]
    by = ["advantage.estimator", "advantage.options.preset"]
    labels = [entry.label for entry in read_entries([f"{tmp_path}/[a-d]"], by=by)]
    assert labels == ["grpo, default", "hgpo, default", "hgpo, default", "hgpo, verl-agent"]
    with pytest.raises(ValueError, match=r"--by advantage\.gama: no such setting; did you mean gamma\?"):
        read_entries(paths, by=["advantage.gama"])


def test_an_evaluation_that_a_run_lacks_is_named_with_those_it_has(run: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="no evaluation 'update-3'; RUN:NAME selects one of: after, before, held_out-2"
    ):
        read_entries([f"{run}:update-3"])
    with pytest.raises(ValueError, match=r"has no evaluation '\.\./config'"):
        read_entries([f"{run}:../config"])
    empty = write_run(tmp_path / "empty", {})
    with pytest.raises(ValueError, match="no evaluation of its training; leave it out, or evaluate it first"):
        read_entries([str(empty)])


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a run directory"):
        read_entries([str(tmp_path)])


def test_one_evaluation_twice_in_a_row_is_refused(run: Path) -> None:
    with pytest.raises(ValueError, match="'b' has the same evaluation twice"):
        read_entries([f"b={run}", f"b={run}"])
    assert len(read_entries([f"b={run}", f"c={run}", f"b={run}:before"])) == 3


def test_a_label_cannot_act_on_a_terminal(run: Path) -> None:
    (found,) = read_entries([f"a\x1b[2J\u202eb\n={run}"])
    assert found.label == "a�[2J�b"


def test_long_labels_are_shortened_unless_that_makes_two_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("an-experiment-with-a-name-that-is-longer-than-a-column-of-a-table")
    paths = [str(write_run(folder / name, {"after": LATE})) for name in ("hgpo", "grpo")]
    assert [entry.label for entry in read_entries(paths[:1])] == [paths[0][:59] + "…"]
    entries = read_entries(paths)
    assert [entry.label for entry in entries] == paths
    assert [len(section.rows) for section in compare(entries, paths[1]).sections] == [2]
    assert compare(read_entries(paths[:1]), paths[0]).reference == paths[0][:59] + "…"
