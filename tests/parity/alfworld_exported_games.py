"""Write the games that both engines play, in the published format.

Without more, a fixed set of generated games of all sizes and task types. With `--real`, the real games of the
scenarios read and written again, so that they carry the project's own rules and wording; the reference must answer as
with ALFWorld's, which `alfworld_record.py scenarios` shows by leaving `alfworld_scenarios.jsonl` as it is::

    .venv/bin/python tests/parity/alfworld_exported_games.py rewritten --real games
    reference/bin/python tests/parity/alfworld_record.py scenarios rewritten tests/parity/data
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from hgpo.envs.alfworld import export_game, generate_games, load_game

SCENARIOS = Path(__file__).parent / "data" / "alfworld_scenarios.jsonl"
SEED = 20
GAMES = {
    "small": {"train": 48, "valid_seen": 0, "valid_unseen": 12},
    "medium": {"train": 30, "valid_seen": 0, "valid_unseen": 6},
    "full": {"train": 18, "valid_seen": 0, "valid_unseen": 6},
}


def write(folder: Path) -> list[Path]:
    """Write every game and return the game files, sorted."""
    for size, games in GAMES.items():
        generate_games(folder / size, size=size, games=games, seed=SEED)
    return sorted(folder.rglob("game.tw-pddl"))


def rewrite(folder: Path, real_games: Path) -> None:
    """Read the real games of the scenarios and write them again."""
    for line in SCENARIOS.read_text(encoding="utf-8").splitlines():
        name = Path(json.loads(line)["game"]) / "game.tw-pddl"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(export_game(load_game(real_games / name)), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to write them")
    parser.add_argument("--real", type=Path, metavar="GAMES", help="folder with train/ and valid_seen/")
    arguments = parser.parse_args()
    if arguments.real:
        rewrite(arguments.folder, arguments.real)
    else:
        write(arguments.folder)


if __name__ == "__main__":
    main()
