"""The process that environments live in: one line of JSON per request on its input, one per answer on its output.

    {"number": 7, "slot": 3, "start": ["train", 17, 1234]}    begin task 17 of split train with seed 1234 in slot 3
    {"number": 8, "slot": 3, "step": "go to desk 1"}          one step there
    {"number": 9, "slot": 3, "drop": true}                    forget the slot

Answers are `{"number": 7, "observation": …, "reward": …, "terminated": …, "truncated": …, "info": {…}}` in the order
of the requests, or `{"number": 7, "error": "…"}`; an error in one environment leaves the others alone. It is a plain
child process, started as `python -m hgpo.integrations.verl.env_worker NAME OPTIONS_JSON MAX_STEPS`, and needs
neither Ray nor torch: text goes in and text comes out, and nothing is unpickled.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from hgpo.envs.base import Env, Info
from hgpo.envs.env_checker import EnvContractError, safe_text
from hgpo.envs.registry import make
from hgpo.envs.wrappers import LimitedSuite

# What agents, memory and records read of an environment's info, and as what; the rest stays where it is.
_INFO: dict[str, Callable[[Any], Any]] = {
    "task": str,
    "admissible_commands": list,
    "won": bool,
    "score": float,
}
_LOOKS_FOR_PARENT_SECONDS = 1.0


class EnvironmentHost:
    """Environments by slot, and the answer to one request."""

    def __init__(self, suite: LimitedSuite) -> None:
        self._suite = suite
        self._environments: dict[int, Env] = {}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out one request. Whatever an environment raises becomes an `error` in the answer."""
        number, slot = request["number"], request["slot"]
        try:
            if "drop" in request:
                self._environments.pop(slot, None)
                return {"number": number}
            if "start" in request:
                return {"number": number, **self._start(slot, *request["start"])}
            return {"number": number, **self._step(slot, request["step"])}
        except Exception as error:  # a user's environment may raise anything; the agent worker reports it
            self._environments.pop(slot, None)
            said = str(error) if isinstance(error, EnvContractError) else f"{type(error).__name__}: {safe_text(error)}"
            return {"number": number, "error": said}

    def _start(self, slot: int, split: str, index: int, seed: int) -> dict[str, Any]:
        environment = self._suite.tasks(split)[index].make()
        observation, info = environment.reset(seed=seed)
        self._environments[slot] = environment
        return _answer(observation, 0.0, False, False, info)

    def _step(self, slot: int, command: str) -> dict[str, Any]:
        answer = _answer(*self._environments[slot].step(command))
        if answer["terminated"] or answer["truncated"]:
            del self._environments[slot]
        return answer


def _answer(observation: str, reward: Any, terminated: object, truncated: object, info: Info) -> dict[str, Any]:
    return {
        "observation": observation,
        "reward": float(reward),
        "terminated": bool(terminated),
        "truncated": bool(truncated),
        "info": {name: plain(info[name]) for name, plain in _INFO.items() if info.get(name) is not None},
    }


def end_with_parent() -> None:
    """End this process soon after its parent, even while an environment hangs and nobody reads the input.

    Polled, because Linux's signal at a parent's death comes with the death of the thread that started the process.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOKS_FOR_PARENT_SECONDS)
        os._exit(1)  # nothing else stops a thread that hangs

    threading.Thread(target=watch, name="watch-parent", daemon=True).start()


def serve(requests: TextIO, answers: TextIO, host: EnvironmentHost) -> None:
    """Answer until the input ends."""
    for line in requests:
        answers.write(json.dumps(host.answer(json.loads(line))) + "\n")
        answers.flush()


def main(arguments: list[str]) -> None:
    """Build the suite, say that it is ready, serve."""
    end_with_parent()
    name, options, max_steps = arguments
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what an environment prints must not land among the answers
    suite = LimitedSuite(make(name, **json.loads(options)), int(max_steps))
    answers.write(json.dumps({"ready": True}) + "\n")
    answers.flush()
    serve(sys.stdin, answers, EnvironmentHost(suite))


if __name__ == "__main__":
    main(sys.argv[1:])
