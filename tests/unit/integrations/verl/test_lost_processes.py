"""A death is one line, wherever in the run it is seen."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hgpo.cli import main
from hgpo.integrations.verl.lost_nodes import NodeWatch
from hgpo.integrations.verl.lost_processes import LostProcessError, naming_lost_processes

ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'hgpo[verl]'")

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Ray's workers cannot import a module of tests


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


def _ask(actor: Any) -> None:
    ray.get(actor.die.remote())


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("where", ["here", "in a task"])
def test_a_process_that_died_is_named_with_what_to_do(where: str) -> None:
    actor = ray.remote(num_cpus=0)(_Mortal).remote()
    said = r"a process or a node of it is gone: .*_Mortal.*`hgpo train --resume 'runs/a b'` goes on"
    in_a_task = ray.remote(num_cpus=0)(_ask)
    ask = _ask if where == "here" else lambda actor: ray.get(in_a_task.remote(actor))
    with pytest.raises(LostProcessError, match=said) as caught, naming_lost_processes(Path("runs/a b")):
        ask(actor)
    assert "Traceback" not in str(caught.value)


@pytest.mark.usefixtures("cluster")
def test_a_fault_of_ours_is_left_as_it_is() -> None:
    with pytest.raises(KeyError, match="a fault of ours"), naming_lost_processes(Path("run")):
        ray.get(ray.remote(num_cpus=0)(_Mortal).remote().fail.remote())


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("lost", [(), ("node 10.0.0.2 with WorkerDict",)])
def test_what_fails_since_a_node_is_gone_is_told_as_that(lost: tuple[str, ...]) -> None:
    with NodeWatch(lambda: lost, seconds=0.01, patience=0.2) as nodes:
        nodes.ends(lambda: None)
        expected = (
            (LostProcessError, "gone: node 10.0.0.2 with WorkerDict. What was written is kept")
            if lost
            else (
                KeyError,
                "a fault of ours",
            )
        )
        with pytest.raises(expected[0], match=expected[1]), naming_lost_processes(Path("run"), nodes):
            ray.get(ray.remote(num_cpus=0)(_Mortal).remote().fail.remote())


@pytest.mark.usefixtures("cluster")
def test_why_a_process_could_not_be_made_is_told_in_full() -> None:
    with pytest.raises(ray.exceptions.ActorDiedError, match="a fault of ours"), naming_lost_processes(Path("run")):
        ray.get(ray.remote(num_cpus=0)(_Stillborn).remote().work.remote())


def test_the_command_says_it_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def lost(*_: Any) -> None:
        raise LostProcessError("gone")

    monkeypatch.setattr("hgpo.cli._run", lost)
    assert main(["--version"]) == 2
    assert capsys.readouterr().err == "hgpo: gone\n"
