"""Which commands a parity trace types and how an answer becomes a digest: shared by the recorder and the test.

The recorder (reference engine) and the test (native engine) draw commands from the same seeded generator out of the
admissible commands they are shown, so a trace needs no stored commands: two engines that agree so far are
asked the same next. Standard library only, because the reference lives in an environment of its own.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Generator, Iterator, Sequence

DIGEST_LENGTH = 4
RANDOM_STEPS = 40
TRACE_KINDS = ("walkthrough", "random-0", "guided-1")

INVALID = (
    "",
    "   ",
    "LOOK",
    "Look",
    "look around",
    "go to moon 1",
    "go to",
    "go to cabinet",
    "take",
    "take everything",
    "put apple 1 in/on countertop 1",
    "use",
    "examine",
    "examine agent1",
    "open door",
    "heat",
    "go  to countertop 1",
    "help me",
    "quit",
    "{r.name}",
    "#look.feedback#",
    "naïve ☃",
)

# Rare rules first: with these weights slicing, heating and the like come up in most kitchens.
VERB_WEIGHTS = {
    "clean": 5,
    "close": 3,
    "cool": 5,
    "examine": 2,
    "go": 8,
    "heat": 5,
    "help": 0.3,
    "inventory": 0.7,
    "look": 2,
    "move": 3,
    "open": 5,
    "slice": 8,
    "take": 6,
    "use": 2,
}
REWARDING = ("knife", "sinkbasin", "microwave", "fridge")

Step = tuple[str, Sequence[str], bool, bool]
"""Observation, admissible commands, won, done."""


def digest(step: Step) -> str:
    """A few hexadecimal digits that stand for everything an engine shows after one command."""
    observation, admissible, won, done = step
    content = json.dumps([observation, list(admissible), bool(won), bool(done)])
    return hashlib.sha256(content.encode()).hexdigest()[:DIGEST_LENGTH]


def game_key(game: str) -> str:
    """A short stand-in for a game's long name, unique among the published games."""
    return hashlib.sha256(game.encode()).hexdigest()[:8]


def play(
    game: str, kind: str, walkthrough: Sequence[str], first: Step, answer: Callable[[str], Step]
) -> Iterator[tuple[str, Step]]:
    """Play one trace of a game, giving each command with what followed, until it is won or long enough."""
    choose = _commands(game, kind, walkthrough)
    next(choose)
    step = first
    while not step[3]:
        try:
            command = choose.send(step[1])
        except StopIteration:
            return
        step = answer(command)
        yield command, step


def _commands(game: str, kind: str, walkthrough: Sequence[str]) -> Generator[str, Sequence[str], None]:
    """Primed with `next`; then takes the admissible commands and gives the one to type."""
    legal = yield ""
    if kind == "walkthrough":
        # Not "yield from", which would hand the admissible commands on to an iterator that takes none.
        for command in walkthrough:  # noqa: UP028
            yield command
        return
    generator = random.Random(f"{game} {kind}")
    plan = list(walkthrough) if kind.startswith("guided") else []
    seen: dict[str, None] = {}
    for _ in range(RANDOM_STEPS):
        seen.update(dict.fromkeys(legal))
        if plan and plan[0] in legal and generator.random() < 0.35:
            legal = yield plan.pop(0)
        else:
            legal = yield _draw(generator, legal, list(seen))


def _draw(generator: random.Random, legal: Sequence[str], seen: Sequence[str]) -> str:
    draw = generator.random()
    if draw < 0.06:
        return generator.choice(INVALID)
    if draw < 0.16:
        return generator.choice(seen)
    # By verb first, since most admissible commands are "go to" and most rules are not.
    verbs = sorted({command.split()[0] for command in legal})
    (verb,) = generator.choices(verbs, [VERB_WEIGHTS[verb] for verb in verbs])
    commands = [command for command in legal if command.split()[0] == verb]
    rewarding = [command for command in commands if any(word in command for word in REWARDING)]
    command = generator.choice(rewarding if rewarding and generator.random() < 0.3 else commands)
    return f" {command}\t" if draw > 0.98 else command
