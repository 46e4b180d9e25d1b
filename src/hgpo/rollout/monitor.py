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


@dataclass(frozen=True, slots=True)
class Advice:
    """What a warning recommends.

    Attributes:
        max_response_tokens: length at which responses are cut.
        teaching: the remedy if no response is an admissible action.
    """

    max_response_tokens: int
    teaching: str

    @property
    def longer_responses(self) -> str:
        """The remedy if responses are cut."""
        return (
            f"a larger policy.max_response_tokens (now {self.max_response_tokens}), or an agent.template that asks for "
            "shorter responses"
        )


@dataclass(slots=True)
class RolloutMonitor:
    """Watches the batches of a run or of an evaluation; it repeats no warning until a batch was free of problems.

    Attributes:
        reporter: prints the warnings.
        advice: what warnings recommend.
        clock: returns the time in seconds.
        warned: whether the last batch had a problem.
    """

    reporter: Reporter
    advice: Advice
    clock: Callable[[], float] = time.monotonic
    warned: bool = False

    def begin(
        self, episodes: int, show: Callable[[int, int, str], object], max_concurrency: int | None = None
    ) -> MonitoredBatch:
        """A batch that is about to be played.

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
        lines = batch_problems(self._steps, monitor.advice)
        if lines and not monitor.warned:
            monitor.warned = True
            for line in lines:
                monitor.reporter.say(line)
        return bool(lines)


def batch_problems(steps: Sequence[StepRecord], advice: Advice) -> list[str]:
    """The problem that all steps share, an example and a remedy; empty if there is none.

    Example: `["None of 8 responses is a valid action (empty): …", "  One of them: Sure! …", "  What helps: …"]`.
    """
    problem, remedy = _problem(steps, advice)
    if problem is None:
        return []
    response = visible(steps[0].response, _PRINTED_CHARACTERS) or "(empty)"
    return [f"{problem}: nothing can be learned from them.", f"  One of them: {response}", f"  What helps: {remedy}"]


def _problem(steps: Sequence[StepRecord], advice: Advice) -> tuple[str | None, str]:
    counts = StepCounts.of(steps)
    if counts.valid == 0:
        fault = Counter(step.fault for step in steps if step.fault).most_common(1)
        cut = f", and {counts.cut} of them were cut off" if counts.cut else ""
        why = f" ({fault[0][0]}{cut})" if fault else ""
        remedy = advice.longer_responses if counts.cut > counts.steps / 2 else advice.teaching
        return f"None of {counts.steps} responses is a valid action{why}", remedy
    if counts.cut == counts.steps:
        return (
            f"All {counts.steps} responses were cut off at {advice.max_response_tokens} tokens",
            advice.longer_responses,
        )
    if counts.listed == counts.steps and counts.admissible == 0:
        return f"None of {counts.steps} actions is one that the environment offered", advice.teaching
    return None, ""
