"""A policy trained on answers of vLLM's own server, which is handed an adapter after every update."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from corridor_runs import quiet, recipe, start_folder
from hgpo.assemble import resume, train
from hgpo.config import Config, ConfigError
from hgpo.policies.openai import ServerRefused
from hgpo.runs.folder import RunDirectory, read_metrics
from hgpo.runs.metrics import store_rollouts
from killed import Killed

pytestmark = pytest.mark.timeout(5400)  # the server's start is most of it
START_SECONDS = 3600
RANK = 8
# On CPUs, vLLM's attention takes heads of 32 dimensions and more.
SHAPE = ("policy.tiny.hidden_size=32", "policy.tiny.attention_heads=1")
# What a model's author may recommend and training must not be subject to.
RECOMMENDED = {"do_sample": True, "temperature": 0.3, "top_p": 0.5, "top_k": 2, "repetition_penalty": 1.5}
ENVIRONMENT = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "3600",  # on a machine with other work
    "VLLM_NO_USAGE_STATS": "1",
    "TORCH_COMPILE_DISABLE": "1",  # a helper of its sampler would be compiled at the first request
}


@dataclass(frozen=True)
class Served:
    """A model behind a server. Example: `Served(Path("start"), "http://127.0.0.1:8000")`."""

    folder: Path
    address: str

    def models(self) -> list[str]:
        """Names that are answered by."""
        with urllib.request.urlopen(f"{self.address}/v1/models", timeout=600) as answer:
            return [model["id"] for model in json.load(answer)["data"]]

    def config(self, directory: Path, *overrides: str) -> Config:
        settings = {
            "policy.model": str(self.folder),
            "policy.backend": "server",
            "policy.options.url": f"{self.address}/v1",
            "policy.options.adapters": str(directory / "adapters"),
            "policy.options.timeout": 1800,
            "policy.options.retries": 0,
            "policy.lora.rank": RANK,
            "warm_start.enabled": "false",
            "training.updates": 3,
            "training.learning_rate": 0.05,
            "training.checkpoint_every": 1,
        }
        return recipe(directory, *(f"{name}={value}" for name, value in settings.items()), *overrides)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("served")
    folder = start_folder(directory, *SHAPE)
    recommended = folder / "generation_config.json"
    recommended.write_text(json.dumps({**json.loads(recommended.read_text()), **RECOMMENDED}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Not `vllm serve`: the command of the build for CPUs does not start (vllm-cpu 0.32).
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--enforce-eager"]
    command += ["--max-model-len", "124", "--max-num-seqs", "16", "--logprobs-mode", "processed_logprobs"]
    command += ["--enable-lora", "--max-lora-rank", str(RANK)]
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **ENVIRONMENT}, stdout=log, stderr=log, start_new_session=True
        )
        try:
            one = Served(folder, f"http://127.0.0.1:{port}")
            wait_for(one, process, directory / "server.log")
            yield one
        finally:
            end(process)


def wait_for(served: Served, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()[-4000:]
        try:
            urllib.request.urlopen(f"{served.address}/health", timeout=60).close()
        except OSError:
            time.sleep(1)
        else:
            return
    raise TimeoutError(log.read_text()[-4000:])


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(300)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it started and did not end


@pytest.fixture(scope="module")
def finished(served: Served, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return train(served.config(tmp_path_factory.mktemp("runs")), quiet())


def gaps(run: RunDirectory) -> list[float]:
    """The largest difference of a log-prob between server and trainer, for each update."""
    return [row["sampler_gap_max"] for row in read_metrics(run)]


def test_every_update_is_played_with_the_adapter_that_the_last_one_made(served: Served, finished: RunDirectory) -> None:
    rows = read_metrics(finished)
    assert [row["update"] for row in rows] == [1, 2, 3]
    assert all(row["gradient_norm"] > 0 for row in rows)
    assert max(gaps(finished)) < 1e-3
    own = [path.name for path in (finished.path.parent / "adapters").iterdir()]
    assert len(own) == 1
    assert own[0] in served.models()


def test_a_run_that_was_killed_goes_on_with_the_same_server(served: Served, tmp_path: Path) -> None:
    def killed(run: RunDirectory, update: int, *rest: Any) -> None:
        if update == 2:
            raise Killed
        store_rollouts(run, update, *rest)

    with patch("hgpo.training.trainer.store_rollouts", killed), pytest.raises(Killed):
        train(served.config(tmp_path), quiet())

    run = resume(tmp_path / "corridor", quiet())

    assert [row["update"] for row in read_metrics(run)] == [1, 2, 3]
    assert max(gaps(run)) < 1e-3
    assert run.complete


def test_what_it_cannot_hold_is_refused_before_anything_is_played(served: Served, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot receive whole weights"):
        train(served.config(tmp_path, "policy.lora.rank=0"), quiet())
    assert not list(tmp_path.iterdir())
    with pytest.raises(ServerRefused, match=r"policy\.lora\.rank"):
        train(served.config(tmp_path, f"policy.lora.rank={2 * RANK}"), quiet())
    assert not RunDirectory(tmp_path / "corridor").evaluation("before").exists()
