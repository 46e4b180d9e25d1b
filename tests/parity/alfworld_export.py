"""Play generated games with the reference engine and record what it answers, to test the native engine against.

The games are written by the project, the answers come from an environment of its own (see `alfworld_record.py`)::

    .venv/bin/python tests/parity/alfworld_exported_games.py exported
    reference/bin/python tests/parity/alfworld_export.py exported tests/parity/data/alfworld_exported.jsonl

Each game file is loaded as it is and played three times: its walkthrough, which must win, and two seeded traces with
illegal and stale commands. One line per game holds the file's hash and a digest per step. At the end ALFWorld's own
environment class collects the folder, which shows that it takes the games for its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

from alfworld_record import answer, load, speed_up_reference, start, traces_of

GAME_FILE = "game.tw-pddl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("games_folder", type=Path, help="what alfworld_exported_games.py wrote")
    parser.add_argument("output", type=Path, help="file to write, one JSON line per game")
    parser.add_argument("--plain", action="store_true", help="do not speed the reference up")
    arguments = parser.parse_args()

    if not arguments.plain:
        speed_up_reference()
    files = sorted(arguments.games_folder.rglob(GAME_FILE))
    if not files:
        sys.exit(f"{arguments.games_folder}: no {GAME_FILE} in it")
    lines = []
    for number, file in enumerate(files, start=1):
        game = file.parent.relative_to(arguments.games_folder).as_posix()
        check_walkthrough_wins(file)
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        lines.append(json.dumps({"game": game, "sha256": sha256, **traces_of(file, game)}) + "\n")
        print(f"{number}/{len(files)} {game}", flush=True)
    check_collected(arguments.games_folder, len(files))
    arguments.output.write_text("".join(lines), encoding="utf-8")


def check_walkthrough_wins(file: Path) -> None:
    environment = load(file)
    start(environment)
    for command in json.loads(file.read_text(encoding="utf-8"))["walkthrough"]:
        _, _, won, _ = answer(environment, command)
    if not won:
        sys.exit(f"{file}: the reference engine does not win it with its walkthrough")


def check_collected(folder: Path, count: int) -> None:
    from alfworld.agents.environment.alfred_tw_env import AlfredTWEnv

    config = {
        "env": {"goal_desc_human_anns_prob": 0, "task_types": [1, 2, 3, 4, 5, 6]},
        "dataset": {"data_path": str(folder), "num_train_games": 0},
    }
    found = AlfredTWEnv(config).num_games
    if found != count:
        sys.exit(f"{folder}: ALFWorld collects {found} of the {count} games")


if __name__ == "__main__":
    main()
