from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from generated_games import generate_game
from hgpo.envs.alfworld.generation.game_files import game_from_json, game_to_json, read_games, write_games
from hgpo.envs.alfworld.tw_pddl.reading import MAX_BYTES, GameFileError


def lines(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [game_to_json(generate_game(rng)) for _ in range(count)]


def test_games_come_back_as_they_were_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    games = tuple(generate_game(rng, size=size) for size in ("small", "medium", "full") for _ in range(10))
    write_games(tmp_path / "train.jsonl", games)
    assert read_games(tmp_path / "train.jsonl") == games
    assert [path.name for path in tmp_path.iterdir()] == ["train.jsonl"]


def test_the_same_games_make_the_same_file(tmp_path: Path) -> None:
    games = [generate_game(np.random.default_rng(7)) for _ in range(3)]
    write_games(tmp_path / "a.jsonl", games)
    write_games(tmp_path / "b.jsonl", games)
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    write_games(path, [game_from_json(line) for line in lines(2)])
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_games(path, [None])  # type: ignore[list-item]
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def damaged(what: str, value: object) -> dict[str, Any]:
    line = lines(1)[0]
    *path, last = what.split("/")
    place: Any = line
    for step in path:
        place = place[int(step)] if isinstance(place, list) else place[step]
    place[last] = value
    return line


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "Expecting property name"),
        ("[]", "the line is not a JSON object"),
        ("{}", "schema_version is None"),
        ("[" * 200_000, "nested too deep for a game"),
        ('{"name": "' + "x" * MAX_BYTES + '"}', "more than 524,288 bytes"),
        ('{"name": "\\ud800"}', "an escape sequence is an unpaired surrogate"),
        (damaged("schema_version", 2), "schema_version is 2, this version reads 1"),
        ({name: value for name, value in lines(1)[0].items() if name != "goal"}, "'goal' is missing"),
        (damaged("task", 3), "'task' is 3, not a string"),
        (damaged("goal", None), "'goal' is not a JSON object"),
        (damaged("goal/task_type", "juggle"), "unknown task_type 'juggle'"),
        (damaged("solvable", "yes"), "'solvable' is 'yes', not true or false"),
        (damaged("walkthrough", [1]), "'walkthrough' holds something that is not a string"),
        (damaged("receptacles", {}), "'receptacles' is {}, not a list"),
        (damaged("receptacles/0/name", lines(1)[0]["receptacles"][1]["name"]), "is used twice"),
        (damaged("objects/0/receptacles", ["Moon_bar_1"]), "Moon_bar_1"),
        (damaged("can_contain", []), "'can_contain' is not a JSON object"),
        (damaged("can_contain", {"Desk": "Mug"}), "'Desk' is 'Mug', not a list"),
        (damaged("receptacles", ["cabinet"]), "an entry of 'receptacles' is not a JSON object"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: object, message: str) -> None:
    path = tmp_path / "train.jsonl"
    text = line if isinstance(line, str) else json.dumps(line)
    path.write_text(json.dumps(lines(1)[0]) + "\n" + text + "\n", encoding="utf-8")
    with pytest.raises(GameFileError, match=r"train\.jsonl, line 2: .*write the file again") as caught:
        read_games(path)
    assert message in str(caught.value)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(json.dumps(lines(1)[0]).encode() + b"\n\xff\xfe\n")
    with pytest.raises(GameFileError, match=r"train\.jsonl, line 2: not UTF-8 text \(byte 0\); write the file again"):
        read_games(path)
