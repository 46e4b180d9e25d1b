# PYTHON_ARGCOMPLETE_OK
"""The `hgpo` command. Each verb is a module of `hgpo.cli`; nothing heavy is imported before it is needed."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from hgpo.utils.process import Terminated, pipe_safe_output, sigterm_interrupts
from hgpo.utils.text import did_you_mean, visible_lines

VERBS = {
    "train": "train an agent from a recipe, or continue a run",
    "eval": "play a run's policy, or any model, on a split, each game once per seed",
    "rollout": "play games with a policy and store every step",
    "advantages": "compute advantages from stored rollouts alone",
    "compare": "runs, evaluations and models in one table",
    "inspect": "see which steps each step was compared with, as an HTML report",
    "export": "write a run's policy as a Hugging Face folder",
    "play": "play a game yourself in the terminal, or watch an agent",
    "serve-env": "serve an environment to OpenEnv's clients",
    "generate-games": "write household games to files",
    "doctor": "say what is installed, what runs here and what is missing",
}
DESCRIPTION = "Train LLM agents on long tasks by comparing steps that share their history (HGPO)."
EPILOG = "`hgpo VERB --help` explains a verb and shows examples. Start with: hgpo train quickstart"
EXPECTED_ERRORS = (ValueError, OSError, FloatingPointError)
HEAVY_ERRORS = (
    ("hgpo.rollout.prompts", "RolloutError"),
    ("hgpo.policies.openai", "AnswerFailed"),
    ("hgpo.integrations.verl.watchdog", "LostProcessError"),
    ("safetensors", "SafetensorError"),
)
"""More errors that are expected, by module: one that is not loaded has raised none, and is not loaded for this."""
TRAINING_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "jinja2")
INTERRUPTED, TERMINATED, BROKEN_PIPE = (128 + number for number in (2, 15, 13))
"""Exit status as a shell gives it to what a signal ended: SIGINT, SIGTERM, SIGPIPE."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status.

    0: done; 1: a check failed; 2: a mistake in the input; 130: interrupted (Ctrl-C); 143: terminated (SIGTERM); 141: a
    pipe or socket closed that was written to. If standard output is what closes, the work goes on and is not shown.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    parsed = argparse.Namespace(verb=None)
    with pipe_safe_output(), sigterm_interrupts():
        try:
            # OpenMP threads that spin for long while they wait make tiny tensors a hundred times slower when the cores
            # are shared; threads that never spin gain nothing from a second core.
            os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
            os.environ.setdefault("GOMP_SPINCOUNT", "200000")
            parsed = _parse(words)
            status = _run(parsed)
            sys.stdout.flush()  # a full disk is an error of the verb's, not of the interpreter's shutdown
            return status
        except KeyboardInterrupt as stop:
            return _report_stop(stop, parsed)
        except Exception as error:
            if os.environ.get("HGPO_DEBUG"):
                raise
            if isinstance(error, BrokenPipeError):
                return BROKEN_PIPE
            message = _message_of(error)
            if message is None:
                raise
            # it may repeat what stands in a file
            sys.stderr.write(f"hgpo{f' {parsed.verb}' if parsed.verb else ''}: {visible_lines(message)}\n")
            return 2


def _parse(words: Sequence[str]) -> argparse.Namespace:
    """The verb and its own arguments; only its module is loaded. Options may stand before, between and after words."""
    parser, parsers = _parsers()
    if "_ARGCOMPLETE" in os.environ:  # set by the shell function of argcomplete
        _complete(parser, parsers)
    if words and not words[0].startswith("-") and words[0] not in parsers:
        raise ValueError(f"no such verb: {words[0]}{did_you_mean(words[0], VERBS) or ';'} `hgpo --help` lists all")
    if not words or words[0] not in parsers:
        parsed = parser.parse_args(words)
        parsed.print_help = parser.print_help
        return parsed
    parser = parsers[words[0]]
    _verb_module(words[0]).configure(parser)
    return parser.parse_intermixed_args(words[1:], argparse.Namespace(verb=words[0]))


def _parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The command's parser, and one for each verb that its module has yet to configure."""
    parser = argparse.ArgumentParser(prog="hgpo", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="store_true", help="print the version and end")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    parsers = {
        name: verbs.add_parser(name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter)
        for name, summary in VERBS.items()
    }
    return parser, parsers


def _complete(parser: argparse.ArgumentParser, parsers: dict[str, argparse.ArgumentParser]) -> None:
    """Write the completions of the current command line and exit; do nothing if argcomplete is not installed."""
    try:
        import argcomplete
    except ImportError:
        return
    for name, verb in parsers.items():
        _verb_module(name).configure(verb)
    argcomplete.autocomplete(parser)


def _run(parsed: argparse.Namespace) -> int:
    if parsed.verb is not None:
        status: int = _verb_module(parsed.verb).run(parsed)
        return status
    if parsed.version:
        from importlib.metadata import version

        sys.stdout.write(f"hgpo {version('hgpo')}\n")
        return 0
    parsed.print_help()
    return 2


def _verb_module(verb: str):  # type: ignore[no-untyped-def]
    return importlib.import_module(f"hgpo.cli.{verb.replace('-', '_')}")


def _message_of(error: Exception) -> str | None:
    """What a person is told of an error that can happen to anyone; None for what is a fault of this program."""
    heavy = [getattr(sys.modules.get(module), name, ()) for module, name in HEAVY_ERRORS]
    if isinstance(error, EXPECTED_ERRORS) or any(isinstance(error, kind) for kind in heavy):
        return str(error)
    if isinstance(error, ImportError):
        named = re.findall(r"\w+", f"{error.name} {error}")
        package = next((package for package in TRAINING_PACKAGES if package in named), None)
        if package is not None:
            return f'{package} is missing or cannot be loaded ({error}): pip install "hgpo[train]"; see `hgpo doctor`'
    return None


def _report_stop(stop: KeyboardInterrupt, parsed: argparse.Namespace) -> int:
    """Say that it stopped and, where a verb has noted the run that it makes or resumes, how that goes on."""
    terminated = isinstance(stop, Terminated)
    run: Path | None = getattr(parsed, "run_directory", None)
    sys.stderr.write("Stopped." if terminated else "\nStopped.")  # the terminal shows ^C in the line that was under way
    if run is not None and (run / "config.toml").exists():
        sys.stderr.write(
            f" What was written is kept; `hgpo train --resume {shlex.quote(str(run))}` goes on from there."
        )
    sys.stderr.write("\n")
    return TERMINATED if terminated else INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
