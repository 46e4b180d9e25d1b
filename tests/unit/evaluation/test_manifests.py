"""Manifests: those of the package agree with the tasks, damaged files are named, and results say what they are of."""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hgpo.envs
from corridor import CorridorSuite
from hgpo.agents import TEMPLATES, Agent
from hgpo.assemble import build_suite
from hgpo.cli.main import main
from hgpo.config import load_config
from hgpo.envs.alfworld import AlfworldEnv
from hgpo.envs.alfworld.tw_pddl.writing import generate_games
from hgpo.envs.base import Task
from hgpo.envs.webshop.suite import published_draw
from hgpo.envs.wrappers import LimitedSuite
from hgpo.evaluation.evaluator import Evaluator
from hgpo.evaluation.manifests import (
    FOLDER,
    Recognised,
    best_fit,
    build_manifest,
    check_manifest,
    manifest_named,
    manifests,
    read_manifest,
    recognise,
    write_manifest,
)
from hgpo.evaluation.result_files import read_evaluation
from hgpo.rollout.prompts import RolloutRules
from hgpo.utils.progress import Reporter
from scripted_policy import ScriptedPolicy

SHARED = Path(__file__).parents[4] / "shared"
GAMES, SHOP = SHARED / "alfworld" / "train_valid_seen.tar.xz", SHARED / "webshop"
SIZES = {
    "alfworld-train-1": 3553,
    "alfworld-valid_seen-1": 140,
    "language-models-valid_seen-1": 256,
    "quickstart-valid_seen-1": 256,
    "quickstart-valid_unseen-1": 256,
    "smollm2-valid_seen-1": 192,
    "smollm2-valid_unseen-1": 192,
    "webshop-published256-1": 256,
    "webshop-test-1": 500,
    "webshop-tiny-valid_seen-1": 256,
    "webshop-tiny-valid_unseen-1": 256,
    "webshop-validation500-1": 500,
}
RECIPES = {name: name for name in ("quickstart", "smollm2", "webshop-tiny")}
RECIPES["language-models"] = "language-models/alfworld"
RECIPE_FILES = sorted((Path(__file__).parents[3] / "recipes").rglob("*.toml"))


def test_each_set_of_the_package_is_there_with_its_tasks() -> None:
    assert {name: len(manifest.tasks) for name, manifest in manifests().items()} == SIZES
    assert {path.stem for path in FOLDER.glob("*.json")} == set(SIZES)
    for name, manifest in manifests().items():
        assert name.endswith(f"-{manifest.version}")
        assert {task.id.partition("/")[0] for task in manifest.tasks} == {manifest.split}
        assert all(task.observation and (task.game or manifest.catalogue) for task in manifest.tasks)
        assert manifest.settings.get("data_dir", "$")[:1] == "$"


def test_the_256_goals_are_those_of_the_published_draw() -> None:
    published, whole = manifests()["webshop-published256-1"], manifests()["webshop-test-1"]
    assert published.catalogue == whole.catalogue
    drawn = [whole.tasks[number] for number in published_draw()]
    assert [(one.goal, one.price_bound) for one in published.tasks] == [(one.goal, one.price_bound) for one in drawn]
    assert len({one.goal for one in published.tasks}) == 256 - 28
    renamed = [one.model_copy(update={"id": one.id.replace("test/", "validation/")}) for one in whole.tasks]
    assert manifests()["webshop-validation500-1"].tasks == tuple(renamed)


@pytest.mark.parametrize("name", [name for name in SIZES if name.startswith(tuple(RECIPES))])
def test_generated_sets_are_those_of_the_recipes(name: str) -> None:
    recipe = load_config(Path(RECIPES[name.split("-valid")[0]]))
    manifest = manifests()[name]
    assert manifest.environment == recipe.environment.name
    assert manifest.settings == recipe.environment.model_dump(mode="json")["options"]


@pytest.mark.parametrize("split", ["valid_seen", "valid_unseen"])
def test_generated_shops_agree_with_their_manifest(split: str) -> None:
    assert check_manifest(manifests()[f"webshop-tiny-{split}-1"]) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SIZES if name.startswith(("quickstart", "smollm2", "language"))])
