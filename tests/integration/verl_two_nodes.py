"""A dress rehearsal of two nodes on one machine: `make verl-nodes` runs it.

    python tests/integration/verl_two_nodes.py [FOLDER]

Two Ray nodes, each with processes, an address, a temporary folder and CPUs of its own, make one cluster, and a training
on verl has one rank on each. The second node is killed after the first checkpoint: the command has to end by itself and
say what is gone and how it goes on. A new node takes the place of the dead one, and the run is resumed to its end.
Needs verl, TransferQueue and this package.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from verl_smoke import HGPO, end, expect, fail, log, tail

from hgpo.evaluation.result_files import stored_evaluation
from hgpo.runs.folder import RunDirectory, read_metrics

TESTS = Path(__file__).parents[1]
RECIPE = TESTS / "corridor.toml"
PATIENCE = 1800.0  # seconds for anything that does not hang, on a machine that does much else
UPDATES = 3
CPUS = 8  # of each node, as Ray counts: verl's placement group 3, TransferQueue 2, the rest one for a moment
SETTINGS = (
    *(
        "policy.device=cpu",
        "verl.nodes=2",
        "verl.gpus_per_node=1",
        "verl.agent_workers=2",
        "verl.environment_workers=1",
    ),
    *(f"training.updates={UPDATES}", "training.checkpoint_every=1", "training.recompute_log_probs=true"),
)


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster: the process that holds it, and all that it started."""

    name: str
    process: subprocess.Popen[bytes]
    said: Path

    def roles(self) -> set[str]:
        """What runs on it, by Ray's names of the processes, such as `ray::WorkerDict`."""
        found = set()
        for one in psutil.Process(self.process.pid).children(recursive=True):
            try:
                found.add(" ".join(one.cmdline()).partition(".")[0])
            except psutil.NoSuchProcess:
                continue
        return found


class Cluster:
    """Nodes of one machine. Each has an address of its own in 127/8 and, where there are so many, a core of its own."""

    def __init__(self, folder: Path, port: int = 26379) -> None:
        self.folder, self.address = folder, f"127.0.0.1:{port}"
        self._port, self._started = port, 0

    def start(self, number: int) -> Node:
        """Start the node with this number; 1 is the head. Returns when the cluster knows it."""
        self._started += 1
        name = f"node{number}-{self._started}"
        place, said = self.folder / name, self.folder / f"{name}.log"
        place.mkdir()
        where = ["--head", f"--port={self._port}", "--include-dashboard=false"] if number == 1 else []
        where = where or [f"--address={self.address}"]
        counts = [f"--num-cpus={CPUS}", "--num-gpus=1", f"--node-ip-address=127.0.0.{number}", f"--temp-dir={place}"]
        command = [
            str(Path(sys.executable).with_name("ray")),
            "start",
            *where,
            *counts,
            "--block",
            "--disable-usage-stats",
        ]
        with said.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, preexec_fn=lambda: _take_a_core(number)
            )
        node = Node(name, process, said)
        wait_for(f"{name} to be up", lambda: "Ray runtime started" in said.read_text(errors="replace"), process, said)
        return node


def _take_a_core(number: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[(number - 1) % len(cores)]})


def main(folder: Path) -> None:
    began = time.monotonic()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    os.environ |= {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "VERL_PLATFORM": "cpu"}
    # A head takes a token that it finds on the machine, and then nodes need the same: this cluster has one of its own.
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    cluster, run = Cluster(folder), RunDirectory(folder / "verl-nodes")
    with up(cluster.start(1)) as head:
        second = cluster.start(2)
        log(began, "two nodes are up")
        with up(second):
            loses_a_node(cluster, run, head, second, began)
        with up(cluster.start(2)):
            log(began, "a new second node is up")
            resumed(run)
    check(run)
    log(began, "continued to the end on the new node: passed")


def loses_a_node(cluster: Cluster, run: RunDirectory, head: Node, second: Node, began: float) -> None:
    """Train across both nodes, kill the second, and see how the command ends."""
    said = run.path.with_name("start.log")
    places = [
        f"run.directory={str(run.path.parent)!r}",
        f"run.name={run.path.name}",
        f"verl.ray_address={cluster.address}",
    ]
    with said.open("wb") as output:
        process = subprocess.Popen(
            [*HGPO, "train", str(RECIPE), *places, *SETTINGS, "--engine", "verl"],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=TESTS,
        )
    try:
        wait_for("the first checkpoint", lambda: (run.checkpoints / "1").exists(), process, said)
        for node in (head, second):
            expect(any("WorkerDict" in role for role in node.roles()), f"{node.name} trains: {sorted(node.roles())}")
        end(second.process.pid)
        killed = time.monotonic()
        log(began, f"both nodes trained; the second is killed, with {len(read_metrics(run))} rows of metrics")
        try:
            status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            fail(f"the run hangs {PATIENCE:.0f} s after a node died:\n{tail(said)}")
        text = said.read_text(errors="replace")
        expect(status == 2, f"the command ends with an error, not with {status}:\n{tail(said)}")
        expect("a process or a node of it died" in text, f"the command says what happened:\n{tail(said)}")
        expect(f"hgpo train --resume {run.path}" in text, f"the command says what to do:\n{tail(said)}")
        log(began, f"the command ended by itself {time.monotonic() - killed:.0f} s later, and said why")
    finally:
        end(process.pid)


def resumed(run: RunDirectory) -> None:
    said = run.path.with_name("resume.log")
    with said.open("wb") as output:
        command = [*HGPO, "train", "--resume", str(run.path), "--trust"]
        status = subprocess.run(
            command, stdout=output, stderr=subprocess.STDOUT, cwd=TESTS, check=False, timeout=PATIENCE
        ).returncode
    expect(status == 0, f"the run is resumed:\n{tail(said)}")


def check(run: RunDirectory) -> None:
    rows = [row["update"] for row in read_metrics(run)]
    expect(rows == list(range(1, UPDATES + 1)), f"a row for every update: {rows}")
    expect((run.checkpoints / str(UPDATES) / "model.safetensors").exists(), "the last checkpoint is published")
    for name in ("before", "after"):
        expect(stored_evaluation(run, name) is not None, f"evaluation {name}")
    expect(run.complete, "there is a summary")


@contextmanager
def up(node: Node) -> Iterator[Node]:
    """The node ends with the block."""
    try:
        yield node
    finally:
        end(node.process.pid)


def wait_for(what: str, there: Callable[[], bool], process: subprocess.Popen[bytes], said: Path) -> None:
    """Wait until `there()`; fail where `process` ends before."""
    due = time.monotonic() + PATIENCE
    while not there():
        if process.poll() is not None or time.monotonic() > due:
            fail(f"waited for {what}; the log ends with:\n{tail(said)}")
        time.sleep(0.2)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        main(Path(sys.argv[1]).resolve())
    else:
        with tempfile.TemporaryDirectory(prefix="vn-") as temporary:  # Ray's sockets lie below, and have short names
            main(Path(temporary))
