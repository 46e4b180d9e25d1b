"""Damaged files are read or refused with the documented error, in time; what is read can be played."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from example_counts import at_length
from generated_games import generate_game
from hgpo.envs.alfworld import export_game
from unit.envs.alfworld.hostile import read_or_refuse
from unit.envs.alfworld.kitchen import game_file, kitchen, problem_text

few = at_length(150, suppress_health_check=[HealthCheck.data_too_large])
many = at_length(2_000, suppress_health_check=[HealthCheck.data_too_large])  # 6,000 files altogether


@cache
def originals() -> tuple[bytes, ...]:
    """Whole game files, small and big, of different task types."""
    rng = np.random.default_rng(0)
    generated = [generate_game(rng, size=size) for size in ("small", "small", "full")]
    return game_file().encode(), *(export_game(game).encode() for game in generated)


Edit = tuple[str, float, int, bytes]
"""What is done, where (as a share of the file), to how many bytes, and with which."""

edits = st.lists(
    st.tuples(
        st.sampled_from(["overwrite", "insert", "delete", "repeat", "truncate", "flip"]),
        st.floats(0, 1),
        st.integers(0, 400),
        st.binary(min_size=1, max_size=40)
        | st.sampled_from([b'"', b"\\", b"(", b")", b"{", b"\xff", b"\\ud800", b"\0"]),
    ),
    min_size=1,
    max_size=6,
)


def damage(content: bytes, changes: list[Edit]) -> bytes:
    for what, share, length, data in changes:
        start = int(share * len(content))
        end = start + length
        content = {
            "overwrite": content[:start] + data + content[start + len(data) :],
            "insert": content[:start] + data + content[start:],
            "delete": content[:start] + content[end:],
            "repeat": content[:end] + content[start:],
            "truncate": content[:start],
            "flip": content[:start]
            + bytes(byte ^ data[0] for byte in content[start : start + 1])
            + content[start + 1 :],
        }[what]
    return content


@many
@given(st.integers(0, 3), edits)
def test_damaged_bytes(which: int, changes: list[Edit]) -> None:
    read_or_refuse(damage(originals()[which], changes))


PROBLEM_WORDS = """
define :objects :init :goal and exists not = - ?item object receptacle location agent1 Apple_bar_1 Shelf_bar_1 AppleType
ShelfType loc_bar_1 objectType inReceptacle receptacleType receptacleAtLocation atLocation isClean canContain
inReceptacleObject
"""
problem_words = st.sampled_from([*PROBLEM_WORDS.split(), "", "\x85"])
expressions = st.recursive(problem_words, lambda inner: st.lists(inner, max_size=6), max_leaves=30)


def written(expression: object) -> str:
    return f"({' '.join(map(written, expression))})" if isinstance(expression, list) else str(expression)


sections = st.fixed_dictionaries({"old": st.sampled_from(["(:objects", "(:init", "(:goal"]), "new": expressions})


@many
@given(sections, st.booleans())
def test_damaged_problems(section: dict[str, str], whole: bool) -> None:
    text = written(section["new"])
    old = problem_text(kitchen())
    read_or_refuse(game_file(text if whole else old.replace(section["old"], f"{section['old']} {text}", 1)))


grammar_pieces = st.lists(
    st.sampled_from(['"""', '"', "{", "}", "[", "]", "#", "|", "::", ";", "action ", "look ", "template", "\n", "  "])
    | st.sampled_from(
        ['"rhs": "Your task is to: ', 'action look {\n template :: "look";', "(:action look", "\\u0041", "\\"]
    )
    | st.text(max_size=8),
    max_size=40,
).map("".join)


@many
@given(grammar_pieces, st.floats(0, 1), st.sampled_from(["grammar", "pddl_domain"]))
def test_damaged_grammars_and_rules(text: str, position: float, entry: str) -> None:
    whole = json.loads(game_file())[entry]
    cut = int(position * len(whole))
    read_or_refuse(game_file(**{entry: whole[:cut] + text + whole[cut:]}))
    read_or_refuse(game_file(**{entry: text}))


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@few
@given(st.sampled_from(["pddl_domain", "grammar", "pddl_problem", "solvable", "walkthrough"]), json_values)
def test_entries_of_any_kind(entry: str, value: object) -> None:
    read_or_refuse(json.dumps({**json.loads(game_file()), entry: value}))


@few
@given(json_values)
def test_any_json(value: object) -> None:
    assert read_or_refuse(json.dumps(value)) is None
