"""Reads a `game.tw-pddl` file into a `Game`.

The file is JSON with five entries: the planning domain (the rules), the problem (one household and its goal), a text
grammar, whether the game is solvable, and a walkthrough. Rules and grammar are the same in every published game and are
not interpreted, only checked for the actions and command words of the engine. Nothing in a file is evaluated.
"""

from __future__ import annotations

import hashlib
import json
import re
from os import PathLike
from pathlib import Path
from typing import Any

from hgpo.envs.alfworld.game import Game
from hgpo.envs.alfworld.text import TASK_PREFIX
from hgpo.envs.alfworld.tw_pddl.problem import ExpressionError, ProblemReader, parse_expression

GAME_FILE = "game.tw-pddl"
MAX_BYTES = 512 * 1024  # published files have at most 140,000; a file of this size is read in half a second

# Per action of the published domain, the fixed words of its command.
_COMMAND_WORDS = {
    "CleanObject": "clean with",
    "CloseObject": "close",
    "CoolObject": "cool with",
    "GotoLocation": "go to",
    "HeatObject": "heat with",
    "OpenObject": "open",
    "PickupObject": "take from",
    "PutObject": "move to",
    "SliceObject": "slice with",
    "ToggleObject": "use",
    "examineObject": "examine",
    "examineReceptacle": "examine",
    "help": "help",
    "inventory": "inventory",
    "look": "look",
}

_REMEDY = "download the games again with `alfworld-download` (alfworld 0.4)"

_LONGEST_MESSAGE = 400

_COMMENT = re.compile(r";[^\n]*")
_DOMAIN_ACTION = re.compile(r"\(\s*:action\s+([^\s()]+)")
_TEMPLATE = re.compile(r'^[ \t]*action\s+(\w+)\s*\{\s*template\s*::\s*"([^"]*)"', re.MULTILINE)
_SLOT = re.compile(r"\[[^\[\]]*\]|\{[^{}]*\}")
_TASK = re.compile(r'"rhs"\s*:\s*"' + re.escape(TASK_PREFIX) + r'((?:[^"\\]|\\.)*)"')


_SOLVABLE = re.compile(rb'"solvable"\s*:\s*true\b')


class GameFileError(ValueError):
    """A game file that cannot be read; the message names the file, the problem and a remedy."""


def load_game(path: str | PathLike[str]) -> Game:
    """Read a game file. `GameFileError` if it is missing, damaged or not a game for this engine."""
    return parse_game(read_bounded(path), str(path))


def read_bounded(path: str | PathLike[str]) -> bytes:
    """The content of a game file. `GameFileError` if it cannot be read or is too large."""
    try:
        with Path(path).open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise GameFileError(
            f"{path}: cannot be read ({error.strerror}); give the path of a game.tw-pddl file"
        ) from error
    _check_size(content, str(path))
    return content


def is_solvable(path: str | PathLike[str]) -> bool:
    """Whether a game file is marked as solvable. `GameFileError` if it is not JSON, or cut short."""
    content = read_bounded(path)
    # A search takes a tenth of the time of parsing; within a JSON string the quotes would be escaped.
    if _SOLVABLE.search(content) and content.rstrip().endswith(b"}"):
        return True
    try:
        entries = _read_json(content)
        return entries.get("solvable") is not None and bool(_entry(entries, "solvable", bool))
    except ValueError as error:
        raise GameFileError(f"{path}: {error}; {_REMEDY}, or remove this one to play without it") from error


def parse_game(text: str | bytes, name: str) -> Game:
    """Read the content of a game file; `name` is the name of the game, also in error messages."""
    _check_size(text, name)
    try:
        return _read(text, name)
    except ValueError as error:
        what = str(error)
        if len(what) > _LONGEST_MESSAGE:  # it may quote a long name of the file
            what = f"{what[:_LONGEST_MESSAGE]} ..."
        raise GameFileError(f"{name}: {what}; {_REMEDY}") from error


