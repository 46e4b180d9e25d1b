"""Sessions of household games and shops, and what the experts do in them, are those of commit 1f19f44.

Regenerating the data needs a decision record in docs/decisions: see `generate.py`. Everything is compared exactly.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from golden import sessions
from golden.internals import alfworld_expert, webshop_expert
from golden.playing import play
from golden.sessions import Session


@pytest.fixture(scope="module")
def alfworld(tmp_path_factory: pytest.TempPathFactory) -> list[Session]:
    return list(sessions.alfworld_sessions(tmp_path_factory.mktemp("games")))


@pytest.fixture(scope="module")
def webshop() -> list[Session]:
    return list(sessions.webshop_sessions())


@pytest.mark.slow
def test_generated_games(tmp_path: Path) -> None:
    assert sessions.generated_games(tmp_path) == recorded_digests()["games"]


@pytest.mark.slow
def test_generated_goals() -> None:
    assert sessions.generated_goals() == recorded_digests()["goals"]


def test_alfworld(alfworld: list[Session]) -> None:
    assert len(alfworld) == 30
    assert_replayed(alfworld, sessions.ALFWORLD_SESSIONS)


def test_webshop(webshop: list[Session]) -> None:
    assert len(webshop) == 20
    assert_replayed(webshop, sessions.WEBSHOP_SESSIONS)


def test_alfworld_expert(alfworld: list[Session]) -> None:
    assert_expert_repeats(alfworld, sessions.ALFWORLD_SESSIONS, alfworld_expert())


def test_webshop_expert(webshop: list[Session]) -> None:
    assert_expert_repeats(webshop, sessions.WEBSHOP_SESSIONS, webshop_expert())


@pytest.mark.slow
@pytest.mark.skipif(sessions.real_games() is None, reason=f"the real games are not here: {sessions.REAL_GAMES}")
def test_real_alfworld(tmp_path: Path) -> None:
    played = list(sessions.real_alfworld_sessions(tmp_path))
    assert len(played) == 6
    assert_replayed(played, sessions.REAL_ALFWORLD_SESSIONS)


def recorded_digests() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(sessions.GENERATED.read_text())
    return found


def assert_replayed(played: list[Session], file: Path) -> None:
    recorded = sessions.read(file)
    assert [session.name for session in played] == list(recorded)
    differences = [sessions.replay(session, recorded[session.name]) for session in played]
    found = [difference for difference in differences if difference]
    assert not found, "\n".join(found)


def assert_expert_repeats(played: list[Session], file: Path, expert: Any) -> None:
    recorded = sessions.read(file)
    by_expert = [(seed, session) for seed, session in enumerate(played) if session.player == "expert"]
    assert by_expert
    for seed, session in by_expert:
        actions = [action for action, _ in play(session, expert, seed)]
        assert actions == [action for action, _ in recorded[session.name]], session.name
