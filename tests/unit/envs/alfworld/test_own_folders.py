"""Folders of games as people make them: every game is played, left out with a reason that is said, or named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hgpo.cli.main import main
from hgpo.envs.alfworld import alfworld_suite, generate_games
from hgpo.envs.alfworld.tw_pddl.reading import GameFileError

OFFICIAL = "look_at_obj_in_light-Mug-None-DeskLamp-301"
HEAT = "pick_heat_then_place_in_recep"


@pytest.fixture(scope="module")
def heated(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The content of a game in which something is heated."""
    folder = tmp_path_factory.mktemp("made")
    generate_games(folder, games={"train": 1, "valid_seen": 0, "valid_unseen": 0}, task_types=[HEAT])
    return next(folder.rglob("game.tw-pddl")).read_bytes()


def put(data_dir: Path, content: bytes, name: str, stated: object = None) -> Path:
    folder = data_dir / "train" / name
    folder.mkdir(parents=True)
    (folder / "game.tw-pddl").write_bytes(content)
    if stated is not None:
        (folder / "traj_data.json").write_text(stated if isinstance(stated, str) else json.dumps(stated))
    return folder


def changed(content: bytes, **entries: object) -> bytes:
    game = {**json.loads(content), **entries}
    return json.dumps({key: value for key, value in game.items() if value is not ...}).encode()


@pytest.mark.parametrize(
    ("name", "stated", "kind"),
    [
        (f"{HEAT}-Egg-None-Table-1/trial_1", None, HEAT),  # played before
        (f"{OFFICIAL}/trial_1", {"task_type": HEAT}, "look_at_obj_in_light"),  # played before: the name of a download
        ("my-kitchen/try-1", {"task_type": HEAT}, HEAT),
        ("my-kitchen/try-1", {"task_type": "look_at_obj_in_light"}, "look_at_obj_in_light"),  # as ALFWorld counts it
        ("my-kitchen/try-1", None, HEAT),
        ("my-kitchen", {"task_type": HEAT}, HEAT),
        (f"batch-1/{HEAT}-Egg-None-Table-1/trial_1", None, HEAT),
        ("2024/june/kitchens/7/try-1", {"task_type": HEAT, "plan": {}}, HEAT),
        ("Küche 1/try 1", None, HEAT),
    ],
)
def test_folders_of_any_name(tmp_path: Path, heated: bytes, name: str, stated: object, kind: str) -> None:
    put(tmp_path, heated, name, stated)
    suite = alfworld_suite(tmp_path)
    assert [(task.id, task.kind) for task in suite.tasks("train")] == [(f"train/{name}", kind)]
    assert suite.skipped("train") == {}
    assert "Your task is to" in suite.tasks("train")[0].make().reset()[0]


REWRITTEN: dict[str, Callable[[bytes], bytes]] = {
    "no space": lambda content: content.replace(b'"solvable": true', b'"solvable":true'),  # played before
    "two spaces": lambda content: content.replace(b'"solvable": true', b'"solvable" : true'),
    "line breaks": lambda content: content.replace(b'"solvable": true', b'"solvable"\n:\r\n\ttrue'),
    "indented": lambda content: json.dumps(json.loads(content), indent=2).encode(),  # played before
    "escaped": lambda content: content.replace(b'"solvable"', b'"\\u0073olvable"'),
    "byte order mark": lambda content: b"\xef\xbb\xbf" + content,
    "white space at the end": lambda content: content + b"\n\n ",  # played before
}


@pytest.mark.parametrize("rewrite", REWRITTEN.values(), ids=REWRITTEN.keys())
def test_the_mark_of_solvable_games_in_any_spelling(
    tmp_path: Path, heated: bytes, rewrite: Callable[[bytes], bytes]
) -> None:
    put(tmp_path, rewrite(heated), f"{HEAT}-1/trial_1")
    (task,) = alfworld_suite(tmp_path).tasks("train")
    task.make().reset()


