"""The ``hgpo`` command. Each verb is a module of ``hgpo.commands``; nothing heavy is imported before it is needed."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

VERBS = {
    "train": "train an agent from a recipe, or continue a run",
    "eval": "play a run's policy on a split, each game once per seed",
    "rollout": "play games with a policy and store every step",
    "advantages": "compute advantages from stored rollouts alone",
    "inspect": "see which steps each step was compared with, as an HTML report",
    "play": "play a game yourself in the terminal or a browser",
    "generate-games": "write household games to files",
    "doctor": "say what is installed, what runs here and what is missing",
}
DESCRIPTION = "Train LLM agents on long tasks by comparing steps that share their history (HGPO)."
EPILOG = "`hgpo VERB --help` explains a verb and shows examples. Start with: hgpo train recipes/quickstart/hgpo.toml"
EXPECTED_ERRORS = (ValueError, OSError, FloatingPointError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status: 0 done, 1 a check failed, 2 a mistake in the input, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="hgpo", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="store_true", help="print the version and end")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    words = list(sys.argv[1:] if arguments is None else arguments)
    # OpenMP threads that spin for long while they wait make tiny tensors a hundred times slower when the cores are
    # shared; threads that never spin gain nothing from a second core.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "200000")
    parsers = {
        name: verbs.add_parser(name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter)
        for name, summary in VERBS.items()
    }
    if words and words[0] in parsers:
        return _run(words[0], _parse(parsers[words[0]], words))
    parsed = parser.parse_args(words)
    if parsed.version:
        from importlib.metadata import version

        sys.stdout.write(f"hgpo {version('hgpo')}\n")
        return 0
    parser.print_help()
    return 2


def _parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """The verb's own arguments; only its module is loaded. Options may stand before, between and after other words."""
    _command(words[0]).configure(parser)
    return parser.parse_intermixed_args(words[1:])


def _run(verb: str, parsed: argparse.Namespace) -> int:
    from hgpo.rollout.collect import RolloutError

    try:
        status: int = _command(verb).run(parsed)
        return status
    except (*EXPECTED_ERRORS, RolloutError) as error:
        if os.environ.get("HGPO_DEBUG"):
            raise
        sys.stderr.write(f"hgpo {verb}: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write(
            "\nStopped. What was written is kept; `hgpo train --resume RUN` goes on from the newest checkpoint.\n"
        )
        return 130


def _command(verb: str):  # type: ignore[no-untyped-def]
    return importlib.import_module(f"hgpo.commands.{verb.replace('-', '_')}")


if __name__ == "__main__":
    sys.exit(main())
