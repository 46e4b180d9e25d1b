"""A run ends when a node is gone that it needs, and for no other."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from hgpo.integrations.verl.lost_nodes import NodeWatch, lost_nodes


def actor(name: str, node: str) -> dict[str, Any]:
    return {"ActorClassName": name, "Address": {"NodeID": node}}


def node(name: str, address: str, alive: bool) -> dict[str, Any]:
    return {"NodeID": name, "NodeManagerAddress": address, "Alive": alive}


def test_a_node_counts_when_it_held_a_process_of_the_run() -> None:
    actors = [
        actor("TaskRunner", "a"),
        actor("WorkerDict", "b"),
        actor("Queue", "b"),
        {**actor("x", ""), "Address": {}},
    ]
    gone = [node("a", "10.0.0.1", True), node("b", "10.0.0.2", False), node("c", "10.0.0.3", False)]
    assert lost_nodes(actors, gone) == ("node 10.0.0.2 with Queue, WorkerDict",)
    assert lost_nodes(actors, [node("a", "10.0.0.1", True), node("b", "10.0.0.2", True)]) == ()


def test_the_run_is_ended_once_a_node_is_gone() -> None:
    looks = iter([(), (), ("node 10.0.0.2 with WorkerDict",)])
    ended = threading.Event()
    with NodeWatch(lambda: next(looks), seconds=0.01) as watch:
        watch.ends(ended.set)
        assert ended.wait(10)
    assert watch.lost == ("node 10.0.0.2 with WorkerDict",)


def test_what_is_lost_is_waited_for_where_something_failed_before_it_was_noticed() -> None:
    looks = iter([(), (), ("node 10.0.0.2 with WorkerDict",)])
    with NodeWatch(lambda: next(looks), seconds=0.05, patience=10) as watch:
        watch.ends(lambda: None)
        assert watch.lost == ()
        assert watch.found() == ("node 10.0.0.2 with WorkerDict",)
    with NodeWatch(lambda: (), seconds=0.01, patience=0.05) as watch:
        watch.ends(lambda: None)
        assert watch.found() == ()


def test_nothing_is_looked_at_before_there_is_something_to_end() -> None:
    looked = threading.Event()
    with NodeWatch(lambda: looked.set() or (), seconds=0.01):
        assert not looked.wait(0.1)


def test_a_cluster_that_cannot_be_looked_at_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> tuple[str, ...]:
        raise ConnectionError("gone")

    ended = threading.Event()
    with NodeWatch(broken, seconds=0.01) as watch:
        watch.ends(ended.set)
        assert not ended.wait(0.2)
    assert watch.lost == ()
    assert "nodes cannot be looked at any more (ConnectionError: gone)" in caplog.text
