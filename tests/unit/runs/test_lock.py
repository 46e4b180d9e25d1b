import errno
import os
import subprocess
import sys

import pytest

from hgpo.runs.folder import RunDirectory, RunDirectoryError, RunInUseError, append_metrics, exclusive, rewind_updates
from hgpo.utils import files

HOLDER = """
import sys, time
from pathlib import Path
from hgpo.runs.folder import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_run_has_one_holder_at_a_time_and_the_other_is_named(tmp_path):
    with exclusive(tmp_path):
        with pytest.raises(RunInUseError, match=rf"is being trained by process {os.getpid()} on .* since \d{{4}}-"):
            exclusive(tmp_path).__enter__()
        (tmp_path / "metrics.jsonl").write_text("")  # the folder itself is as usable as ever
    with exclusive(tmp_path):
        pass


def test_an_error_gives_the_run_free(tmp_path):
    with pytest.raises(OSError, match="disk full"), exclusive(tmp_path):
        raise OSError("disk full")
    with exclusive(tmp_path):
        pass


@pytest.mark.slow
def test_a_killed_holder_leaves_no_lock(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunInUseError, match=rf"by process {holder.pid} on"):
            exclusive(tmp_path).__enter__()
    finally:
        holder.kill()
        holder.communicate()
    with exclusive(tmp_path):
        assert (tmp_path / ".lock").read_text().startswith(f"process {os.getpid()} on")


def test_a_file_system_without_locks_is_warned_of_and_used(tmp_path, monkeypatch, caplog):
    def refuse(descriptor):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files, "_lock", refuse)
    with exclusive(tmp_path):
        assert "has no locks" in caplog.text


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl", "metrics.superseded.jsonl"])
def test_a_file_is_not_written_through_a_link_in_a_run_from_elsewhere(tmp_path, name):
    (tmp_path / "run").mkdir()
    run, mine = RunDirectory(tmp_path / "run"), tmp_path / "mine"
    mine.write_text("mine")
    if name != "metrics.jsonl":
        run.metrics.write_text('{"update": 1}\n')
    (run.path / name).symlink_to(mine)

    def resume():
        with exclusive(run.path):
            rewind_updates(run, 0)
            append_metrics(run, {"update": 1})

    with pytest.raises(RunDirectoryError, match=f"{name} is a link"):
        resume() if name != "metrics.jsonl" else append_metrics(run, {"update": 1})
    assert mine.read_text() == "mine"
