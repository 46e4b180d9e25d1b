"""Files made to take time or memory are read or refused within bounds of both."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from hgpo.envs.alfworld import GameFileError, load_game, parse_game
from hgpo.envs.alfworld.tw_pddl.reading import MAX_BYTES
from unit.envs.alfworld.hostile import read_or_refuse
from unit.envs.alfworld.kitchen import game_file, grammar, kitchen, problem_text

MEGABYTES = 64


def problem_with(section: str, text: str) -> str:
    return game_file(problem_text(kitchen()).replace(section, f"{section} {text}", 1))


def goal(text: str) -> str:
    return game_file(problem_text(kitchen(), f"(:goal {text})"))


def numbered(form: str, count: int) -> str:
    return " ".join(form.format(number) for number in range(count))


BOMBS: dict[str, Callable[[], str]] = {
    "a million objects": lambda: problem_with("(:objects", numbered("o_bar_{}", 1_000_000) + " - object"),
    "as many objects as fit": lambda: problem_with("(:objects", numbered("o_bar_{:x}", 80_000) + " - object"),
    "one object half a million times": lambda: problem_with("(:objects", "o " * 500_000 + "- object"),
    "as many facts as fit": lambda: problem_with("(:init", "(isOn Apple_bar_1)" * 55_000),
    "all receptacles at one place": lambda: problem_with(
        "(:objects", numbered("o_bar_{:x}", 11_000) + " - receptacle"
    ).replace(
        "(:init",
        "(:init "
        + numbered("(receptacleType o_bar_{0:x} ShelfType) (receptacleAtLocation o_bar_{0:x} loc_bar_1)", 11_000),
    ),
    "all objects in one": lambda: problem_with("(:objects", numbered("o_bar_{:x}", 15_000) + " - object").replace(
        "(:init", "(:init " + numbered("(inReceptacleObject o_bar_{0:x} Plate_bar_1)", 15_000)
    ),
    "empty facts": lambda: problem_with("(:init", "()" * 500_000),
    "deep": lambda: problem_with("(:init", "(" * 1_000_000),
    "a goal of many parts": lambda: goal(f"(and {'(a b)' * 190_000})"),
    "a goal of many different parts": lambda: goal(f"(and {numbered('(a b{})', 80_000)})"),
    "a goal that fits in many ways": lambda: goal(f"(and {numbered('(objectType ?x{} A)', 8)})"),
    "a long predicate": lambda: problem_with("(:init", f"({'x' * 1_000_000} a)"),
    "deep JSON": lambda: "[" * 1_000_000,
    "deep JSON objects": lambda: '{"a":' * 200_000,
    "many JSON lists": lambda: f'{{"a": [{"[]," * 340_000}[]]}}',
    "many JSON keys": lambda: json.dumps(dict.fromkeys(map(str, range(90_000)), 0)),
    "a long number": lambda: "1" * 1_000_000,
    "a long exponent": lambda: "1e" + "9" * 1_000_000,
    "unclosed quotes": lambda: game_file(grammar='action look { template :: "' * 30_000),
    "blanks after a word": lambda: game_file(grammar="action" + " " * 1_000_000),
    "blanks after many words": lambda: game_file(grammar=("action" + " " * 1_000) * 1_000),
    "brackets": lambda: game_file(grammar=grammar("x") + 'action look {\n template :: "' + "{[" * 450_000 + '";'),
    "backslashes": lambda: game_file(grammar='"rhs": "Your task is to: ' + "\\\\" * 250_000),
    "many rules": lambda: game_file(pddl_domain=numbered("(:action a{:x}", 60_000)),
    "a long file": lambda: game_file() + " " * 3 * MAX_BYTES,
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "a million objects" else []) for name in BOMBS]
)
def test_a_bomb_is_read_or_refused_in_time(name: str) -> None:
    read_or_refuse(BOMBS[name]().encode())


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_takes_little_memory(name: str) -> None:
    content = BOMBS[name]().encode()
    tracemalloc.start()
    with suppress(GameFileError):
        parse_game(content, "some file")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MEGABYTES * 1e6


def test_of_a_huge_file_only_the_beginning_is_read(tmp_path: Path) -> None:
    path = tmp_path / "game.tw-pddl"
    with path.open("wb") as file:
        file.truncate(20 * 1024**3)  # sparse: it takes no room on the disk
    tracemalloc.start()
    with pytest.raises(GameFileError, match="more than 524,288 bytes"):
        load_game(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * MAX_BYTES
