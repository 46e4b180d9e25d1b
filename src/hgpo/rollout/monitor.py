"""Progress, speed and problems of a batch of episodes while it is played.

A run whose responses are all cut, or in which no response is an action, would continue for hours without learning. The
first turn of every batch is therefore checked as soon as it is over, and the whole batch at its end.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hgpo.rollout.records import StepCounts, StepRecord
from hgpo.utils.progress import Reporter
from hgpo.utils.text import visible

_ENOUGH_RESPONSES = 8  # fewer first responses may all fail by chance
_PRINTED_CHARACTERS = 300


@dataclass(slots=True)
class RolloutMonitor:
    """Watches the batches of a run or an evaluation; warns once, and again only after a batch without a problem.

    Attributes:
        reporter: prints the warnings.
        max_response_tokens: length at which responses are cut.
        teaching: remedy in a warning that no response is a valid action, or that no action is admissible.
        clock: returns the time in seconds.
        warned: whether warnings are suppressed: the last batch had a problem, or this one was warned about.
    """

    reporter: Reporter
    max_response_tokens: int
    teaching: str
    clock: Callable[[], float] = time.monotonic
    warned: bool = False

    def begin(
        self, episodes: int, show: Callable[[int, int, str], object], max_concurrency: int | None = None
    ) -> MonitoredBatch:
        """Start to watch a batch of episodes.

        Args:
            episodes: number of episodes.
            show: called after every turn with the number of ended episodes, of all episodes, and a note.
            max_concurrency: most concurrent episodes; default: all.
        """
        return MonitoredBatch(self, show, min(max_concurrency or episodes, episodes), self.clock())


@dataclass(slots=True)
class MonitoredBatch:
    """One batch: `step` and `progress` are callbacks for `hgpo.rollout.runner`; call `finish` at the end."""

    _monitor: RolloutMonitor
    _show: Callable[[int, int, str], object]
    _concurrency: int
    _began: float
    _tokens: int = 0
    _steps: list[StepRecord] = field(default_factory=list)

    def step(self, record: StepRecord) -> None:
        """Count a step; the first turn ends after one step per concurrent episode."""
        self._steps.append(record)
        self._tokens += len(record.prompt_ids) + len(record.token_ids)
        if len(self._steps) == self._concurrency >= _ENOUGH_RESPONSES:
            self._warn()

    def progress(self, ended: int, total: int) -> None:
        """Show the progress of the batch."""
        seconds = self._monitor.clock() - self._began
        speed = f", {self._tokens / seconds:,.0f} tokens/s" if self._tokens and seconds > 0 else ""
        self._show(ended, total, f"{len(self._steps):,} steps{speed}")

    def finish(self) -> None:
        """Check the whole batch."""
        if self._steps:
            self._monitor.warned = self._warn()

    def _warn(self) -> bool:
        """Whether the steps so far have a problem, which is printed unless the last batch had one."""
        monitor = self._monitor
        problem, remedy = _problem(self._steps, monitor)
        if problem and not monitor.warned:
            monitor.warned = True
            response = visible(self._steps[0].response, _PRINTED_CHARACTERS) or "(empty)"
            monitor.reporter.say(f"{problem}: nothing can be learned from them.")
            monitor.reporter.say(f"  One of them: {response}")
            monitor.reporter.say(f"  What helps: {remedy}")
        return bool(problem)


def _problem(steps: Sequence[StepRecord], monitor: RolloutMonitor) -> tuple[str, str]:
    """The problem that all steps share, and its remedy; "" for both if there is none."""
    counts = StepCounts.of(steps)
    longer_responses = (
        f"a larger policy.max_response_tokens (now {monitor.max_response_tokens}), or an agent.template that asks for "
        "shorter responses"
    )
    if counts.valid == 0:
        [(fault, _)] = Counter(step.fault for step in steps).most_common(1)
        cut = f", and {counts.cut} of them were cut off" if counts.cut else ""
        remedy = longer_responses if counts.cut > counts.steps / 2 else monitor.teaching
        return f"None of {counts.steps} responses is a valid action ({fault}{cut})", remedy
    if counts.cut == counts.steps:
        return f"All {counts.steps} responses were cut off at {monitor.max_response_tokens} tokens", longer_responses
    if counts.listed == counts.steps and counts.admissible == 0:
        return f"None of {counts.steps} actions is one that the environment offered", monitor.teaching
    return "", ""