def _check_size(content: str | bytes, name: str) -> None:
    if len(content) > MAX_BYTES:
        raise GameFileError(f"{name}: more than {MAX_BYTES:,} bytes, which no game has; give one game.tw-pddl file")


def _read(text: str | bytes, name: str) -> Game:
    entries = _read_json(text)
    _check_rules(_entry(entries, "pddl_domain", str))
    grammar = _entry(entries, "grammar", str)
    _check_command_words(grammar)
    walkthrough = _entry(entries, "walkthrough", list)
    if not all(isinstance(command, str) for command in walkthrough):
        raise ValueError("'walkthrough' has an element that is not text")
    _check_characters("'walkthrough'", "".join(walkthrough))
    problem = _entry(entries, "pddl_problem", str)
    try:
        reader = ProblemReader(parse_expression(problem))
    except ExpressionError as error:
        raise ValueError(f"'pddl_problem': {error}") from error
    return Game(
        name=name,
        task=_task_sentence(grammar),
        goal=reader.goal,
        receptacles=reader.receptacles,
        objects=reader.objects,
        can_contain=reader.can_contain,
        agent_location=reader.agent_location,
        locations=reader.locations,
        walkthrough=tuple(walkthrough),
        solvable=_entry(entries, "solvable", bool),
        digest=hashlib.sha256(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")).hexdigest(),
    )


def _read_json(text: str | bytes) -> dict[str, Any]:
    try:
        entries = json.loads(text.decode("utf-8-sig") if isinstance(text, bytes) else text)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON, or cut short (line {error.lineno}, column {error.colno}: {error.msg})") from error
    except RecursionError:
        raise ValueError("not a game file: its JSON is nested too deep") from None
    if not isinstance(entries, dict):
        raise ValueError(f"not a game file: expected a JSON object, found {type(entries).__name__}")
    return entries


def _entry(entries: dict[str, Any], key: str, kind: type) -> Any:
    if key not in entries:
        raise ValueError(f"the entry {key!r} is missing")
    if not isinstance(entries[key], kind):
        raise ValueError(f"the entry {key!r} is {type(entries[key]).__name__}, not {kind.__name__}")
    if kind is str:
        _check_characters(f"the entry {key!r}", entries[key])
    return entries[key]


def _check_characters(what: str, text: str) -> None:
    """Reject lone surrogates, which JSON can escape and which cannot be printed or stored."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} contains an unpaired surrogate (position {error.start})") from error


def _check_rules(domain: str) -> None:
    actions = set(_DOMAIN_ACTION.findall(_COMMENT.sub("", domain)))
    _check_same("'pddl_domain' defines the actions", actions, set(_COMMAND_WORDS))


def _check_command_words(grammar: str) -> None:
    # Grammars also have actions that the rules no longer have; these are ignored.
    words = {
        f"{action}: {' '.join(_SLOT.sub(' ', template).split())}"
        for action, template in _TEMPLATE.findall(grammar)
        if action in _COMMAND_WORDS
    }
    _check_same("'grammar' words the commands", words, {f"{key}: {value}" for key, value in _COMMAND_WORDS.items()})


def _check_same(what: str, found: set[str], expected: set[str]) -> None:
    if found != expected:
        differences = [f"without {item!r}" for item in sorted(expected - found)]
        differences += [f"with the unknown {item!r}" for item in sorted(found - expected)]
        raise ValueError(f"{what} {', '.join(differences[:3])}, so this is another version of the game")


def _task_sentence(grammar: str) -> str:
    sentences = _TASK.findall(grammar)
    if len(sentences) != 1:
        raise ValueError(f"'grammar' has {len(sentences)} sentences that begin with {TASK_PREFIX!r}, not one")
    sentence: str = json.loads(f'"{sentences[0]}"')
    _check_characters("the task sentence", sentence)
    return sentence
