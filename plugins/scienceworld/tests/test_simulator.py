"""JVMs: how many run, when they end, and what is missing. The tests need Java: `make scienceworld-test`."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from functools import partial
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
def test_environments_share_a_jvm_which_ends_with_the_last_reference(before: set[int]) -> None:
    suite = suites.scienceworld_suite(**TASKS)
    assert jvms(os.getpid()) == before
    environments, first = started(suite, 4), jvms(os.getpid()) - before
    assert len(first) == 1
    del environments
    gc.collect()
    [environment] = started(suite, 1)
    assert jvms(os.getpid()) - before == first
    del suite
    gc.collect()
    environment.step("look around")
    del environment
    gc.collect()
    assert jvms(os.getpid()) == before


@needs_java
def test_after_its_jvm_was_killed_an_environment_says_so(before: set[int]) -> None:
    suite = suites.scienceworld_suite(**TASKS)
    [environment] = started(suite, 1)
    [jvm] = jvms(os.getpid()) - before
    os.kill(jvm, signal.SIGKILL)
    while jvm in jvms(os.getpid()):
        time.sleep(0.01)
    for call in (partial(environment.step, "look around"), environment.reset, suite.tasks("train")[1].make().reset):
        with pytest.raises(simulators.SimulatorError, match="JVM ended; start again"):
            call()


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


CHILD = """
import os, signal, sys, time
from hgpo_scienceworld import scienceworld_suite
suite = scienceworld_suite(task_types=("lifespan-longest-lived",), list_commands=False)
environment = suite.tasks("train")[0].make()
environment.reset()
print(environment._session._simulator.process.pid, flush=True)
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


@pytest.mark.parametrize("script", [None, "#!/bin/sh\necho Unrecognized option >&2\n"], ids=["missing", "broken"])
def test_java_that_does_not_start_is_an_error_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str | None
) -> None:
    if script is not None:
        (tmp_path / "java").write_text(script, encoding="utf-8")
        (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path) if script is None else f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(simulators.SimulatorError, match=r"needs Java.*apt-get install default-jre-headless.*JAVA_HOME"):
        simulators.Simulator().session()