def test_generated_games_agree_with_their_manifest(name: str) -> None:
    assert check_manifest(manifests()[name]) == {}


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPE_FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_held_out_split_of_a_recipe_has_a_manifest(
    recipe: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(recipe)
    if config.environment.options.get("data_dir") == "$ALFWORLD_DATA":
        monkeypatch.setenv("ALFWORLD_DATA", str(request.getfixturevalue("real_games")))
    elif config.environment.options.get("data_dir"):
        monkeypatch.setenv("WEBSHOP_DATA", str(SHOP))
        if not SHOP.is_dir():
            pytest.skip(f"the official catalogue is not here: {SHOP}")
    suite = build_suite(config.environment, config.evaluation)
    for split in set(suite.splits) - {config.environment.train_split}:
        recognised = recognise(config.environment.name, suite.tasks(split))
        assert (recognised.id is not None, recognised.differs) == (True, ()), split


@pytest.fixture(scope="module")
def real_games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the real games: $ALFWORLD_DATA, or the archive, unpacked."""
    if "ALFWORLD_DATA" in os.environ:
        return Path(os.environ["ALFWORLD_DATA"])
    if not GAMES.exists():
        pytest.skip(f"the real games are not here: set ALFWORLD_DATA, or give {GAMES}")
    unpacked = tmp_path_factory.mktemp("games")
    with tarfile.open(GAMES, "r|xz") as archive:
        archive.extractall(unpacked, filter="data")
    return next(unpacked.rglob("game.tw-pddl")).parents[3]


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "valid_seen"])
def test_real_games_agree_with_their_manifest(split: str, real_games: Path) -> None:
    assert check_manifest(manifests()[f"alfworld-{split}-1"], {"data_dir": str(real_games)}) == {}


@pytest.mark.slow
@pytest.mark.skipif(not SHOP.is_dir(), reason=f"the official catalogue is not here: {SHOP}")
@pytest.mark.parametrize("name", ["webshop-test-1", "webshop-validation500-1", "webshop-published256-1"])
def test_the_official_catalogue_agrees_with_its_manifests(name: str, tmp_path: Path) -> None:
    assert check_manifest(manifests()[name], {"data_dir": str(SHOP)}) == {}
    assert check_manifest(manifests()[name], {"data_dir": str(SHOP), "keep_in": str(tmp_path / "kept")}) == {}
    other_prices = check_manifest(manifests()[name], {"data_dir": str(SHOP), "seed": 7})
    assert len(other_prices) > 100
    assert set(other_prices.values()) == {"another first observation, goal, price bound"}
    products = json.loads((SHOP / "items_shuffle_1000.json").read_text())
    products[-1]["name"] += "!"
    (tmp_path / "items_shuffle_1000.json").write_text(json.dumps(products))
    shutil.copy(SHOP / "items_ins_v2_1000.json", tmp_path)
    other_catalogue = check_manifest(manifests()[name], {"data_dir": str(tmp_path)})
    assert set(other_catalogue.values()) == {"another game"}
    assert len(other_catalogue) == SIZES[name]


# Games on disk.


@pytest.fixture
def games(tmp_path: Path) -> Path:
    generate_games(tmp_path / "games", games={"train": 6, "valid_seen": 4, "valid_unseen": 0})
    return tmp_path / "games"


def build(*words: str) -> int:
    return main(["manifest", "build", "--env", "alfworld", "--split", "valid_seen", *words])


def test_a_download_gets_a_manifest_and_is_checked_by_it(
    games: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, elsewhere = tmp_path / "own-valid_seen-3.json", tmp_path / "elsewhere"
    monkeypatch.setenv("ALFWORLD_DATA", str(games))
    assert build("--about", "own games", "-o", str(file)) == 0
    manifest = read_manifest(file)
    assert (manifest.id, manifest.version, manifest.description) == ("own-valid_seen-3", 3, "own games")
    assert manifest.settings == {"data_dir": "$ALFWORLD_DATA"}
    assert str(tmp_path) not in file.read_text()
    for path in sorted(games.rglob("game.tw-pddl"), reverse=True):  # another place, and another order of creation
        shutil.copytree(path.parent, elsewhere / path.parent.relative_to(games))
    assert build(f"environment.options.data_dir={elsewhere}", "-o", str(file), "--about", "own games", "--force") == 0
    assert read_manifest(file) == manifest
    assert main(["manifest", "check", str(file)]) == 0
    assert "equal, 4 tasks" in capsys.readouterr().out
    changed = shutil.copytree(games, tmp_path / "changed")
    first, second, third, _ = (changed / task.id / "game.tw-pddl" for task in manifest.tasks)
    first.write_text(first.read_text() + "\n")
    second.write_text(second.read_text().replace("Your task is to: ", "Your task is to: please "))
    shutil.rmtree(third.parents[1])
    assert main(["manifest", "check", str(file), f"environment.options.data_dir={changed}"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{manifest.tasks[0].id}: another game",
        f"{manifest.tasks[1].id}: another game, first observation, goal",
        f"{manifest.tasks[2].id}: missing",
        "own-valid_seen-3: 3 differences",
    ]


def test_a_generated_game_has_the_digest_of_its_file(games: Path) -> None:
    made = {"size": "small", "train_games": 6, "valid_seen_games": 4, "valid_unseen_games": 0}
    in_memory = build_manifest("a-1", "alfworld", "valid_seen", made)
    on_disk = build_manifest("a-1", "alfworld", "valid_seen", {"data_dir": str(games)})
    assert {task.game for task in in_memory.tasks} == {task.game for task in on_disk.tasks}
    assert {task.observation for task in in_memory.tasks} == {task.observation for task in on_disk.tasks}


# Files.


def written(folder: Path, **changed: Any) -> Path:
    """The file of a small manifest with other values."""
    whole = manifests()["alfworld-valid_seen-1"]
    path = folder / "small-1.json"
    write_manifest(path, whole.model_copy(update={"tasks": whole.tasks[:3], "id": "small-1"}))
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    return path


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_manifest(written(tmp_path)).tasks == manifests()["alfworld-valid_seen-1"].tasks[:3]


DIGEST = "0" * 64
DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "a number for a text": ({"split": 3}, "'split': Input should be a valid string"),
    "no digest": ({"goals": [["kind", "12ab"]]}, "'goals.0.1': String should match"),
    "an unknown goal": ({"tasks": [["a", 9, DIGEST, DIGEST, None]]}, "names a goal that does not exist"),
    "a goal before the first": ({"tasks": [["a", -1, DIGEST, DIGEST, None]]}, "'tasks.0.1'"),
    "a short row": ({"tasks": [["a", 0, DIGEST]]}, "'tasks.0.3': Field required"),
    "a negative price": ({"tasks": [["a", 0, DIGEST, DIGEST, -1.0]]}, "'tasks.0.4'"),
    "an unknown key": ({"loss": 1}, "'loss': Extra inputs"),
    "no tasks": ({"tasks": []}, "'tasks': Tuple should have at least 1 item"),
    "a task twice": ({"tasks": [["a", 0, DIGEST, DIGEST, None]] * 2}, "'tasks': Value error, a task occurs twice"),
    "a long name": ({"id": "a" * 2000}, "'id': String should have at most 1000 characters"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_file_is_named_with_the_place(what: str, tmp_path: Path) -> None:
    changed, message = DAMAGED[what]
    path = written(tmp_path, **changed)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        read_manifest(path)
    assert str(path) in str(error.value)


def test_a_manifest_from_elsewhere_runs_no_code_and_chooses_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["manifest", "check", str(written(tmp_path, environment="trap:suite"))]) == 2
    assert "is of the environment 'trap:suite'; known are alfworld" in capsys.readouterr().err
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "none"))
    settings = {"data_dir": "/etc", "keep_in": str(tmp_path / "kept")}
    assert main(["manifest", "check", str(written(tmp_path, settings=settings))]) == 2
    assert f"{tmp_path / 'none'}: no games here" in capsys.readouterr().err
    assert not (tmp_path / "kept").exists()


def test_an_environment_of_the_users_is_checked_where_they_name_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, own = tmp_path / "corridor-1.json", "corridor:CorridorSuite"
    assert main(["manifest", "build", "--env", own, "--split", "train", "-o", str(file)]) == 0
    assert main(["manifest", "check", str(file)]) == 2
    assert "is of the environment 'corridor:CorridorSuite'" in (error := capsys.readouterr().err)
    assert "Name an environment of your own, whose code is then run, with --env" in error
    assert main(["manifest", "check", str(file), "--env", own]) == 0
    assert "corridor-1: equal" in capsys.readouterr().out
    assert main(["manifest", "check", str(file), "--env", "webshop"]) == 2
    assert "known are webshop." in capsys.readouterr().err


# The command.


def test_the_list_shows_each_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manifest", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == sorted(SIZES)
    assert "3,553 tasks" in lines[0]


WRONG = {
    "an unknown id": (["check", "alfworld-valid-seen-1"], "did you mean alfworld-valid_seen-1?"),
    "no manifest": (["check"], "check needs the file of a manifest"),
    "build without a split": (["build", "--env", "alfworld", "-o", "a.json"], "build needs --split"),
    "another setting": (["check", "webshop-test-1", "run.seed=1"], "'run.seed=1' determines no task"),
    "another ending": (["build", "--env", "webshop", "--split", "train", "-o", "a.txt"], "the name must end in .json"),
    "an option of build": (["list", "--split", "train"], "--split: only for build"),
    "words of list": (["list", "webshop"], "list takes no arguments, got 'webshop'"),
    "an unknown split": (["build", "--env", "webshop", "--split", "valid", "-o", "a.json"], "unknown split 'valid'"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_words_are_named(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words, message = WRONG[what]
    assert main(["manifest", *words]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_not_overwritten_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path)
    before = file.read_text()
    assert build("-o", str(file)) == 2
    assert "exists already" in capsys.readouterr().err
    assert file.read_text() == before
    assert manifest_named(str(file)).id == "small-1"


# Results.


def shop_tasks(number: int) -> list[Task]:
    options = manifests()["webshop-tiny-valid_unseen-1"].settings
    return LimitedSuite(hgpo.envs.make("webshop", **options), 3).tasks("valid_unseen")[:number]  # type: ignore[return-value]


def played(tasks: list[Task], environment: str, output: Path) -> Any:
    compact = TEMPLATES.get("compact")
    evaluator = Evaluator(
        tasks,
        environment,
        "direct",
        Agent(compact, 2),
        RolloutRules(compact, history_length=2, temperature=0.4),
        split="valid_unseen",
        seeds=(1,),
        reporter=Reporter(quiet=True),
    )
    policy = ScriptedPolicy(lambda prompt, rng: "search[wool]")
    stored = evaluator.evaluate(policy, output, model="scripted")
    assert read_evaluation(output) == stored
    return stored


def test_a_result_names_its_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = played(list(shop_tasks(4)), "webshop", tmp_path / "a.json")
    assert (stored.manifest, stored.manifest_differs) == ("webshop-tiny-valid_unseen-1", ())
    assert capsys.readouterr().err == ""


def test_another_game_under_the_same_id_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = list(shop_tasks(4))
    tasks[2] = replace(tasks[2], make=tasks[1].make)
    stored = played(tasks, "webshop", tmp_path / "a.json")
    assert (stored.manifest, stored.manifest_differs) == ("webshop-tiny-valid_unseen-1", (tasks[2].id,))
    assert json.loads((tmp_path / "a.json").read_text())["manifest_differs"] == [tasks[2].id]
    assert (
        f"tasks that differ from the manifest webshop-tiny-valid_unseen-1: 1 ({tasks[2].id})" in capsys.readouterr().err
    )


def test_tasks_of_no_manifest_are_not_made() -> None:
    def fail() -> Any:
        raise AssertionError("was made")

    tasks = [Task(f"valid_unseen/own-{number}", "kind", fail) for number in range(3)]
    assert recognise("webshop", tasks).id is None
    known = [Task(task.id, "kind", fail) for task in manifests()["webshop-test-1"].tasks]
    assert recognise("own", known).id is None
    assert recognise("webshop", known).differs == tuple(task.id for task in known)  # they cannot be made
    held_out = LimitedSuite(CorridorSuite(longest=6), max_steps=8).tasks("held_out")
    assert recognise("corridor", held_out).id is None


def test_of_manifests_with_the_same_ids_the_one_with_the_same_games_is_named() -> None:
    """The first task has one id in quickstart's and smollm2's sets, and another game in each."""
    quickstart = load_config(Path("quickstart"))
    first = build_suite(quickstart.environment, quickstart.evaluation).tasks("valid_unseen")[0]
    ids = [one.id for one in manifests().values() if first.id in {task.id for task in one.tasks}]
    assert ids == ["quickstart-valid_unseen-1", "smollm2-valid_unseen-1"]
    assert recognise("alfworld", [first]) == Recognised("quickstart-valid_unseen-1", ())


def test_a_task_of_no_manifest_among_known_ones_differs() -> None:
    tasks = list(shop_tasks(2))
    added = replace(tasks[0], id="valid_unseen/own")
    assert recognise("webshop", [*tasks, added]).differs == ("valid_unseen/own",)
    assert recognise("webshop", [tasks[0], added, replace(added, id="valid_unseen/other")]).id is None


def test_games_are_compared_by_their_file(games: Path) -> None:
    path = next(games.glob("valid_seen/*/*/game.tw-pddl"))
    env = AlfworldEnv(path)
    before = env.identity()
    path.write_text(path.read_text() + " ")
    assert AlfworldEnv(path).identity() != before
    assert AlfworldEnv(path).game == env.game


def test_the_fitting_manifest_has_most_of_the_ids() -> None:
    def found(ids: list[str]) -> str | None:
        fit = best_fit([(task,) for task in ids])
        return None if fit is None else fit.id

    ids = {name: [task.id for task in manifest.tasks] for name, manifest in manifests().items()}
    assert {name: found(ids[name]) for name in SIZES} == {name: name for name in SIZES}
    assert found(ids["alfworld-valid_seen-1"][:3] + ids["alfworld-train-1"][:2]) == "alfworld-valid_seen-1"
    assert found(["a", "b"]) is None
    games = [task.game for task in manifests()["quickstart-valid_seen-1"].tasks]
    assert best_fit([("a",)], games) is None