@pytest.mark.parametrize(
    ("name", "stated", "entries", "reason"),
    [
        (f"{HEAT}-1/trial_1", None, {"solvable": False}, "not marked solvable"),
        (f"{HEAT}-1/trial_1", None, {"solvable": ...}, "not marked solvable"),
        (f"{HEAT}-1/trial_1", None, {"solvable": None}, "not marked solvable"),
        ("mine/1", None, {"solvable": False}, "not marked solvable"),
        (f"{HEAT}-BreadSliced-1/trial_1", None, {}, "sliced object"),
        ("mine-BreadSliced/1", {"task_type": HEAT}, {}, "sliced object"),
        ("mine/1", {"task_type": "pick_and_dance"}, {}, "other task type (pick_and_dance)"),
        ("mine/1", {"task_type": None}, {}, "other task type (None)"),
        (
            "pick_and_place_with_movable_recep-A-B-C-1/t",
            None,
            {},
            "other task type (pick_and_place_with_movable_recep)",
        ),
    ],
)
def test_games_that_are_left_out_are_counted_and_said_once(
    tmp_path: Path,
    heated: bytes,
    name: str,
    stated: object,
    entries: dict[str, object],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(tmp_path, changed(heated, **entries), name, stated)
    put(tmp_path, heated, f"{HEAT}-2/trial_1")
    suite = alfworld_suite(tmp_path)
    assert [task.id for task in suite.tasks("train")] == [f"train/{HEAT}-2/trial_1"]
    assert suite.skipped("train") == {reason: 1}
    assert caplog.messages == [f"split 'train' has 1 task; left out: 1 {reason}"]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("name", [f"{HEAT}-1/trial_1", "mine/1"])
@pytest.mark.parametrize("first", [True, False])
def test_games_that_are_cut_are_named(tmp_path: Path, heated: bytes, name: str, share: float, first: bool) -> None:
    if first:
        heated = json.dumps({"solvable": True, **json.loads(heated)}).encode()
    put(tmp_path, heated[: int(share * len(heated))], name)
    with pytest.raises(GameFileError, match=rf"{name}/game\.tw-pddl: not JSON, or cut short .*remove this one to play"):
        alfworld_suite(tmp_path).tasks("train")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[1, 2]", "expected a JSON object, found list"),
        (b"\xff\xfe{", "not UTF-8 text"),
        (b"(define (problem kitchen))", "not JSON, or cut short"),
        (b'{"solvable": "true"}', "the entry 'solvable' is str, not bool"),
        (b'{"solvable": 1}', "the entry 'solvable' is int, not bool"),
    ],
)
def test_files_that_are_no_games_are_named(tmp_path: Path, content: bytes, said: str) -> None:
    put(tmp_path, content, f"{HEAT}-1/trial_1")
    with pytest.raises(GameFileError, match=said) as error:
        alfworld_suite(tmp_path).tasks("train")
    assert "trial_1/game.tw-pddl" in str(error.value)


@pytest.mark.parametrize("stated", ["", "{", "[]", "{}", '"pick"', "\ud7ff{"])
def test_a_statement_of_the_task_type_that_cannot_be_read_is_named(tmp_path: Path, heated: bytes, stated: str) -> None:
    put(tmp_path, heated, "mine/1").joinpath("traj_data.json").write_text(stated, encoding="utf-8")
    with pytest.raises(GameFileError, match=r"mine/1/traj_data\.json: its task_type cannot be read .*remove it"):
        alfworld_suite(tmp_path).tasks("train")


def test_a_split_that_leaves_out_everything_says_why(
    tmp_path: Path, heated: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, changed(heated, solvable=False), f"{HEAT}-1/trial_1")
    put(tmp_path, heated, "mine/1", {"task_type": "pick_and_dance"})
    assert main(["play", "alfworld", "--option", f"data_dir={tmp_path}"]) == 2
    said = capsys.readouterr().err
    assert "split 'train' has no tasks; left out: 1 " in said
    assert "1 not marked solvable" in said
    assert "1 other task type (pick_and_dance)" in said
