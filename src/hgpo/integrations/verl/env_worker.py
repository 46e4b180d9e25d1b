"""The process that runs environments of many episodes, each in a slot; `env_pool` calls the functions here in it.

It needs neither Ray nor torch. It ends, and with it the processes that environments forked, soon after its parent and
when one request takes too long, even while an environment hangs.
"""

from __future__ import annotations

import faulthandler
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hgpo.envs.base import Env, Info
from hgpo.envs.env_checker import EnvContractError, safe_text
from hgpo.envs.registry import make
from hgpo.envs.wrappers import LimitedSuite

# The keys of an environment's info that agents, memory and records read, and their types; others are not sent.
_INFO: dict[str, Callable[[Any], Any]] = {
    "task": str,
    "admissible_commands": lambda commands: list(map(str, commands)),
    "won": bool,
    "score": float,
}
_CHECK_SECONDS = 0.2


class _Host:
    """The state of this process."""

    suite: LimitedSuite
    step_timeout = 600.0  # a suite may read or generate thousands of tasks first
    due = math.inf  # the time at which the request under way has taken too long


_environments: dict[int, Env] = {}  # by slot


def prepare(name: str, options: dict[str, Any], max_steps: int, step_timeout: float) -> str:
    """Build the suite; the first call in a process. Returns the reason of a failure, "" for none."""
    os.setsid()
    threading.Thread(target=_watch, args=(os.getppid(),), name="watch", daemon=True).start()
    try:
        with _limited():
            _Host.suite = LimitedSuite(make(name, **options), max_steps)
    except (Exception, SystemExit) as error:  # of any type, from a user's environment
        return f"environment {name!r}, options {options}: {_reason(error)}"
    _Host.step_timeout = step_timeout
    return ""


def start(slot: int, split: str, index: int, seed: int) -> dict[str, Any]:
    """Start task `index` of `split` in the slot; see `step`."""

    def first() -> dict[str, Any]:
        environment = _environments[slot] = _Host.suite.tasks(split)[index].make()
        observation, info = environment.reset(seed=seed)
        return _answer(observation, 0.0, False, False, info)

    return _tried(slot, first)


def step(slot: int, command: str) -> dict[str, Any]:
    """One step: observation, reward, terminated, truncated, info; or the `error` that the environment raised.

    The environment is deleted when its episode has ended or it raised an error.
    """
    return _tried(slot, lambda: _answer(*_environments[slot].step(command)))


def drop(slot: int) -> dict[str, Any]:
    """Delete the environment in the slot."""
    _environments.pop(slot, None)
    return {}


def _tried(slot: int, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        with _limited():
            answer = work()
    except (Exception, SystemExit) as error:  # of any type, from a user's environment; the agent worker reports it
        answer = {"error": _reason(error)}
    if answer.get("terminated") or answer.get("truncated") or "error" in answer:
        drop(slot)
    return answer


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, EnvContractError) else f"{type(error).__name__}: {safe_text(error)}"


def _answer(observation: str, reward: Any, terminated: object, truncated: object, info: Info) -> dict[str, Any]:
    return {
        "observation": str(observation),
        "reward": float(reward),
        "terminated": bool(terminated),
        "truncated": bool(truncated),
        "info": {name: plain(info[name]) for name, plain in _INFO.items() if info.get(name) is not None},
    }


@contextmanager
def _limited() -> Iterator[None]:
    _Host.due = time.monotonic() + _Host.step_timeout
    try:
        yield
    finally:
        _Host.due = math.inf


def _watch(parent: int) -> None:
    """Polls, since Linux's parent-death signal is sent when the thread that started the process ends."""
    while os.getppid() == parent and time.monotonic() < _Host.due:
        time.sleep(_CHECK_SECONDS)
    if os.getppid() == parent:
        faulthandler.dump_traceback()  # where it hangs
    os.killpg(0, signal.SIGKILL)
