"""Checks of what environments, experts and suites return (`hgpo.envs.base`); `hgpo.envs.wrappers` applies them.

Without these checks, errors would show late or never: without `won` the success of a run would be 0, and a string as
`terminated` would count as true. Every error of an environment names the task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from hgpo.envs.base import Info, StepResult, Task
from hgpo.utils.text import describe_error, safe_repr, safe_text

LARGEST_REWARD = 1e12
"""The sum of squares of larger rewards is not exact in a float, or overflows."""

_RESET_PROMISE = "reset(seed=…) has to return (observation, info)"
_STEP_PROMISE = "step(action) has to return (observation, reward, terminated, truncated, info)"
_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "task": ("text", lambda value: isinstance(value, str)),
    "score": ("a number from 0 to 1", lambda value: _is_number(value) and 0.0 <= value <= 1.0),
    "admissible_commands": ("a list of strings", lambda value: is_texts(value)),
    "tools": ("a list of objects with name, description and parameters", lambda value: is_tools(value)),
    "state_key": ("text", lambda value: isinstance(value, str)),
}


class EnvContractError(ValueError):
    """An environment, its expert or a state key raised an error or returned an invalid value; the message names it."""


def check_start(name: str, start: Any) -> tuple[str, Info]:
    """Check what `reset()` returned, `start`, and return its observation and info.

    Raises:
        EnvContractError: a value is invalid; the message has `name`, the task's id.
    """
    try:
        observation, info = start
    except (TypeError, ValueError):
        _refuse(name, 0, _RESET_PROMISE, _brief(start))
    _check_text_and_info(name, 0, _RESET_PROMISE, observation, info)
    return observation, info


def check_step(name: str, step: int, result: Any) -> StepResult:
    """Check what `step()` returned at step number `step`, and return its five values; see `check_start`."""
    try:
        observation, reward, terminated, truncated, info = result
    except (TypeError, ValueError):
        _refuse(name, step, _STEP_PROMISE, _brief(result))
    _check_text_and_info(name, step, _STEP_PROMISE, observation, info)
    if type(reward) is not float or not -LARGEST_REWARD <= reward <= LARGEST_REWARD:
        if not _is_number(reward):
            _refuse(name, step, f"{_STEP_PROMISE}, the reward a finite number", f"the reward {safe_repr(reward)}")
        if abs(float(reward)) > LARGEST_REWARD:
            promise = f"{_STEP_PROMISE}, the reward at most {LARGEST_REWARD:g} in absolute value"
            _refuse(name, step, promise, f"the reward {safe_repr(reward)}")
    for key, value in (("terminated", terminated), ("truncated", truncated)):
        if type(value) is not bool and not isinstance(value, np.bool_):
            _refuse(name, step, f"{_STEP_PROMISE}, {key} a bool", f"{key} = {safe_repr(value)}")
    return observation, reward, terminated, truncated, info


def exact_state(info: Info) -> str:
    """The exact state of an environment, from the info of a `LimitedEnv`.

    Raises:
        EnvContractError: the environment gives no exact state.
    """
    key = info.get("state_key")
    if key is None:
        raise EnvContractError(
            "rollout.state = 'simulator' needs info['state_key'] at every step, and the environment gave none; "
            "give the environment a method state_key(), or set rollout.state = 'observation'"
        )
    return str(key() if callable(key) else key)


def check_task(task: Any) -> Task:
    """A checked task of a suite.

    Raises:
        EnvContractError: id or kind is not text, or `make` is not callable.
    """
    for attribute in ("id", "kind"):
        value = getattr(task, attribute, None)
        if not isinstance(value, str):
            name = safe_repr(getattr(task, "id", task))
            raise EnvContractError(f"task {name}: its {attribute} has to be text, and is {safe_repr(value)}")
    if not callable(getattr(task, "make", None)):
        raise EnvContractError(f"task {getattr(task, 'id', '')!r}: `make` has to build its environment")
    checked: Task = task
    return checked


def wrapped_error(what: str, call: str, error: BaseException, *, below: str) -> EnvContractError:
    """An error of the user's code as an `EnvContractError` with the file and line.

    Args:
        what: the part that failed: a task, an expert, a suite, a state key.
        call: the call that failed.
        error: the error; an `EnvContractError` gets no file and line.
        below: the file of this package that made the call; its lines are not reported.
    """
    if isinstance(error, EnvContractError):
        return EnvContractError(f"{what}: {error}")
    return EnvContractError(f"{what}: {describe_error(call, error, below=below)}")


def is_texts(value: object) -> bool:
    """Whether a value is a sequence of strings."""
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(one, str) for one in value)


def is_tools(value: object) -> bool:
    """Whether a value is a list of tools: name, description and JSON schema of the parameters."""
    return isinstance(value, list | tuple) and all(
        isinstance(one, Mapping)
        and isinstance(one.get("name"), str)
        and isinstance(one.get("description", ""), str)
        and isinstance(parameters := one.get("parameters", {}), Mapping)
        and isinstance(properties := parameters.get("properties", {}), Mapping)
        and all(isinstance(name, str) for name in properties)
        for one in value
    )


def _check_text_and_info(name: str, step: int, promise: str, observation: object, info: Any) -> None:
    if not isinstance(observation, str):
        _refuse(name, step, f"{promise}, the observation a str", f"an observation of type {type(observation).__name__}")
    if type(info) is not dict and not isinstance(info, Mapping):  # the check for a Mapping is slow
        _refuse(name, step, f"{promise}, info a dict", f"an info of type {type(info).__name__}")
    if "won" not in info:
        keys = ", ".join(map(safe_text, info)) or "none"
        _refuse(name, step, f"{promise}, with the bool info['won']", f"an info without 'won'; its keys: {keys}")
    if type(info["won"]) is not bool and not isinstance(info["won"], np.bool_):
        _refuse(name, step, f"{promise}, with the bool info['won']", f"info['won'] = {safe_repr(info['won'])}")
    for key, (kind, holds) in _KINDS.items():
        if (value := info.get(key)) is not None and not holds(value):
            _refuse(name, step, f"{promise}, with info[{key!r}] {kind}", f"info[{key!r}] = {safe_repr(value)}")


def _is_number(value: Any) -> bool:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _brief(returned: object) -> str:
    """A short description of an invalid return value."""
    if isinstance(returned, tuple | list):
        return f"{len(returned)} values ({', '.join(type(value).__name__ for value in returned)})"
    return f"a value of type {type(returned).__name__}"


def _refuse(name: str, step: int, promise: str, returned: str) -> NoReturn:
    raise EnvContractError(f"task {name!r}: {promise}; at step {step} it returned {returned}")
