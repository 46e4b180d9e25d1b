"""JVMs: how many run, when they end, and what is missing. The tests need Java: `make scienceworld-test`."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scienceworld", reason="scienceworld is not installed; run `make scienceworld-test`")
simulators = pytest.importorskip("hgpo_scienceworld.simulator")
suites = pytest.importorskip("hgpo_scienceworld.suite")

TASKS: dict[str, Any] = {"task_types": ("lifespan-longest-lived",), "train_variations": 4, "list_commands": False}
needs_java = pytest.mark.usefixtures("java")


def jvms(parent: int) -> set[int]:
    """The JVMs that a process started and that still run."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, fields = (folder / "stat").read_text(encoding="utf-8").rsplit(")", 1)
        except OSError:  # it ended
            continue
        state, parent_of_it = fields.split()[:2]
        if name.endswith("(java") and int(parent_of_it) == parent and state != "Z":
            found.add(int(folder.name))
    return found


@pytest.fixture
def before() -> set[int]:
    gc.collect()
    return jvms(os.getpid())


def started(suite: Any, count: int) -> list[Any]:
    environments = [task.make() for task in suite.tasks("train")[:count]]
    for environment in environments:
        environment.reset()
    return environments


@needs_java
def test_environments_share_a_jvm_which_ends_when_all_are_closed(before: set[int]) -> None:
    suite = suites.scienceworld_suite(**TASKS)
    environments = started(suite, 4)
    assert len(jvms(os.getpid()) - before) == 1
    suite.close()
    environments[0].step("look around")
    for environment in environments:
        environment.close()
    gc.collect()
    assert jvms(os.getpid()) == before
    environments[0].reset()
    assert len(jvms(os.getpid()) - before) == 1


@needs_java
def test_a_jvm_ends_by_garbage_collection_and_lasts_between_environments(before: set[int]) -> None:
    suite = suites.scienceworld_suite(**TASKS)
    [first] = [started(suite, 2), jvms(os.getpid()) - before][1:]
    gc.collect()
    started(suite, 1)
    assert jvms(os.getpid()) - before == first
    del suite
    gc.collect()
    assert jvms(os.getpid()) == before


@needs_java
def test_after_its_jvm_was_killed_an_environment_says_so_and_others_get_a_new_one(before: set[int]) -> None:
    suite = suites.scienceworld_suite(**TASKS)
    first, second = started(suite, 2)
    [jvm] = jvms(os.getpid()) - before
    os.kill(jvm, signal.SIGKILL)
    while jvm in jvms(os.getpid()):
        time.sleep(0.01)
    with pytest.raises(simulators.SimulatorError, match="the JVM ended"):
        first.step("look around")
    second.close()
    assert "room" in second.reset()[0] or "location" in second.reset()[0]
    assert len(jvms(os.getpid()) - before) == 1
    del suite, first, second
    gc.collect()
    assert jvms(os.getpid()) == before


@needs_java
def test_an_error_of_the_simulator_is_named_and_leaves_the_jvm_running(before: set[int]) -> None:
    suite = suites.scienceworld_suite(**TASKS)
    [environment] = started(suite, 1)
    with pytest.raises(
        simulators.SimulatorError, match=r"simulator failed: (?s:.*)Method nothing\(\[\]\) does not exist"
    ):
        environment._session.call("nothing")
    with pytest.raises(simulators.SimulatorError, match=r"fly, variation 3: .*Unknown task"):
        environment._session.load("fly", 3, "")
    environment.reset()
    assert len(jvms(os.getpid()) - before) == 1


@needs_java
def test_a_fork_leaves_the_jvm_to_its_parent() -> None:
    suite = suites.scienceworld_suite(**TASKS)
    [environment] = started(suite, 1)
    child = os.fork()
    if not child:
        status = 1
        try:
            environment.step("look around")
        except simulators.SimulatorError:
            del environment, suite
            gc.collect()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert environment.step("look around")[0]


CHILD = """
import os, signal, sys, time
from hgpo_scienceworld import scienceworld_suite
suite = scienceworld_suite(task_types=("lifespan-longest-lived",), list_commands=False)
environment = suite.tasks("train")[0].make()
environment.reset()
print(environment._session._simulator._process.pid, flush=True)
{end}
"""


@needs_java
@pytest.mark.parametrize("end", ["", "sys.exit(3)", "1 / 0", "os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)"])
def test_no_jvm_survives_its_process(end: str) -> None:
    words = [sys.executable, "-c", CHILD.format(end=end)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    jvm = Path("/proc") / done.stdout.strip() / "stat"
    limit = time.monotonic() + 30
    while jvm.exists() and jvm.read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z":
        assert time.monotonic() < limit, f"the JVM still runs after {end!r}"
        time.sleep(0.05)
    assert "py4j" not in done.stderr


def test_missing_java_is_an_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(simulators.SimulatorError, match=r"needs Java.*apt-get install default-jre-headless"):
        simulators.Simulator()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(simulators.SimulatorError, match="let JAVA_HOME name its folder"):
        simulators.Simulator()


def test_a_java_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "java").write_text("#!/bin/sh\necho Unrecognized option >&2\n", encoding="utf-8")
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(simulators.SimulatorError, match="OpenJDK 8 or newer"):
        simulators.Simulator()


def test_a_missing_package_is_an_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scienceworld.constants", None)
    with pytest.raises(simulators.SimulatorError, match=r"pip install scienceworld==1\.2\.3"):
        simulators.Simulator()
