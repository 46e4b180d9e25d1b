"""Before a run begins: whether its memory will do, and which settings would fit where it will not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hgpo.config import Config, ConfigError
from hgpo.policies.device import resolve_device
from hgpo.runs.progress import Reporter
from hgpo.training.available_memory import available_memory, resident_memory
from hgpo.training.memory_estimate import MemoryEstimate
from hgpo.training.memory_plan import Outline, estimate_run, outline_of

_GIB = 2**30
_WORTH_A_LINE = _GIB
_LEAST_LOGITS = 2**22
_ADAPTER_RANK = 16
_PHASES = {"update": "an update", "sampling": "sampling", "warm start": "the warm start"}

Changes = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Rung:
    """A setting and the values to try, the mildest first. Example: `_Rung("training.max_logits", (2**25, 2**24))`."""

    name: str
    values: tuple[Any, ...]


def check_memory(config: Config, reporter: Reporter) -> tuple[Outline, MemoryEstimate]:
    """Say what a run will take at most where that is over 1 GiB, and refuse it where so much is not there.

    Returns:
        The model's sizes, and what was estimated from them.

    Raises:
        ConfigError: more is needed than there is; names settings that would fit.
        ValueError, OSError: there is no such model.
    """
    device = resolve_device(config.policy.device)
    outline = outline_of(config)
    estimate = estimate_run(config, outline, device)
    there = available_memory(device)
    if there is not None and device.type == "cpu":
        there += resident_memory()  # the estimate has it, too
    if there is not None and estimate.total > there:
        raise ConfigError(_refusal(config, lambda changed: estimate_run(changed, outline, device), there))
    if estimate.total > _WORTH_A_LINE:
        are_there = "" if there is None else f", {_gib(there)} are there"
        reporter.say(f"Memory: {described(estimate)}{are_there}")
    return outline, estimate


def described(estimate: MemoryEstimate) -> str:
    """The largest phase and its parts, e.g. "about 3.2 GiB in an update (weights 0.5, gradients 0.5, …)"."""
    parts = sorted(estimate.phases[estimate.largest].items(), key=lambda part: -part[1])
    listed = ", ".join(f"{name} {size / _GIB:.1f}" for name, size in parts if size >= 0.05 * _GIB)
    return f"about {_gib(estimate.total)} in {_PHASES[estimate.largest]} ({listed})"


def _refusal(config: Config, estimate: Callable[[Config], MemoryEstimate], there: int) -> str:
    needed = f"training takes {described(estimate(config))}, and {_gib(there)} are there"
    changes = fitting_changes(config, lambda other: estimate(other).total <= there)
    if changes is None:
        least = estimate(changed(config, {rung.name: rung.values[-1] for rung in _ladder(config) if rung.values}))
        return (
            f"{needed}. No settings were found that fit, {_gib(least.total)} is the least: take a smaller model, or a "
            "machine with more memory"
        )
    taken = estimate(changed(config, changes)).total
    return f"{needed}: {' '.join(map(_written, changes.items()))} would take {_gib(taken)}"


def fitting_changes(config: Config, fits: Callable[[Config], bool]) -> Changes | None:
    """Few and mild changes with which a run fits, by name; None where none do.

    Settings that change nothing but speed are tried first, one upon the other; then each is taken back as far as it may
    be.
    """
    changes: Changes = {}
    rungs = list(_ladder(config))
    for rung in rungs:
        for value in rung.values:
            changes[rung.name] = value
            if fits(changed(config, changes)):
                return _mildest(config, changes, rungs, fits)
    return None


def _mildest(config: Config, changes: Changes, rungs: list[_Rung], fits: Callable[[Config], bool]) -> Changes:
    """Without those that are not needed, and with the first value of each of the others that fits."""
    for rung in reversed(rungs):
        without = {name: value for name, value in changes.items() if name != rung.name}
        if rung.name not in changes or fits(changed(config, without)):
            changes = without
            continue
        value = next(value for value in rung.values if fits(changed(config, {**changes, rung.name: value})))
        changes = {**changes, rung.name: value}
    return changes


def _ladder(config: Config) -> Iterator[_Rung]:
    """What may be changed: first what bounds a batch, last what is trained."""
    training, policy, warm_start = config.training, config.policy, config.warm_start
    longest = policy.max_prompt_tokens + policy.max_response_tokens
    if policy.backend == "transformers":
        tokens = policy.options.get("max_batch_tokens", 2**18)
        yield _Rung("policy.options.max_batch_tokens", _halves(tokens, longest))
    yield _Rung("training.micro_batch_tokens", _halves(training.micro_batch_tokens, longest))
    if warm_start.enabled:
        yield _Rung("warm_start.micro_batch_tokens", _halves(warm_start.micro_batch_tokens, longest))
    yield _Rung("training.max_logits", _halves(training.max_logits, _LEAST_LOGITS))
    if not training.gradient_checkpointing:
        yield _Rung("training.gradient_checkpointing", (True,))
    if training.kl_coefficient:
        yield _Rung("training.kl_coefficient", (0,))
    if not policy.lora.rank:
        yield _Rung("policy.lora.rank", (_ADAPTER_RANK,))


def _halves(value: int, least: int) -> tuple[int, ...]:
    """Half of `value`, half of that, … down to `least`."""
    found: list[int] = []
    while value > least:
        value = max(least, value // 2)
        found.append(value)
    return tuple(found)


def changed(config: Config, changes: Changes) -> Config:
    """The settings with others in their place, by dotted name."""
    for name, value in changes.items():
        config = _with(config, name, value)
    return config


def _with(section: Any, name: str, value: Any) -> Any:
    head, _, rest = name.partition(".")
    if isinstance(section, dict):
        return {**section, head: value}
    return section.model_copy(update={head: _with(getattr(section, head), rest, value) if rest else value})


def _written(change: tuple[str, Any]) -> str:
    name, value = change
    return f"{name}={str(value).lower()}"


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"
