"""The JVM of ScienceWorld's simulator, one for all environments of a suite."""

from __future__ import annotations

import os
import subprocess
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

# The simulator iterates over hash sets of objects. By default their hashes, and so the order of its texts, depend on
# all earlier calls of the JVM; `hashCode=2` gives every object the same hash.
_OPTIONS = ["-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2"]
_clients: weakref.WeakSet[Any] = weakref.WeakSet()


def _disconnect() -> None:
    """In a fork, keep py4j from freeing objects in the parent's JVM."""
    for client in _clients:
        client.is_connected = False


os.register_at_fork(after_in_child=_disconnect)


class SimulatorError(RuntimeError):
    """Java, the package or the simulator failed; the message names the remedy."""


class Simulator:
    """A JVM with the simulator. It ends when nothing refers to it, and with this process.

    The simulator keeps its random numbers, a counter of objects and the simplifications in singletons. Each `Session`
    has its own, which are put there before its calls.
    """

    def __init__(self) -> None:
        try:
            from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
            from py4j.protocol import Py4JError
            from scienceworld.constants import BASEPATH, JAR_PATH

            # In a process group of its own: Ctrl-C is for Python, which may still write a checkpoint.
            how = {"java_path": None, "create_new_process_group": True, "enable_auth": True, "die_on_exit": True}
            how |= {"classpath": JAR_PATH, "cwd": BASEPATH, "return_proc": True}
            port, token, self._process = launch_gateway(javaopts=_OPTIONS, **how)
        except ImportError as error:
            raise SimulatorError("ScienceWorld is missing: pip install scienceworld==1.2.3") from error
        except OSError as error:
            remedy = "apt-get install default-jre-headless, or let JAVA_HOME name its folder"
            raise SimulatorError(f"ScienceWorld needs Java ({error}): {remedy}") from error
        except ValueError as error:  # the JVM's first output is no port
            raise SimulatorError("Java did not start; ScienceWorld needs OpenJDK 8 or newer: java -version") from error
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        self._client, self._owner, self._failure = gateway._gateway_client, os.getpid(), Py4JError
        _clients.add(self._client)
        weakref.finalize(self, _end, self._process, self._client, self._owner)
        self.jvm, self._lock = gateway.jvm, threading.RLock()
        self.jvm.java.lang.System.setOut(self.jvm.java.io.PrintStream(os.devnull))  # it prints at every step
        self._random = _singleton(self.jvm.scala.util, "Random")
        self._random_field = self.jvm.java.lang.Class.forName("scala.util.Random").getDeclaredField("self")
        self._random_field.setAccessible(True)
        self._counter = _singleton(self.jvm.util, "UniqueIdentifier")
        self._simplifier = _singleton(self.jvm.main.scala.scienceworld.runtime, "SimplifierProcessor")
        self.paths = _singleton(self.jvm.scienceworld.goldagent, "PathFinder").precomputedExhaustivePaths()
        self._holder: Callable[[], Session | None] = lambda: None

    @property
    def runs(self) -> bool:
        """Whether the JVM runs, and belongs to this process instead of the one that this was forked from."""
        return self._owner == os.getpid() and self._process.poll() is None

    @contextmanager
    def turn(self, session: Session) -> Iterator[None]:
        """In the context, the singletons are the session's, and no other thread calls the simulator."""
        with self._lock:
            try:
                before = self._holder()
                if before is not session:
                    self._holder = lambda: None
                    if before is not None:
                        before.objects = self._counter.count()
                    self._random_field.set(self._random, session.random)
                    getattr(self._counter, "count_$eq")(session.objects)
                    self._simplifier.parseSimplificationStr(session.simplifications)
                    self._holder = weakref.ref(session)
                yield
            except self._failure as error:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(0.5)  # it may be about to end
                self._client.is_connected = self.runs  # else py4j logs each object that it cannot free
                ended = "" if self.runs else "; the JVM ended, or belongs to the parent process"
                raise SimulatorError(f"ScienceWorld's simulator failed: {str(error)[:500]}{ended}") from error


class Session:
    """One game of a simulator."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator, self.objects, self.simplifications = simulator, 0, ""
        self.random = simulator.jvm.java.util.Random(0)
        with simulator.turn(self):
            self._game = simulator.jvm.scienceworld.runtime.pythonapi.PythonInterface()

    def load(self, task: str, variation: int, simplifications: str, *, solve: bool = False) -> list[str]:
        """Start a variation of a task; with `solve`, returns the package's solution, its gold path."""
        with self._simulator.turn(self):
            self._simulator.paths.clear()  # a cache on which solutions depend
            problem = self._game.load(task, variation, simplifications, solve)
            self.simplifications = self._game.getSimplificationsUsed()
            getattr(self._game, "taskMaker_$eq")(None)  # 11 MB; the next load makes another
            if problem:
                raise SimulatorError(f"{task}, variation {variation}: {problem}")
            return list(self._game.getGoldActionSequence()) if solve else []

    def call(self, method: str, *arguments: Any) -> Any:
        """The result of a method of the package's Java class `PythonInterface`."""
        with self._simulator.turn(self):
            return getattr(self._game, method)(*arguments)


class Keeper:
    """Starts the simulator when it is first needed, and keeps it between environments."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._simulator: Simulator | None = None

    def session(self) -> Session:
        """A session of the simulator, of a new one if that has ended."""
        with self._lock:
            if self._simulator is None or not self._simulator.runs:
                self._simulator = Simulator()
            return Session(self._simulator)

    def close(self) -> None:
        """Let the JVM end with the last environment that uses it."""
        self._simulator = None


def _singleton(package: Any, name: str) -> Any:
    """A Scala `object`."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _end(process: Any, client: Any, owner: int) -> None:
    if os.getpid() == owner:  # not in a fork
        client.is_connected = False
        process.kill()
        process.wait()
