"""Speed of the household games in the native engine and, on request, in the reference engine on the same games.

    python benchmarks/alfworld.py --data-dir ~/alfworld/data
    python benchmarks/alfworld.py --data-dir ~/alfworld/data --reference reference/bin/python

Without `--data-dir` and $ALFWORLD_DATA, generated games as big as real ones are played. `--reference` names a
Python in which alfworld 0.4.2 and textworld 1.7.0 are installed; tests/parity/alfworld_record.py says how to make one.

Commands are drawn once, by a random verb and then a random admissible command with it; both engines carry out these
commands. Every step includes the list of admissible commands. Times are CPU seconds of one process with one thread, so
that other work on the machine does not count; no game is warmed up. Exit status 1: unequal answers.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hgpo.envs.alfworld import AlfworldEnv, generate_games
from hgpo.envs.alfworld.suite import split_folder
from hgpo.envs.alfworld.tw_pddl.reading import GAME_FILE
from stored_rows import markdown_table

WORKER = Path(__file__).with_name("alfworld_reference.py")
SEED = 0
ANSWERS = ("answers", "admissible")

FIGURES = {
    "steps_per_second": "steps/s, one game after another",
    "batch_steps_per_second": "steps/s, all games in turn",
    "reset_ms": "reset, ms",
    "load_ms": "first load of a file, ms",
    "memory_mb": "memory per live environment, MB",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default=os.environ.get("ALFWORLD_DATA"), help="real games ($ALFWORLD_DATA)")
    parser.add_argument("--split", default="train")
    parser.add_argument("--games", type=int, default=512, help="games for the native engine (default: 512)")
    parser.add_argument("--steps", type=int, default=50, help="commands per game (default: 50)")
    parser.add_argument("--reference", metavar="PYTHON", help="also measure the reference engine with this Python")
    parser.add_argument("--reference-games", type=int, default=8, help="how many of the games it plays (default: 8)")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        data_dir = arguments.data_dir or write_generated_games(Path(temporary), arguments.split, arguments.games)
        files = drawn_files(Path(data_dir), arguments.split, arguments.games)
        together, commands = play_together(files, arguments.steps)
        played = [play_alone(file, chosen) for file, chosen in zip(files, commands, strict=True)]
        reference: dict[str, Any] = {}
        if arguments.reference:
            reference = measure_reference(arguments.reference, played[: arguments.reference_games])
    source = f"real games, {arguments.split}" if arguments.data_dir else "generated games, size full"
    print(f"{len(files)} {source}; {sum(len(game['commands']) for game in played):,} steps")
    print(f"\n{table(together | speeds(played), reference)}")
    answers = zip(played, reference.get("played", ()), strict=False)
    differing = [one["file"] for one, other in answers if any(one[key] != other[key] for key in ANSWERS)]
    if reference:
        print(f"games with an answer that differs: {len(differing)} of {len(reference['played'])}")
    return 1 if differing else 0


def write_generated_games(folder: Path, split: str, count: int) -> Path:
    games = {"train": count, "valid_seen": 0, "valid_unseen": 0, split: count}
    generate_games(folder / "games", size="full", games=games, seed=SEED)
    return folder / "games"


def drawn_files(data_dir: Path, split: str, count: int) -> list[str]:
    files = sorted(map(str, (split_folder(data_dir, split) or data_dir).rglob(GAME_FILE)))
    if not files:
        sys.exit(f"{data_dir}: no {GAME_FILE} files of {split}")
    random.Random(SEED).shuffle(files)
    return files[:count]


def speeds(played: list[dict[str, Any]]) -> dict[str, float]:
    """Steps per second and milliseconds of the games of either engine."""
    steps = sum(len(game["admissible"]) for game in played)
    load, reset, step = (sum(game[f"{what}_seconds"] for game in played) for what in ("load", "reset", "step"))
    return {
        "steps_per_second": steps / step,
        "reset_ms": 1e3 * reset / len(played),
        "load_ms": 1e3 * load / len(played),
    }


def play_together(files: list[str], steps: int) -> tuple[dict[str, float], list[list[str]]]:
    """Play one step of every game in turn; return speed and memory, and the commands that were drawn."""
    gc.collect()
    memory_before = resident_mb()
    environments = [AlfworldEnv(file) for file in files]
    admissible = {number: env.reset()[1]["admissible_commands"] for number, env in enumerate(environments)}
    rng = random.Random(SEED)
    commands: list[list[str]] = [[] for _ in files]
    seconds = 0.0
    for _ in range(steps):
        chosen = {number: draw(rng, those) for number, those in admissible.items()}  # of the games that have not ended
        before = time.process_time()
        results = {number: environments[number].step(command) for number, command in chosen.items()}
        seconds += time.process_time() - before
        for number, (_, _, terminated, truncated, info) in results.items():
            commands[number].append(chosen[number])
            if terminated or truncated:
                del admissible[number]
            else:
                admissible[number] = info["admissible_commands"]
    gc.collect()
    figures = {
        "batch_steps_per_second": sum(map(len, commands)) / seconds,
        "memory_mb": (resident_mb() - memory_before) / len(files),
    }
    return figures, commands


def play_alone(file: str, commands: list[str]) -> dict[str, Any]:
    """Load and play one game."""
    before = time.process_time()
    environment = AlfworldEnv(file)
    loaded = time.process_time()
    answers = [environment.reset()[0]]
    started = time.process_time()
    results = [environment.step(command) for command in commands]
    ended = time.process_time()
    return {
        "file": file,
        "commands": commands,
        "answers": answers + [result[0] for result in results],
        "admissible": [result[4]["admissible_commands"] for result in results],
        "load_seconds": loaded - before,
        "reset_seconds": started - loaded,
        "step_seconds": ended - started,
    }


def draw(rng: random.Random, admissible: list[str]) -> str:
    """A random verb and then a random command with it, because most admissible commands are "go to"."""
    verb = rng.choice(sorted({command.split()[0] for command in admissible}))
    return rng.choice([command for command in admissible if command.split()[0] == verb])


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure_reference(python: str, played: list[dict[str, Any]]) -> dict[str, Any]:
    """The same figures from the reference engine, with its answers."""
    # Isolated (-I), so that this folder's alfworld.py does not hide the package of that name.
    plan = json.dumps([{"file": game["file"], "commands": game["commands"]} for game in played])
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [python, "-I", str(WORKER)], input=plan, capture_output=True, text=True, env=environment, check=False
    )
    if result.returncode:
        sys.exit(f"{python} {WORKER.name} failed:\n{result.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found | speeds(found["played"])


def table(native: dict[str, float], reference: dict[str, Any]) -> str:
    """The table of docs/alfworld.md."""
    rows = []
    for key, title in FIGURES.items():
        value, other = native[key], reference.get(key)
        ratio = "" if other is None else f"{value / other if 'per_second' in key else other / value:,.0f}"
        rows.append([title, shown(value), shown(other), ratio])
    return markdown_table(["", "native", "reference", "ratio"], rows)


def shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 1 else f"{value:.1f}"


if __name__ == "__main__":
    sys.exit(main())
