"""One module per verb of the `hgpo` command: `configure(parser)` adds its arguments, `run(arguments)` runs it."""

from __future__ import annotations

import argparse

TRUST_HELP = "of a run from elsewhere: import the modules that its settings name, which runs their code"


def add_file_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--format`, `--trajectories` and `--column`, which select how files of steps are read."""
    from hgpo.storage.schema import FORMATS

    parser.add_argument(
        "--format", default="auto", choices=FORMATS, help="format of the files (default: auto, detected per file)"
    )
    parser.add_argument(
        "--trajectories",
        dest="format",
        action="store_const",
        const="trajectories",
        help="one trajectory per line: same as --format trajectories (docs/own-data.md)",
    )
    parser.add_argument(
        "--column", action="append", default=[], metavar="NAME=KEY", help="read a column from another key; repeatable"
    )
