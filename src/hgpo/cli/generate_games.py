"""`hgpo generate-games`: write generated household games to files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

DESCRIPTION = """\
Write generated household games of the six ALFWorld task types to a folder: train, valid_seen and valid_unseen, with
each game as a game.tw-pddl in its own folder, which ALFWorld can load, and generated.json with the options. Equal
options give equal games.

valid_seen: new placements of training tasks and layouts. valid_unseen: layouts and object-target pairs that no training
game has, made of words that the training games contain.

examples:
  hgpo generate-games games
  hgpo train quickstart environment.options='{data_dir = "games"}'
  hgpo generate-games full-games --size full --train 5000 --valid-unseen 500 --seed 1
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    from hgpo.envs.alfworld.game import TASK_TYPES
    from hgpo.envs.alfworld.generation.splits import DEFAULT_GAMES

    parser.description = DESCRIPTION
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder to write to")
    parser.add_argument("--size", default="small", help="small, medium or full (default: small)")
    for split, count in DEFAULT_GAMES.items():
        name = split.replace("_", "-")
        parser.add_argument(
            f"--{name}", type=int, default=count, metavar="N", help=f"games in {split} (default: {count})"
        )
    parser.add_argument(
        "--task-types", nargs="+", default=list(TASK_TYPES), metavar="TYPE", help=f"some of: {', '.join(TASK_TYPES)}"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    parser.add_argument("--force", action="store_true", help="replace existing games")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    from hgpo.envs.alfworld.generation.splits import DEFAULT_GAMES
    from hgpo.envs.alfworld.tw_pddl.writing import generate_games

    counts = {split: getattr(arguments, split) for split in DEFAULT_GAMES}
    for name, number in {**counts, "seed": arguments.seed}.items():
        if number < 0:
            raise ValueError(f"--{name.replace('_', '-')} {number}: give a whole number, 0 or more")
    files = generate_games(
        arguments.folder,
        size=arguments.size,
        games=counts,
        task_types=arguments.task_types,
        seed=arguments.seed,
        overwrite=arguments.force,
    )
    for split, path in files.items():
        sys.stdout.write(f"{counts[split]:>7,} games in {path}\n")
    return 0
