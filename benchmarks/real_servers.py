"""The two servers that a language model is asked through, as real processes on this machine alone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

SERVERS = ("transformers", "vllm")
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
_VLLM = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "3600",  # on a machine with other work
    "VLLM_NO_USAGE_STATS": "1",
    "TORCH_COMPILE_DISABLE": "1",  # a helper of its sampler would be compiled at the first request
}


@dataclass(frozen=True, slots=True)
class Start:
    """How a server is started.

    Attributes:
        command: its words.
        folder: in which it is started; the model is a folder there, and is called by its name.
        environment: variables besides those that there are.

    Example: `Start(["transformers", "serve", "tiny"], Path("models"))`.
    """

    command: list[str]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)


def start_of(server: str, python: Path, model: Path, port: int, *, max_tokens: int, at_once: int) -> Start:
    """How `server` is started.

    Args:
        server: one of `SERVERS`.
        python: of the environment that it is installed in.
        model: a folder; its name is the model's.
        port: on 127.0.0.1.
        max_tokens: longest prompt and answer together, which vLLM keeps room for.
        at_once: answers that are written side by side.
    """
    where = ["--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16"]
    if server == "transformers":
        command = [str(python.with_name("transformers")), "serve", model.name, *where, "--device", "cpu"]
        # Not `--continuous-batching`: on a CPU every token of a batch looks at the prompts of all (transformers 5.19).
        return Start([*command, "--log-level", "info"], model.parent, _OFFLINE)
    # Not `vllm serve`: the command of the build for CPUs does not start (vllm-cpu 0.32).
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", model.name, *where]
    command += ["--enforce-eager", "--max-model-len", str(max_tokens), "--max-num-seqs", str(at_once)]
    # A prompt in pieces rewinds its request's generator, which PyTorch's for CPUs cannot: the server would end.
    command += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", str(max_tokens)]
    preloaded = python.parent.parent / "lib" / "libiomp5.so"
    preload = {"LD_PRELOAD": str(preloaded)} if preloaded.exists() else {}
    return Start(command, model.parent, {**_OFFLINE, **_VLLM, **preload})


def free_port() -> int:
    """A port on 127.0.0.1 that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def serving(start: Start, port: int, log: Path, *, seconds: float) -> Iterator[str]:
    """In the block, a server answers; yields the base address of the protocol.

    Raises:
        RuntimeError: it ended before it answered; the message has the end of its log.
        TimeoutError: it did not answer within `seconds`.
    """
    with log.open("ab") as written:
        process = subprocess.Popen(
            start.command,
            cwd=start.folder,
            env={**os.environ, **start.environment},
            stdout=written,
            stderr=written,
            start_new_session=True,
        )
        try:
            _wait_for(process, f"http://127.0.0.1:{port}/health", log, seconds)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            _end(process)


def _wait_for(process: subprocess.Popen[bytes], address: str, log: Path, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode}:\n{_last_lines(log)}")
        try:
            urllib.request.urlopen(address, timeout=60).close()
        except OSError:
            time.sleep(1)
        else:
            return
    raise TimeoutError(f"no answer from {address} within {seconds:.0f} s:\n{_last_lines(log)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it started and did not end


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])
