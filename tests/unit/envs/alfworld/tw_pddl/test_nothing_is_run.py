"""Nothing in a game file is ever evaluated, by the interpreter's own account of what it runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from unit.envs.alfworld.hostile import read_or_refuse
from unit.envs.alfworld.kitchen import game_file, grammar, kitchen, problem_text

DOMAIN = json.loads(game_file())["pddl_domain"]
TRAPS = (
    "__import__('os').system('touch trap')",
    "{__import__('os').system('touch trap')}",
    "{0.__class__.__init__.__globals__}",
    "#{exec(compile('1', '', 'exec'))}#",
    "[{eval('open(\\\\'trap\\\\', \\\\'w\\\\')')}]",
    "%(name)s {names[0]!r} ${HOME} `touch trap` $(touch trap)",
)
_watched: list[str] | None = None


def _watch(event: str, arguments: object) -> None:
    if _watched is not None:
        _watched.append(event)


@contextmanager
def audited() -> Iterator[list[str]]:
    """The interpreter's own list of what was compiled, run, imported or opened meanwhile."""
    global _watched
    events: list[str] = []
    _watched = events
    try:
        yield events
    finally:
        _watched = None


@pytest.fixture(scope="module", autouse=True)
def _auditing() -> None:
    sys.addaudithook(_watch)  # it stays until the process ends, and does nothing outside `audited`


def test_the_audit_notices_what_is_run() -> None:
    with audited() as events:
        exec("1 + 1")  # noqa: S102
    assert {"compile", "exec"} <= set(events)


@pytest.mark.parametrize("trap", TRAPS)
def test_nothing_in_a_file_is_run(trap: str) -> None:
    escaped = json.dumps(trap)[1:-1]
    word = "".join(character for character in trap if not character.isspace() and character not in "();")
    things = problem_text(kitchen()).replace("Apple_bar_1", f"{word}_bar_1").replace("loc_bar_1", word)
    files = [
        game_file(grammar=grammar(escaped)),
        game_file(things),
        game_file(walkthrough=[trap]),
        game_file(
            grammar=grammar("x") + f'"look": [{{"rhs": "{escaped}"}}]',
            pddl_domain=DOMAIN + trap,
        ),
    ]
    for content in files:
        read_or_refuse(content)  # whatever is imported on first use is imported now
    with audited() as events:
        games = [read_or_refuse(content) for content in files]
    assert games[0] is not None
    assert games[0].task == trap
    assert set(events) <= {"builtins.id"}  # how the engine finds what players of one game share
