"""How often the scripted expert wins, per task type.

    python benchmarks/alfworld_expert.py --data-dir ~/alfworld/data

Plays every game of the splits once, within a step limit, with two experts. One remembers everything that it has seen.
The other gives the demonstrations, and its commands depend on its last two steps only. Both read what a player reads:
observations, the task sentence and the admissible commands.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress import track

from hgpo.envs import Task
from hgpo.envs.alfworld import Expert, alfworld_suite

EXPERTS: dict[str, Callable[[], Expert]] = {
    "remembers all": Expert,
    "demonstrates": lambda: Expert(recall=False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("ALFWORLD_DATA"), help="real games ($ALFWORLD_DATA)")
    parser.add_argument("--splits", nargs="+", help="(default: all there are)")
    parser.add_argument("--max-steps", type=int, default=50, help="(default: 50, as in the published recipe)")
    arguments = parser.parse_args()

    suite = alfworld_suite(arguments.data_dir)
    print(f"success in % within {arguments.max_steps} steps (steps of a game that is won, on average)\n")
    print(f"| split | task type | games | {' | '.join(EXPERTS)} |\n|---|---|---:|{'---:|' * len(EXPERTS)}")
    for split in arguments.splits or suite.splits:
        tasks = suite.tasks(split)
        lengths = {
            name: play_all(tasks, make(), arguments.max_steps, f"{split}, {name}") for name, make in EXPERTS.items()
        }
        for kind in [*sorted({task.kind for task in tasks}), "all"]:
            chosen = [number for number, task in enumerate(tasks) if kind in (task.kind, "all")]
            cells = [cell([of_expert[number] for number in chosen]) for of_expert in lengths.values()]
            print(f"| {split} | {kind} | {len(chosen)} | {' | '.join(cells)} |")


def play_all(tasks: Sequence[Task], expert: Expert, max_steps: int, label: str) -> list[int | None]:
    """For each task, the number of steps until it was won; None if it was not won."""
    return [play(task, expert, max_steps) for task in track(tasks, label, console=Console(stderr=True))]


def play(task: Task, expert: Expert, max_steps: int) -> int | None:
    environment = task.make()
    observation, info = environment.reset()
    expert.reset(observation, info)
    for step in range(1, max_steps + 1):
        observation, _, terminated, _, info = environment.step(expert.act(observation, info))
        if terminated:
            return step
    return None


def cell(lengths: Sequence[int | None]) -> str:
    won = [length for length in lengths if length is not None]
    return f"{100 * len(won) / len(lengths):.1f} ({sum(won) / len(won):.1f})" if won else "0"


if __name__ == "__main__":
    main()
