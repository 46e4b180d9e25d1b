# PYTHON_ARGCOMPLETE_OK
"""The `hgpo` command. Each command is a module of `hgpo.cli`; large packages are imported only when needed."""

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
from hgpo.utils.text import did_you_mean, visible, visible_lines

COMMANDS = {
    "train": "train an agent from a recipe, or continue a run",
    "eval": "evaluate a run's policy, or any model, on a split, one episode per task and seed",
    "rollout": "play tasks with a policy and store every step",
    "advantages": "compute advantages from stored rollouts",
    "compare": "compare runs, evaluations and models in a table",
    "manifest": "list, build and check the manifests of evaluation sets",
    "audit": "check what a result or log really evaluated",
    "inspect": "write an HTML report of the groups and advantages of every step",
    "export": "write a run's policy as a Hugging Face folder",
    "play": "play a task in the terminal, or watch an agent",
    "serve-env": "serve an environment to OpenEnv's clients",
    "generate-games": "write generated household games to files",
    "doctor": "report what is installed, what works here and what is missing",
}
DESCRIPTION = "Train LLM agents on long tasks by comparing steps that share their history (HGPO)."
EPILOG = "`hgpo COMMAND --help` describes a command with examples. Start with: hgpo train quickstart"
EXPECTED_ERRORS = (ValueError, OSError, FloatingPointError)
HEAVY_ERRORS = (
    ("hgpo.rollout.prompts", "RolloutError"),
    ("hgpo.policies.base", "AnswerFailed"),
    ("hgpo.integrations.verl.watchdog", "LostProcessError"),
    ("safetensors", "SafetensorError"),
)
"""More expected errors, by module; modules are not imported for this, because only a loaded one can have raised."""
SERVER_ERRORS = (("hgpo.policies.base", "AnswerFailed"), ("hgpo.policies.openai", "ServerRefused"))
"""After these a training can be resumed, once the server answers."""
TRAINING_PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "jinja2")
INTERRUPTED, TERMINATED, BROKEN_PIPE = (128 + number for number in (2, 15, 13))
"""Exit status as in a shell after SIGINT, SIGTERM, SIGPIPE."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status.

    0: success; 1: a check failed; 2: invalid input; 130: interrupted (Ctrl-C); 143: terminated (SIGTERM); 141: a pipe
    or socket was closed. If standard output is closed, the command continues without output.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    parsed = argparse.Namespace(command=None)
    with pipe_safe_output(), sigterm_interrupts():
        try:
            # On shared cores, OpenMP threads that spin for long while waiting slow tiny tensors down a hundredfold;
            # threads that never spin gain nothing from a second core.
            os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
            os.environ.setdefault("GOMP_SPINCOUNT", "200000")
            parsed = _parse(words)
            status = _run(parsed)
            sys.stdout.flush()  # report a full disk as an error of the command, not at exit
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
            if _is_one_of(error, SERVER_ERRORS) and (hint := _resume_hint(parsed)):
                message += f".{hint}"
            # the message may quote a file
            sys.stderr.write(f"hgpo{f' {parsed.command}' if parsed.command else ''}: {visible_lines(message)}\n")
            return 2


def _parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command and its arguments; imports only its module. Options and positional arguments may be mixed."""
    parser, parsers = _parsers()
    if "_ARGCOMPLETE" in os.environ:  # set by the shell function of argcomplete
        _complete(parser, parsers)
    if words and not words[0].startswith("-") and words[0] not in parsers:
        raise ValueError(
            f"no such command: {words[0]}{did_you_mean(words[0], COMMANDS) or ';'} `hgpo --help` lists all"
        )
    if not words or words[0] not in parsers:
        parsed = parser.parse_args(words)
        parsed.print_help = parser.print_help
        return parsed
    parser = parsers[words[0]]
    _command_module(words[0]).configure(parser)
    return parser.parse_intermixed_args(words[1:], argparse.Namespace(command=words[0]))


def _parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """The parser of `hgpo`, and one per command, still to be configured by its module."""
    parser = argparse.ArgumentParser(prog="hgpo", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    parsers = {
        name: commands.add_parser(name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter)
        for name, summary in COMMANDS.items()
    }
    return parser, parsers


def _complete(parser: argparse.ArgumentParser, parsers: dict[str, argparse.ArgumentParser]) -> None:
    """Write the completions of the current command line and exit; do nothing if argcomplete is not installed."""
    try:
        import argcomplete
    except ImportError:
        return
    for name, command in parsers.items():
        _command_module(name).configure(command)
    argcomplete.autocomplete(parser)


def _run(parsed: argparse.Namespace) -> int:
    if parsed.command is not None:
        status: int = _command_module(parsed.command).run(parsed)
        return status
    if parsed.version:
        from importlib.metadata import version

        sys.stdout.write(f"hgpo {version('hgpo')}\n")
        return 0
    parsed.print_help()
    return 2


def _command_module(command: str):  # type: ignore[no-untyped-def]
    return importlib.import_module(f"hgpo.cli.{command.replace('-', '_')}")


def _message_of(error: Exception) -> str | None:
    """The message of an expected error; None for a bug in this program."""
    if isinstance(error, OSError) and error.filename is not None and error.filename2 is None and error.strerror:
        return f"{error.filename}: {error.strerror}"  # without Python's "[Errno 2]"
    # UTF-8 lacks only surrogates. Texts of files are cleaned of them where they are read, names of files are not.
    if isinstance(error, UnicodeEncodeError) and error.encoding == "utf-8":
        return f"{visible(error.object)} is not valid UTF-8; rename the file or folder"
    if isinstance(error, EXPECTED_ERRORS) or _is_one_of(error, HEAVY_ERRORS):
        return str(error)
    if isinstance(error, ImportError):
        named = re.findall(r"\w+", f"{error.name} {error}")
        package = next((package for package in TRAINING_PACKAGES if package in named), None)
        if package is not None:
            return f'{package} is missing or cannot be loaded ({error}): pip install "hgpo[train]"; see `hgpo doctor`'
    return None


def _is_one_of(error: Exception, kinds: Sequence[tuple[str, str]]) -> bool:
    return any(isinstance(error, getattr(sys.modules.get(module), name, ())) for module, name in kinds)


def _report_stop(stop: KeyboardInterrupt, parsed: argparse.Namespace) -> int:
    """Report the interruption and, for a training, the command that resumes it."""
    terminated = isinstance(stop, Terminated)
    start = "" if terminated else "\n"  # the terminal shows ^C in the current line
    sys.stderr.write(f"{start}Stopped.{_resume_hint(parsed)}\n")
    return TERMINATED if terminated else INTERRUPTED


def _resume_hint(parsed: argparse.Namespace) -> str:
    """The command that resumes the training, after a space; "" if no run has begun."""
    run: Path | None = getattr(parsed, "run_directory", None)
    if run is None or not (run / "config.toml").exists():
        return ""
    return f" Files are kept; `hgpo train --resume {shlex.quote(str(run))}` continues the run."


if __name__ == "__main__":
    sys.exit(main())
