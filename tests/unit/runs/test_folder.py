import json
import os
from contextlib import ExitStack

import pytest

from hgpo.config import load_config
from hgpo.runs import folder
from hgpo.runs.folder import (
    RunDirectory,
    RunDirectoryError,
    RunInUseError,
    append_metrics,
    create_run_directory,
    discard_unbegun,
    exclusive,
    lost_evaluations,
    new_run,
    open_run_directory,
    read_json,
    read_metrics,
    rewind_updates,
    write_json,
)


def config(tmp_path, *overrides):
    return load_config(None, ["warm_start.enabled=true", f"run.directory={str(tmp_path)!r}", *overrides])


def test_a_run_opens_with_the_settings_it_was_made_with(tmp_path):
    made = config(tmp_path, "run.name=a", "agent.history_length=3")
    run = create_run_directory(made)
    opened, settings = open_run_directory(run.path)
    assert (opened.path, settings) == (run.path, made)
    assert not run.complete


@pytest.mark.parametrize("content", ["file", "folder"])
def test_what_is_there_is_never_overwritten(tmp_path, content):
    place = tmp_path / "a"
    if content == "file":
        place.write_text("mine")
    else:
        place.mkdir()
        (place / "notes.txt").write_text("mine")
    with pytest.raises(RunDirectoryError, match="exists already and is not a run directory"):
        create_run_directory(config(tmp_path, "run.name=a"))
    assert (place if content == "file" else place / "notes.txt").read_text() == "mine"


def test_the_command_that_continues_a_run_can_be_copied_into_a_shell(tmp_path):
    made = config(tmp_path / "my runs", "run.name=a")
    create_run_directory(made)
    with pytest.raises(RunDirectoryError, match=r"`hgpo train --resume '.*/my runs/a'`"):
        create_run_directory(made)


