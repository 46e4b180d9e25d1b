from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from hgpo.integrations.verl.waiting import Situation, StartWatch, Stillness, look_at_ray, situation

GROUP = "global_poolverl_group_1:0"


def actor(name: str, state: str = "ALIVE") -> dict[str, str]:
    return {"Name": name, "ActorClassName": "TaskRunnerV1", "State": state}


def group(state: str, cpus: int = 3) -> dict[str, Any]:
    return {"name": GROUP, "state": state, "bundles": {0: {"CPU": float(cpus), "GPU": 1.0}, 1: {"CPU": float(cpus)}}}


def test_a_group_that_is_not_placed_is_said_with_numbers() -> None:
    found = situation([group("PENDING")], [actor("")], {"CPU": 2.0}, 1)
    assert found.waits_for == (
        "1 placement group(s), each on one node, of 6 CPU, 1 GPU, and free on all nodes together are 2 CPU"
    )
    assert not found.done


def test_actors_that_wait_are_named() -> None:
    units = [actor(f"TransferQueueStorageUnit#{place}", "PENDING_CREATION") for place in range(6)]
    found = situation([], units, {}, 1)
    assert found.waits_for.startswith("TransferQueueStorageUnit#0, TransferQueueStorageUnit#1, ")
    assert "…" in found.waits_for


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([""], "start TransferQueue"),
        (["TransferQueueController"], "ask for training processes"),
        (["TransferQueueController", "abcWorkerDict_0:0"], "load the model"),
        (["TransferQueueController", "abcWorkerDict_0:0", "vllm_server_0_0"], "all rollout servers"),
    ],
)
def test_the_phase_is_told_by_what_is_there(names: list[str], words: str) -> None:
    found = situation([group("CREATED")], [actor(name) for name in names], {}, 2)
    assert words in found.waits_for
    assert not found.done


def test_a_start_is_over_when_all_agents_are_there() -> None:
    agents = [actor(f"agent_loop_worker_{place}_ab") for place in range(2)]
    assert not situation([], agents[:1], {}, 2).done
    assert situation([], agents, {}, 2).done
    assert not situation([], [agents[0], {**agents[1], "State": "DEAD"}], {}, 2).done


def test_something_has_moved_when_a_state_changes() -> None:
    looks = [situation([group(state)], [actor("")], {"CPU": 1.0}, 1) for state in ("PENDING", "PENDING", "CREATED")]
    assert looks[0].moved == looks[1].moved != looks[2].moved


def test_it_is_said_once_the_limit_is_over_and_again_after_another() -> None:
    still, same = Stillness(120, now=0), Situation("a placement group", moved=1)
    told = [still.notice(same, now) for now in (10, 60, 129, 130, 131, 250)]
    assert told == [
        None,
        None,
        None,
        "nothing has moved for 120 s: the start waits for a placement group",
        None,
        "nothing has moved for 240 s: the start waits for a placement group",
    ]


def test_a_move_begins_the_limit_anew() -> None:
    still = Stillness(120, now=0)
    assert [still.notice(Situation("x", moved=now // 100), now) for now in (0, 99, 100, 219, 319)] == [None] * 5


def wait_for(lines: list[str], words: str) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for line in lines:
            if words in line:
                return line
        time.sleep(0.05)
    raise AssertionError(f"{words!r} was not said; said was {lines}")


def test_a_phase_that_does_not_end_is_said_by_the_thread() -> None:
    lines: list[str] = []
    with StartWatch(lines.append, "Ray to start", limit=0.2) as watch:
        wait_for(lines, "the start waits for Ray to start")
        watch.waits_for("every node to answer")
        wait_for(lines, "the start waits for every node to answer")
        watch.looks(lambda: Situation("", moved=0, done=True))


def test_a_look_that_fails_is_said_and_harms_nothing() -> None:
    def gone() -> Situation:
        raise ConnectionError("the cluster is gone")

    lines: list[str] = []
    with StartWatch(lines.append, "Ray to start", limit=0.2) as watch:
        watch.looks(gone)
        wait_for(lines, "cannot be seen any more (ConnectionError: the cluster is gone)")


@pytest.fixture
def one_cpu() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'hgpo[verl]'")
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.mark.slow
def test_a_placement_group_that_ray_cannot_place_is_said(one_cpu: Any) -> None:
    from ray.util.placement_group import placement_group

    lines: list[str] = []
    placement_group([{"CPU": 3}], strategy="STRICT_PACK", name=GROUP)
    with StartWatch(lines.append, "Ray to start", limit=1.0) as watch:
        watch.looks(lambda: look_at_ray(agents=1))
        line = wait_for(lines, "placement group(s)")
    assert "of 3 CPU, and free on all nodes together are 1 CPU" in line


@pytest.mark.slow
def test_an_actor_that_ray_cannot_place_is_named(one_cpu: Any) -> None:
    class Unit:
        pass

    lines: list[str] = []
    held = one_cpu.remote(num_cpus=2)(Unit).options(name="TransferQueueStorageUnit#0").remote()
    with StartWatch(lines.append, "Ray to start", limit=1.0) as watch:
        watch.looks(lambda: look_at_ray(agents=1))
        wait_for(lines, "TransferQueueStorageUnit#0 to be placed")
    del held
