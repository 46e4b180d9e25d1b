"""What is said of a batch of episodes while it is played: how far it is, how fast, and whether anything can be learned.

A run whose responses are all cut off, or in which no response is an action, goes on for hours and learns nothing. So
the first turn of every batch is looked at as soon as it is over, and the whole batch at its end.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from hgpo.config import Config
from hgpo.rollout.records import StepRecord
from hgpo.utils.progress import Reporter, duration
from hgpo.utils.text import visible

_WORTH_A_LINE = 30.0
"""Seconds: of what is over sooner, nobody wants to know how long it takes."""
_ENOUGH = 8
"""Responses: that fewer go wrong at first is nothing unusual."""
_SHOWN_CHARACTERS = 300


class PlayWatch:
    """One for a run, or for an evaluation: what was said once is not said again while it lasts."""

    def __init__(self, reporter: Reporter, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        self.reporter, self.config, self.clock = reporter, config, clock
        self.said_speed = False
        self.in_trouble = False

    def begin(self, episodes: int, show: Callable[[int, int, str], object], together: int | None = None) -> Playing:
        """A batch that is about to be played.

        Args:
            episodes: how many it has.
            show: told after every turn how many have ended, of how many, and a note.
            together: how many are under way at a time; default: all.
        """
        return Playing(self, episodes, show, min(together or episodes, episodes))


class Playing:
    """One batch: `step` and `progress` are for `hgpo.rollout.runner`, `finish` for the end."""

    def __init__(self, watch: PlayWatch, episodes: int, show: Callable[[int, int, str], object], together: int) -> None:
        self._watch, self._episodes, self._show, self._together = watch, episodes, show, together
        self._began = watch.clock()
        self._tokens = 0
        self._seen = Seen()

    def step(self, record: StepRecord) -> None:
        """Count a step; the first turn is over with as many steps as there are episodes under way."""
        self._seen.add(record)
        self._tokens += len(record.prompt_ids) + len(record.token_ids)
        if self._seen.steps == self._together:
            self._say_speed()
            if self._seen.steps >= _ENOUGH:
                self._say_trouble()

    def progress(self, ended: int, total: int) -> None:
        """Show how far the batch is."""
        self._show(ended, total, f"{self._seen.steps:,} steps{self._speed()}")

    def finish(self) -> None:
        """Look at the whole batch."""
        if self._seen.steps:
            self._say_trouble()
            self._watch.in_trouble = bool(trouble(self._seen, self._watch.config))

    def _speed(self) -> str:
        seconds = self._watch.clock() - self._began
        return f", {self._tokens / seconds:,.0f} tokens/s" if self._tokens and seconds > 0 else ""

    def _say_speed(self) -> None:
        """Once: from the first turn follows how long the batch can take at most."""
        watch, seconds = self._watch, self._watch.clock() - self._began
        turns = watch.config.environment.max_steps * -(-self._episodes // self._together)
        if watch.said_speed or seconds * turns < _WORTH_A_LINE:
            return
        watch.said_speed = True
        watch.reporter.say(
            f"  the first turn of {self._together} episodes took {duration(seconds)}{self._speed()}: "
            f"at most {duration(seconds * turns)} for all {turns} turns"
        )

    def _say_trouble(self) -> None:
        watch = self._watch
        lines = trouble(self._seen, watch.config)
        if lines and not watch.in_trouble:
            watch.in_trouble = True
            for line in lines:
                watch.reporter.say(line)


class Seen:
    """What the steps of a batch have in common."""

    def __init__(self) -> None:
        self.steps = self.valid = self.cut = self.listed = self.admissible = 0
        self.faults: Counter[str] = Counter()
        self.example: StepRecord | None = None

    def add(self, record: StepRecord) -> None:
        """One more step; the first is the one that is shown."""
        self.example = self.example or record
        self.steps += 1
        self.valid += record.valid
        self.cut += not record.finished
        self.listed += record.admissible is not None
        self.admissible += bool(record.admissible)
        if record.fault:
            self.faults[record.fault] += 1


def trouble(seen: Seen, config: Config) -> list[str]:
    """What is wrong with all steps alike, one of them, and what helps; nothing where nothing is.

    Example: `["None of 8 responses is a valid action (empty): …", "  One of them: Sure! …", "  What helps: …"]`.
    """
    what, helps = _found(seen, config)
    if what is None or seen.example is None:
        return []
    response = visible(seen.example.response, _SHOWN_CHARACTERS) or "(empty)"
    return [f"{what}: nothing can be learned from them.", f"  One of them: {response}", f"  What helps: {helps}"]


def _found(seen: Seen, config: Config) -> tuple[str | None, str]:
    longer = (
        f"a larger policy.max_response_tokens (now {config.policy.max_response_tokens}), or an agent.template that "
        "asks for shorter responses"
    )
    if seen.valid == 0:
        fault = seen.faults.most_common(1)
        cut = f", and {seen.cut} of them were cut off" if seen.cut else ""
        why = f" ({fault[0][0]}{cut})" if fault else ""
        most_cut = seen.cut > seen.steps / 2
        return f"None of {seen.steps} responses is a valid action{why}", longer if most_cut else _taught(config)
    if seen.cut == seen.steps:
        return f"All {seen.steps} responses were cut off at {config.policy.max_response_tokens} tokens", longer
    if seen.listed == seen.steps and seen.admissible == 0:
        return f"None of {seen.steps} actions is one that the environment offered", _taught(config)
    return None, ""


def _taught(config: Config) -> str:
    start = config.warm_start
    if config.policy.model == "tiny":
        return (
            f"imitating the expert for longer: more warm_start.max_updates (now {start.max_updates}), or demonstrations"
        )
    imitation = "a longer warm start" if start.enabled else "imitating an expert first (warm_start.enabled=true)"
    return (
        f"a model that follows instructions; {imitation}, as the recipe smollm2 does; or another agent.template than "
        f"{config.agent.template}"
    )