def test_a_run_that_died_before_its_settings_were_written_is_made_anew(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    for name in (".config.toml.123.partial", ".lock"):
        (folder / name).write_text("[run")
    made = config(tmp_path, "run.name=a")
    assert open_run_directory(create_run_directory(made).path)[1] == made


def test_a_run_is_said_to_be_resumable(tmp_path):
    create_run_directory(config(tmp_path, "run.name=b"))
    with pytest.raises(RunDirectoryError, match="Continue it with `hgpo train --resume"):
        create_run_directory(config(tmp_path, "run.name=b"))


def test_of_two_new_runs_with_one_name_the_second_leaves_the_settings_alone(tmp_path):
    (tmp_path / "a").mkdir()
    with exclusive(tmp_path / "a"), pytest.raises(RunInUseError, match="is being trained by process"):
        create_run_directory(config(tmp_path, "run.name=a"))
    assert [path.name for path in (tmp_path / "a").iterdir()] == [".lock"]


def test_a_new_run_that_another_process_continues_is_left_to_it(tmp_path, monkeypatch):
    made = config(tmp_path, "run.name=a")
    with ExitStack() as other:

        def create_and_lose(settings):
            run = create_run_directory(settings)
            other.enter_context(exclusive(run.path))
            return run

        monkeypatch.setattr(folder, "create_run_directory", create_and_lose)
        with pytest.raises(RunInUseError), new_run(made):
            pass
    assert open_run_directory(tmp_path / "a")[1] == made


def test_a_run_directory_may_begin_with_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert create_run_directory(config("~/runs", "run.name=a")).path == tmp_path / "runs" / "a"


def test_an_edited_config_is_accepted_and_named_where_it_is_wrong(tmp_path):
    run = create_run_directory(config(tmp_path))
    settings = run.config.read_text()
    run.config.write_text(settings.replace("history_length = 2", "history_length = 3"))
    assert open_run_directory(run.path)[1].agent.history_length == 3
    run.config.write_text(settings.replace("history_length = 2", "history_length = -2"))
    with pytest.raises(RunDirectoryError, match=r"config\.toml: agent\.history_length"):
        open_run_directory(run.path)


def test_emptied_settings_are_no_run_of_defaults(tmp_path):
    run = create_run_directory(config(tmp_path))
    run.config.write_text("")
    with pytest.raises(RunDirectoryError, match=r"config\.toml contains no settings of a run"):
        open_run_directory(run.path)


@pytest.mark.parametrize(
    ("updates", "problem"),
    [([1], "no rows of update 2"), ([2, 1], "1 rows of update 1"), ([1, 2, 3], "another row of update 3")],
)
def test_a_finished_run_has_one_row_for_each_update(tmp_path, updates, problem):
    run = RunDirectory(tmp_path)
    for update in updates:
        append_metrics(run, {"update": update})
    assert len(read_metrics(run)) == len(updates)
    write_json(run.summary, {"updates": 2})
    with pytest.raises(RunDirectoryError, match=rf"metrics\.jsonl has {problem}.* ended after update 2.* from a copy"):
        read_metrics(run)


def test_evaluations_that_are_missing_are_those_that_the_run_had(tmp_path):
    run = RunDirectory(tmp_path)
    write_json(run.evaluation("before"), {"score": 1})
    names = ["before", "update-1", "../x", 3]
    assert lost_evaluations(run) == []
    assert lost_evaluations(run, names) == [run.evaluation("update-1")]
    assert lost_evaluations(run, {}) == []
    write_json(run.summary, {"evaluations": names})
    assert lost_evaluations(run) == [run.evaluation("update-1")]
    run.summary.write_text("{")
    with pytest.raises(RunDirectoryError, match=r"summary\.json"):
        lost_evaluations(run)


def test_a_cut_last_row_is_left_out_and_a_damaged_middle_one_is_named(tmp_path):
    run = RunDirectory(tmp_path)
    assert read_metrics(run) == []
    append_metrics(run, {"update": 1})
    with run.metrics.open("a") as lines:
        lines.write('{"update": 2, "su')
    assert read_metrics(run) == [{"update": 1}]
    run.metrics.write_text('{"update": 1}\n{"upda\n{"update": 3}\n')
    with pytest.raises(RunDirectoryError, match="line 2 is not JSON"):
        read_metrics(run)


def test_rows_after_the_checkpoint_are_kept_aside(tmp_path):
    run = RunDirectory(tmp_path)
    run.rollouts.mkdir()
    for update in (1, 2, 3):
        append_metrics(run, {"update": update})
        run.rollout_file(update).touch()
    rewind_updates(run, 1)
    assert sorted(run.rollouts.iterdir()) == [run.rollout_file(1)]
    assert read_metrics(run) == [{"update": 1}]
    aside = (tmp_path / "metrics.superseded.jsonl").read_text().splitlines()
    assert [json.loads(line)["update"] for line in aside] == [2, 3]


@pytest.mark.parametrize(
    "line",
    [
        *("{}", "[]", "null", "5", '{"update": "1"}', '{"update": true}', '{"update": 2, "kl": "0"}'),
        f'{{"update": 2, "success": 1{"0" * 400}}}',
    ],
)
def test_a_row_that_is_none_is_named(tmp_path, line):
    run = RunDirectory(tmp_path)
    run.metrics.write_text(f'{{"update": 1}}\n{line}\n')
    with pytest.raises(RunDirectoryError, match=r"metrics.jsonl line 2 is no row of metrics"):
        read_metrics(run)


def test_a_line_nested_without_end_is_named(tmp_path):
    run = RunDirectory(tmp_path)
    run.metrics.write_text("[" * 100_000 + '\n{"update": 1}\n')
    with pytest.raises(RunDirectoryError, match="line 1 is not JSON"):
        read_metrics(run)


@pytest.mark.parametrize(
    ("updates", "said"),
    [
        ([], "no rows of update 1"),
        ([1], "no rows of update 2"),
        ([2, 3], "no rows of update 1"),
        ([1, 1, 2, 3], "1 rows of update 2"),
        ([1, 2, 3, 3], "another row of update 3"),
        ([2, 1, 3], "1 rows of update 1"),
    ],
)
def test_rows_before_the_checkpoint_that_are_missing_or_doubled_end_the_resumption(tmp_path, updates, said):
    run = RunDirectory(tmp_path)
    for update in updates:
        append_metrics(run, {"update": update})
    before = run.metrics.read_text() if updates else None
    with pytest.raises(RunDirectoryError, match=said):
        rewind_updates(run, 3)
    assert before is None or run.metrics.read_text() == before


def test_a_run_that_made_nothing_gives_its_place_back(tmp_path):
    run = create_run_directory(config(tmp_path))
    with exclusive(run.path):
        write_json(run.environment, {})
    discard_unbegun(run)
    assert not run.path.exists()
    run = create_run_directory(config(tmp_path))
    run.start.mkdir()
    discard_unbegun(run)
    assert run.config.exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes in folders")
def test_a_named_pipe_is_no_file_of_a_run(tmp_path):
    """Opening one waits forever."""
    for name in ("config.toml", "metrics.jsonl", "summary.json"):
        os.mkfifo(tmp_path / name)
    run = RunDirectory(tmp_path)
    with pytest.raises(RunDirectoryError, match=r"has no config\.toml"):
        open_run_directory(tmp_path)
    with pytest.raises(ValueError, match=r"summary\.json is not a file"):
        read_json(run.summary)
    run.summary.unlink()
    assert read_metrics(run) == []
