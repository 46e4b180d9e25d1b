"""The JVM of ScienceWorld's simulator, one for all environments of a suite."""

from __future__ import annotations

import os
import subprocess
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError
from scienceworld.constants import BASEPATH, JAR_PATH

# The simulator iterates over hash sets of objects. By default their hashes, and so the order of its texts, depend on
# all earlier calls of the JVM; `hashCode=2` gives every object the same hash.
_OPTIONS = ["-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2"]


class SimulatorError(RuntimeError):
    """Java, the package or the simulator failed; the message names the remedy."""


class Simulator:
    """A JVM with the simulator. It starts with the first session, and ends when nothing refers to it, and with Python.

    The simulator keeps its random numbers, a counter of objects and the simplifications in singletons. Each `Session`
    has its own, which are put there before its calls. It is for one thread at a time.
    """

    def __init__(self) -> None:
        self._client: Any = None
        self._holder: Callable[[], Session | None] = lambda: None

    def session(self) -> Session:
        """A new session.

        Raises:
            SimulatorError: Java is missing or does not start.
        """
        if self._client is None:
            self._start()
        return Session(self)

    def _start(self) -> None:
        # In a process group of its own: Ctrl-C is for Python, which may still write a checkpoint.
        how = {"java_path": None, "create_new_process_group": True, "enable_auth": True, "die_on_exit": True}
        how |= {"classpath": JAR_PATH, "cwd": BASEPATH, "return_proc": True}
        try:
            port, token, self.process = launch_gateway(javaopts=_OPTIONS, **how)
        except (OSError, ValueError) as error:  # no Java, or its first output is no port
            remedy = "apt-get install default-jre-headless, or let JAVA_HOME name the folder of OpenJDK 8 or newer"
            raise SimulatorError(f"ScienceWorld needs Java, which did not start ({error}): {remedy}") from error
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        self._client, self.jvm = gateway._gateway_client, gateway.jvm
        weakref.finalize(self, _end, self.process, self._client)
        self.jvm.java.lang.System.setOut(self.jvm.java.io.PrintStream(os.devnull))  # it prints at every step
        self._random = _singleton(self.jvm.scala.util, "Random")
        self._random_field = self.jvm.java.lang.Class.forName("scala.util.Random").getDeclaredField("self")
        self._random_field.setAccessible(True)
        self._counter = _singleton(self.jvm.util, "UniqueIdentifier")
        self._simplifier = _singleton(self.jvm.main.scala.scienceworld.runtime, "SimplifierProcessor")
        self.paths = _singleton(self.jvm.scienceworld.goldagent, "PathFinder").precomputedExhaustivePaths()

    @contextmanager
    def turn(self, session: Session) -> Iterator[None]:
        """In the context, the singletons are the session's, and errors are a `SimulatorError`."""
        try:
            before = self._holder()
            if before is not session:
                self._holder = lambda: None
                if before is not None:
                    before.objects = self._counter.count()
                session.random = session.random or self.jvm.java.util.Random(0)
                self._random_field.set(self._random, session.random)
                getattr(self._counter, "count_$eq")(session.objects)
                self._simplifier.parseSimplificationStr(session.simplifications)
                self._holder = weakref.ref(session)
            yield
        except Py4JError as error:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(0.5)  # it may be about to end
            runs = self.process.poll() is None
            self._client.is_connected = runs  # else py4j logs each object that it cannot free
            reason = str(error)[:500] if runs else "its JVM ended; start again"
            raise SimulatorError(f"ScienceWorld's simulator failed: {reason}") from error


class Session:
    """One game of a simulator."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator, self.objects, self.simplifications = simulator, 0, ""
        self.random: Any = None
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


def _singleton(package: Any, name: str) -> Any:
    """A Scala `object`."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _end(process: Any, client: Any) -> None:
    client.is_connected = False
    process.kill()
    process.wait()
