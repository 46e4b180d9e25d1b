"""The process that runs environments: one line of JSON per request on its input, one per answer on its output.

    {"slot": 3, "start": ["train", 17, 1234]}    start task 17 of split train with seed 1234 in slot 3
    {"slot": 3, "step": "go to desk 1"}          one step of that environment
    {"slot": 3, "drop": true}                    delete it

Answers are `{"observation": …, "reward": …, "terminated": …, "truncated": …, "info": {…}}` or `{"error": "…"}`, in the
order of the requests; an error in one environment does not affect the others. The first line is `{"ready": true}`. The
process is started as `python -m hgpo.integrations.verl.env_worker SETTINGS_JSON`. It needs neither Ray nor torch, and
unpickles nothing.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, TextIO

from hgpo.envs.base import Env, Info
from hgpo.envs.env_checker import EnvContractError, exact_state
from hgpo.envs.registry import make
from hgpo.envs.wrappers import LimitedSuite
from hgpo.utils.text import safe_text

# The keys of an environment's info that agents, memory and records read, and their types; others are not sent.
_INFO: dict[str, Callable[[Any], Any]] = {
    "task": str,
    "admissible_commands": list,
    "won": bool,
    "score": float,
    "tools": list,
}
_PARENT_CHECK_SECONDS = 1.0
READY = {"ready": True}
"""The first answer of a worker."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The environment of a worker process.

    Attributes:
        name: of the environment.
        options: of the environment.
        max_steps: after which an episode is truncated.
        step_timeout: seconds that one step or start may take.
        sends_state: whether answers have the exact state, for `rollout.state = "simulator"`.
        splits: whose tasks are made before the worker is ready, so that this does not count against `step_timeout`.
    """

    name: str
    options: dict[str, Any]
    max_steps: int
    step_timeout: float
    sends_state: bool = False
    splits: tuple[str, ...] = ()

    def command(self) -> list[str]:
        """The command line of the process."""
        return [sys.executable, "-m", "hgpo.integrations.verl.env_worker", json.dumps(asdict(self))]


class EnvironmentHost:
    """Answers requests to the environments, one in each numbered slot.

    With `sends_state`, an answer's `info` has the exact state of the environment. The tasks of a split are made once:
    those of `splits` here, others when one is first started.
    """

    def __init__(self, suite: LimitedSuite, *, sends_state: bool = False, splits: Sequence[str] = ()) -> None:
        self._sends_state = sends_state
        self._tasks = cache(suite.tasks)
        for split in splits:
            self._tasks(split)
        self._environments: dict[int, Env] = {}

    def answer(self, request: Mapping[str, Any]) -> str:
        """Carry out one request; returns JSON. An exception of an environment becomes an `error` in the answer, and so
        does an `info` that JSON cannot hold.
        """
        slot = request["slot"]
        try:
            if "drop" in request:
                self._environments.pop(slot, None)
                return "{}"
            if "start" in request:
                return json.dumps(self._start(slot, *request["start"]))
            return json.dumps(self._step(slot, request["step"]))
        except Exception as error:  # of any type, from a user's environment; the agent worker reports it
            self._environments.pop(slot, None)
            reason = (
                str(error) if isinstance(error, EnvContractError) else f"{type(error).__name__}: {safe_text(error)}"
            )
            return json.dumps({"error": reason})

    def _start(self, slot: int, split: str, index: int, seed: int) -> dict[str, Any]:
        environment = self._tasks(split)[index].make()
        observation, info = environment.reset(seed=seed)
        self._environments[slot] = environment
        return self._answer(observation, 0.0, False, False, info)

    def _step(self, slot: int, command: str) -> dict[str, Any]:
        answer = self._answer(*self._environments[slot].step(command))
        if answer["terminated"] or answer["truncated"]:
            del self._environments[slot]
        return answer

    def _answer(
        self, observation: str, reward: Any, terminated: object, truncated: object, info: Info
    ) -> dict[str, Any]:
        sent = {name: plain(info[name]) for name, plain in _INFO.items() if info.get(name) is not None}
        return {
            "observation": observation,
            "reward": float(reward),
            "terminated": bool(terminated),
            "truncated": bool(truncated),
            "info": sent | ({"state_key": exact_state(info)} if self._sends_state else {}),
        }


def end_with_parent() -> None:
    """End this process soon after its parent, even while an environment hangs.

    Polls, since Linux's parent-death signal is sent when the thread that started the process ends.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_CHECK_SECONDS)
        os._exit(1)  # a hanging thread ends no other way

    threading.Thread(target=watch, name="watch-parent", daemon=True).start()


def serve(requests: TextIO, answers: TextIO, host: EnvironmentHost) -> None:
    """Answer until the input ends."""
    for line in requests:
        answers.write(host.answer(json.loads(line)) + "\n")
        answers.flush()


def main(arguments: list[str]) -> None:
    """Build the suite, report that it is ready, serve."""
    end_with_parent()
    settings = WorkerSettings(**json.loads(arguments[0]))
    # Programs that an environment starts inherit neither: they would keep the connection open after this process.
    requests = os.fdopen(os.dup(sys.stdin.fileno()), encoding="utf-8")
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    with open(os.devnull, encoding="utf-8") as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keeps an environment's prints out of the answers
    suite = LimitedSuite(make(settings.name, **settings.options), settings.max_steps)
    host = EnvironmentHost(suite, sends_state=settings.sends_state, splits=settings.splits)
    answers.write(json.dumps(READY) + "\n")
    answers.flush()
    serve(requests, answers, host)


if __name__ == "__main__":
    main(sys.argv[1:])
