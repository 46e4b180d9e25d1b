"""What a step of a game costs beside the model when it is played through a server: milliseconds a step, with many games
in flight.

    python benchmarks/serving.py                                 both environments, agents direct and react: minutes
    python benchmarks/serving.py --environments alfworld --agents react --at-once 16
    python benchmarks/serving.py --profile                       the own side's functions alone; no server is asked

The server is a process of its own that knows every answer (`known_answers.py`), those of the environment's expert. In
turn within each round,

- "played" is the path of `hgpo eval --server`: `play_games` with a `ServerPolicy`, every game kept in a journal;
- "asked" is openai's client alone, which sends the very same requests as fast as it can, as many at once.

What is "added" is their difference: what environment, agent, policy and journal take beyond client and server. It is
wall time, and demanded to be under 5 ms: exit status 1 means that it is not. "journal" is its part that waits for the
disk or writes, and all games wait with it. Beside it stands the CPU time of this process, which a busy machine does not
lengthen, and where it goes (`own_side.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from openai import AsyncOpenAI
from rich.console import Console
from rich.table import Table

from hgpo.policies.server import Server
from known_answers import serve
from own_side import Function, Stopwatch, functions, parts
from served_games import SIZES, Body, ServedGames, Span, foresee, served, timing

DEMANDED = 5.0
"""Milliseconds of wall time under which the own side's addition to a step has to stay."""

SHOWN = 40
"""Functions that `--profile` shows."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One environment through one agent.

    Attributes:
        steps: of all games together, and so requests.
        played: each round's.
        asked: each round's.
        journal: wall seconds of each round of "played" that went into the journal.
        parts: CPU milliseconds a step of the own side, by part.

    Example: `Measured(1332, [Span(3.2, 3.1)], [Span(2.6, 2.5)], [0.3], {"prompt": 0.04, "rest": 0.1})`.
    """

    steps: int
    played: list[Span]
    asked: list[Span]
    journal: list[float]
    parts: dict[str, float]

    def added(self, clock: str = "wall") -> float:
        """Milliseconds a step: median over rounds of the difference within each; `clock` is "wall" or "cpu"."""
        rounds = zip(self.played, self.asked, strict=True)
        return self._a_step(getattr(played, clock) - getattr(asked, clock) for played, asked in rounds)

    def milliseconds(self, way: str, clock: str = "wall") -> float:
        """Milliseconds a step: median over rounds of one `way`, "played" or "asked"."""
        return self._a_step(getattr(span, clock) for span in getattr(self, way))

    def journalled(self) -> float:
        """Milliseconds a step of wall time in the journal: median over rounds."""
        return self._a_step(self.journal)

    def ratio(self) -> float:
        """Played over asked: median over rounds of the ratio within each."""
        rounds = zip(self.played, self.asked, strict=True)
        return statistics.median(played.wall / asked.wall for played, asked in rounds)

    def _a_step(self, seconds: Iterable[float]) -> float:
        return 1e3 * statistics.median(seconds) / self.steps


def main() -> int:
    """Read the command line, measure and show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", nargs="+", default=list(SIZES), choices=SIZES)
    parser.add_argument("--agents", nargs="+", default=["direct", "react"], choices=["direct", "react"])
    parser.add_argument("--at-once", type=int, default=64, help="games in flight (default: 64)")
    parser.add_argument("--games", type=int, default=192, help="(default: 192)")
    parser.add_argument("--rounds", type=int, default=5, help="of both ways in turn (default: 5)")
    parser.add_argument("--profile", action="store_true", help="only the own side, function by function")
    parser.add_argument("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args()
    console, found = Console(), {}
    for environment, agent in itertools.product(arguments.environments, arguments.agents):
        games = ServedGames.of(environment, agent, arguments.games)
        if arguments.profile:
            show_functions(f"{environment}, {agent}", functions(games, foresee(games).answers), console)
        else:
            found[f"{environment}, {agent}"] = measure(games, arguments.at_once, arguments.rounds)
    if arguments.json:
        figures = {"at_once": arguments.at_once, "found": {name: asdict(one) for name, one in found.items()}}
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    if found:
        show(found, arguments.at_once, console)
    return 0 if all(one.added() < DEMANDED for one in found.values()) else 1


def measure(games: ServedGames, at_once: int, rounds: int) -> Measured:
    """Both ways in turn, then the parts of the own side."""
    requests = foresee(games)
    played, asked, journal = [], [], []
    with serve(requests.answers) as url:
        for _ in range(rounds):
            watch = Stopwatch(time.perf_counter)
            played.append(games.play(served(url), at_once, noting=partial(watch.on, "journal")))
            journal.append(watch.spent["journal"])
            with timing() as span:
                asyncio.run(ask_all(Server(url), requests.bodies, at_once))
            asked.append(span)
    return Measured(games.steps, played, asked, journal, parts(games, requests.answers))


async def ask_all(server: Server, bodies: Sequence[Body], at_once: int) -> None:
    """The client alone: the next request goes out as soon as one is answered."""
    left = iter(bodies)

    async def ask_on() -> None:
        for body in left:
            await client.chat.completions.create(**body)

    async with AsyncOpenAI(**server.connection()) as client:
        await asyncio.gather(*(ask_on() for _ in range(at_once)))


def show(found: Mapping[str, Measured], at_once: int, console: Console) -> None:
    """Two tables: what a step costs, and what the own side spends it on."""
    columns = ("steps", "played", "asked", "added", "journal", "ratio", "CPU: played", "asked", "added", "demand met")
    table = Table("", *columns, title=f"milliseconds a step, {at_once} games in flight", title_justify="left")
    for name, one in found.items():
        wall, cpu = (
            [
                f"{value:.2f}"
                for value in (one.milliseconds("played", clock), one.milliseconds("asked", clock), one.added(clock))
            ]
            for clock in ("wall", "cpu")
        )
        met = "yes" if one.added() < DEMANDED else "no"
        table.add_row(name, f"{one.steps:,}", *wall, f"{one.journalled():.2f}", f"{one.ratio():.2f}", *cpu, met)
    console.print(table)
    names = list(dict.fromkeys(part for one in found.values() for part in one.parts))
    table = Table("", *names, "together", title="the own side, CPU milliseconds a step", title_justify="left")
    for name, one in found.items():
        table.add_row(
            name, *(f"{value:.3f}" for value in (*(one.parts[part] for part in names), sum(one.parts.values())))
        )
    console.print(table)


def show_functions(name: str, found: Sequence[Function], console: Console) -> None:
    """The functions that take the most themselves."""
    table = Table(
        "function", "calls", "itself", "together", title=f"{name}: CPU milliseconds a step", title_justify="left"
    )
    for one in found[:SHOWN]:
        table.add_row(one.name, f"{one.calls:.2f}", f"{one.itself:.4f}", f"{one.together:.4f}")
    console.print(table, markup=False)


if __name__ == "__main__":
    sys.exit(main())
