"""One module per command of `hgpo`: `configure(parser)` adds its arguments, `run(arguments)` runs it."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TRUST_HELP = (
    "trust a run that was made elsewhere: import the modules that its settings name, which runs their code, and use "
    "the servers, environment variables and paths that they name"
)


def add_file_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--format`, `--trajectories`, `--column` and `--state`, which select how files of steps are read."""
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
    parser.add_argument(
        "--state",
        metavar="NAME",
        help="compare states by this key: observation, json, tool_call, or your own as package.module:attribute "
        "(default: the stored observation; json for a run that was trained with it)",
    )


def add_option_argument(parser: argparse.ArgumentParser, of: str) -> None:
    """Add `--option`, for `parse_given`."""
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help=f"an option of the {of}; repeatable"
    )


def add_estimator_argument(parser: argparse.ArgumentParser, meaning: str, default: str | None = None) -> None:
    """Add `--estimator`: any name that a recipe may have."""
    from hgpo.estimators import names

    parser.add_argument(
        "--estimator",
        default=default,
        metavar="NAME",
        help=f"{meaning}: {', '.join(names())}, or your own as package.module:attribute",
    )


def amount(text: str) -> float:
    """The type of an argument that is a price, a cost or a percentage."""
    value = float(text)
    if not 0.0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"not a finite number of at least 0: {text!r}")
    return value


def parse_given(assignments: Sequence[str]) -> dict[str, Any]:
    """The values of `--option`, by name."""
    from hgpo.config import apply_override

    options: dict[str, Any] = {}
    for assignment in assignments:
        apply_override(options, assignment)
    return options


def check_output(path: Path, *, overwrite: bool) -> None:
    """Check before a computation that its result can be written to `path`.

    Raises:
        ValueError: `path` is a folder, or it exists and `overwrite` is false.
        OSError: The folder is not writable.
    """
    from hgpo.utils.files import check_writable

    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file")
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists already; choose another name or add --force")
    check_writable(path)
