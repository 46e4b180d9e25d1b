"""What is said of a batch while it is played, and what where nothing can be learned from it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from hgpo.assemble import build_monitor
from hgpo.config import Config, load_config
from hgpo.utils.progress import Reporter
from step_records import step_record

TINY = ("warm_start.enabled=true", "environment.max_steps=15", "policy.max_response_tokens=12")
LANGUAGE_MODEL = ("policy.model=some/model", "policy.max_response_tokens=512")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Screen:
    """A watch, what it said, and the notes that it showed."""

    def __init__(self, *overrides: str) -> None:
        self._file = io.StringIO()
        self.clock = Clock()
        config: Config = load_config(None, overrides)
        self.watch = watch = build_monitor(
            config.policy,
            config.warm_start,
            config.agent,
            Reporter(Console(file=self._file, width=400)),
        )
        watch.clock = self.clock
        self.notes: list[str] = []

    @property
    def lines(self) -> list[str]:
        return self._file.getvalue().splitlines()

    def play(self, count: int, seconds: float = 0.1, **changes: Any) -> None:
        """One turn of so many episodes, each step with 30 tokens."""
        tokens = {"prompt_ids": np.zeros(20, np.int32), "token_ids": np.zeros(10, np.int32)}
        playing = self.watch.begin(count, lambda ended, total, note: self.notes.append(note))
        self.clock.now += seconds
        for number in range(count):
            playing.step(step_record(trajectory=str(number), **{**tokens, **changes}))
        playing.progress(0, count)
        playing.finish()


def test_steps_and_speed_are_shown_while_it_is_played() -> None:
    screen = Screen(*TINY)
    screen.play(8, seconds=1.0)
    screen.play(8, seconds=0.0)
    assert screen.notes == ["8 steps, 240 tokens/s", "8 steps"]
    screen.play(8, admissible=None)  # the environment lists no commands
    assert screen.lines == []  # nothing is wrong


@pytest.mark.parametrize(
    ("overrides", "changes", "what", "helps"),
    [
        (
            LANGUAGE_MODEL,
            {"valid": False, "fault": "no <action></action>", "response": "Sure!"},
            "None of 4 responses is a valid action (no <action></action>)",
            "imitating an expert first (warm_start.enabled=true), as the recipe smollm2 does",
        ),
        (
            LANGUAGE_MODEL,
            {"valid": False, "fault": "no <action></action>", "finished": False},
            "None of 4 responses is a valid action (no <action></action>, and 4 of them were cut off)",
            "a larger policy.max_response_tokens (now 512)",
        ),
        (TINY, {"finished": False}, "All 4 responses were cut off at 12 tokens", "a larger policy.max_response_tokens"),
        (
            TINY,
            {"valid": False, "fault": "empty", "response": ""},
            "is a valid action (empty)",
            "the expert for longer",
        ),
        (TINY, {"admissible": False}, "None of 4 actions is one that the environment offered", "more warm_start.max_"),
    ],
)
def test_what_is_wrong_with_all_is_said_with_one_of_them_and_what_helps(
    overrides: tuple[str, ...], changes: dict[str, Any], what: str, helps: str
) -> None:
    screen = Screen(*overrides)
    screen.play(4, **changes)
    said, shown, remedy = screen.lines
    assert what in said
    assert shown == f"  One of them: {changes.get('response', 'there') or '(empty)'}"
    assert remedy.startswith("  What helps: ")
    assert helps in remedy


def test_the_response_cannot_act_on_the_terminal() -> None:
    screen = Screen(*LANGUAGE_MODEL)
    screen.play(2, valid=False, fault="empty", response="a\x1b[31mb\u202e" + "x" * 1000)
    assert screen.lines[1].startswith("  One of them: a�[31mb�xxx")
    assert len(screen.lines[1]) < 400


def test_it_is_said_once_and_again_where_it_had_been_mended() -> None:
    screen = Screen(*LANGUAGE_MODEL)
    for bad in (True, True, False, True):
        screen.play(2, finished=not bad)
    assert len([line for line in screen.lines if line.startswith("All 2 responses")]) == 2


@pytest.mark.parametrize(("episodes", "said"), [(8, True), (7, False)])
def test_it_is_said_after_the_first_turn_where_that_is_telling(episodes: int, said: bool) -> None:
    screen = Screen(*LANGUAGE_MODEL)
    playing = screen.watch.begin(episodes, lambda *shown: None)
    for _ in range(episodes):
        assert screen.lines == []
        playing.step(step_record(finished=False))
    assert bool(screen.lines) == said
    playing.finish()
    assert len(screen.lines) == 3  # not once more at the end


def test_the_first_turn_has_a_step_of_each_concurrent_episode() -> None:
    screen = Screen(*LANGUAGE_MODEL)
    playing = screen.watch.begin(20, lambda *shown: None, 8)
    for _ in range(8):
        assert screen.lines == []
        playing.step(step_record(finished=False))
    assert screen.lines


def test_longer_responses_help_where_more_than_half_are_cut() -> None:
    screen = Screen(*LANGUAGE_MODEL)
    playing = screen.watch.begin(2, lambda *shown: None)
    for finished in (True, False):
        playing.step(step_record(valid=False, fault="empty", finished=finished))
    playing.finish()
    assert "and 1 of them were cut off" in screen.lines[0]
    assert "max_response_tokens" not in screen.lines[2]


def test_one_good_response_is_enough() -> None:
    screen = Screen(*LANGUAGE_MODEL)
    playing = screen.watch.begin(2, lambda *shown: None)
    playing.step(step_record(valid=False, fault="empty", finished=False, admissible=False))
    playing.step(step_record())
    playing.finish()
    assert screen.lines == []
