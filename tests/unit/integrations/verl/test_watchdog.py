"""A dead node or a dead process ends a run with one line."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hgpo.cli.main import main
from hgpo.integrations.verl.watchdog import LostProcessError, Watchdog, dead_nodes, look_at_ray

NEEDS_RAY = "ray is not installed: pip install 'hgpo[verl]'"
RUN = Path("runs/a b")
DEAD = "node 10.0.0.2 with WorkerDict"


def process(name: str, node: str = "", state: str = "ALIVE") -> dict[str, Any]:
    return {"Name": "", "ActorClassName": name, "State": state, "Address": {"NodeID": node} if node else {}}


def node(name: str, address: str, alive: bool) -> dict[str, Any]:
    return {"NodeID": name, "NodeManagerAddress": address, "Alive": alive}


# ---- what is seen on a cluster -------------------------------------------------------------------------------------


def test_a_node_counts_when_it_had_a_process_of_the_run() -> None:
    actors = [process("TaskRunner", "a"), process("WorkerDict", "b"), process("Queue", "b"), process("x")]
    nodes = [node("a", "10.0.0.1", True), node("b", "10.0.0.2", False), node("c", "10.0.0.3", False)]
    assert dead_nodes(actors, nodes) == "node 10.0.0.2 with Queue, WorkerDict"
    assert dead_nodes(actors, nodes[:1]) == ""


# ---- the thread ----------------------------------------------------------------------------------------------------


def test_the_run_is_ended_once_a_node_is_dead() -> None:
    looks = iter(["", "", DEAD])
    ended = threading.Event()
    with Watchdog(RUN, lambda: next(looks), seconds=0.01) as watchdog:
        watchdog.ends(ended.set)
        assert ended.wait(10)
    assert watchdog.found == f"a process or a node of it died: {DEAD}"


def test_nothing_is_watched_before_there_is_something_to_end() -> None:
    looked = threading.Event()
    with Watchdog(RUN, lambda: looked.set() or "", seconds=0.01):
        assert not looked.wait(0.1)


def test_a_cluster_that_cannot_be_watched_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str:
        raise ConnectionError("gone")

    ended = threading.Event()
    with Watchdog(RUN, broken, seconds=0.01) as watchdog:
        watchdog.ends(ended.set)
        assert not ended.wait(0.2)
    assert watchdog.found == ""
    assert "the cluster cannot be watched any more (ConnectionError: gone)" in caplog.text


# ---- errors of Ray -------------------------------------------------------------------------------------------------


class _Mortal:
    def die(self) -> None:
        os._exit(1)

    def fail(self) -> None:
        raise KeyError("a fault of ours")


class _Stillborn:
    def __init__(self) -> None:
        raise KeyError("a fault of ours")

    def work(self) -> None:
        """Never done."""


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason=NEEDS_RAY)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers cannot import a module of tests
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


class EpisodeWorker(_Mortal):
    """Named like the agent workers."""


def test_an_agent_worker_that_dies_is_found_and_one_that_is_ended_is_not(ray: Any) -> None:
    workers = [ray.remote(num_cpus=0)(EpisodeWorker).remote() for _ in range(2)]
    ray.get([worker.__ray_ready__.remote() for worker in workers])
    ray.kill(workers[0])
    workers[1].die.remote()  # not awaited, as in a rollout
    end = time.monotonic() + 60
    while not (found := look_at_ray()) and time.monotonic() < end:
        time.sleep(0.1)
    assert re.fullmatch(r"agent worker \d+ on [\d.]+: .+", found)
    assert found.count("agent worker") == 1


def nothing() -> str:
    return ""


def watched_by(watchdog: Watchdog, work: Callable[[], object]) -> None:
    with watchdog:
        watchdog.ends(lambda: None)
        work()


@pytest.mark.parametrize("where", ["here", "in a task"])
def test_a_dead_process_is_named_with_what_to_do(ray: Any, where: str) -> None:
    def ask(actor: Any) -> None:
        import ray

        ray.get(actor.die.remote())

    in_a_task = ray.remote(num_cpus=0)(ask)
    work = ask if where == "here" else lambda actor: ray.get(in_a_task.remote(actor))
    actor = ray.remote(num_cpus=0)(_Mortal).remote()
    message = r"a process or a node of it died: .*_Mortal.*`hgpo train --resume 'runs/a b'` continues"
    with pytest.raises(LostProcessError, match=message) as caught:
        watched_by(Watchdog(RUN, nothing), lambda: work(actor))
    assert "Traceback" not in str(caught.value)


def test_an_error_of_the_runs_own_code_is_left_as_it_is(ray: Any) -> None:
    with pytest.raises(KeyError, match="a fault of ours"), Watchdog(RUN, nothing, patience=0):
        ray.get(ray.remote(num_cpus=0)(_Mortal).remote().fail.remote())
    with pytest.raises(ray.exceptions.ActorDiedError, match="a fault of ours"), Watchdog(RUN, nothing):
        ray.get(ray.remote(num_cpus=0)(_Stillborn).remote().work.remote())


def test_an_error_that_a_dead_node_explains_waits_for_it(ray: Any) -> None:
    looks = iter(["", "", DEAD])
    message = f"since a process or a node of it died: {DEAD}. Everything written is kept"
    actor = ray.remote(num_cpus=0)(_Mortal).remote()
    watchdog = Watchdog(RUN, lambda: next(looks), seconds=0.05, patience=10)
    with pytest.raises(LostProcessError, match=message):
        watched_by(watchdog, lambda: ray.get(actor.fail.remote()))


def test_the_command_prints_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def lost(*_: Any) -> None:
        raise LostProcessError("gone")

    monkeypatch.setattr("hgpo.cli.main._run", lost)
    assert main(["--version"]) == 2
    assert capsys.readouterr().err == "hgpo: gone\n"
