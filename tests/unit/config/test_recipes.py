"""Recipes that extend others: what carries over, what does not, and how mistakes are named."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from hgpo.cli.main import main
from hgpo.config import ConfigError, dump_config, load_config, read_config

MODEL = '[policy]\nmodel = "some/model"\n'


@pytest.fixture
def write(tmp_path: Path):
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def refusal(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        load_config(path, overrides)
    return str(error.value)


def test_tables_are_merged_and_values_and_lists_replaced(write) -> None:
    options = "[environment.options]\nsize = { objects = [1, 2], copies = 2 }\n"
    write(
        "base.toml", MODEL + options + "[evaluation]\nseeds = [1, 2]\ngames = 5\n[training]\nupdates = 3\nepochs = 2\n"
    )
    changed = "[evaluation]\nseeds = [7]\n[training]\nupdates = 4\n[environment.options.size]\ncopies = 3\n"
    config = read_config(write("mine.toml", 'extends = "base.toml"\n' + changed))
    assert config.environment.options == {"size": {"objects": [1, 2], "copies": 3}}
    assert (config.evaluation.seeds, config.evaluation.games) == ((7,), 5)
    assert (config.training.updates, config.training.epochs) == (4, 2)
    assert config.policy.model == "some/model"


def test_paths_are_relative_to_the_file_that_says_them(write) -> None:
    write("base/all.toml", MODEL + "[training]\nupdates = 3\n")
    write("base/one.toml", 'extends = "all.toml"\n[training]\nepochs = 2\n')
    config = read_config(write("mine/deep.toml", 'extends = "../base/one.toml"\n[run]\nname = "mine"\n'))
    assert (config.training.updates, config.training.epochs, config.run.name) == (3, 2, "mine")


def test_overrides_win_over_every_file(write) -> None:
    write("base.toml", MODEL + "[training]\nupdates = 3\nepochs = 2\n")
    path = write("mine.toml", 'extends = "base.toml"\n[training]\nupdates = 4\n')
    config = read_config(path, ["training.updates=5", "training.epochs=6"])
    assert (config.training.updates, config.training.epochs) == (5, 6)


def test_an_override_replaces_a_table_whole_and_the_files_stay_as_they_are(write) -> None:
    write("base.toml", MODEL + '[environment.options]\ntrain_games = 8\nsize = "small"\n')
    path = write("mine.toml", 'extends = "base.toml"\n')
    overrides = ["environment.options.size=large", 'environment.options={data_dir = "games"}']
    assert read_config(path, overrides).environment.options == {"data_dir": "games"}
    assert read_config(path).environment.options == {"train_games": 8, "size": "small"}


@pytest.mark.parametrize(
    ("section", "chosen_by", "one", "other"),
    [
        ("environment", "name", "alfworld", "webshop"),
        ("agent", "name", "direct", "react"),
        ("advantage", "estimator", "hgpo", "gigpo"),
    ],
)
def test_options_belong_to_the_part_that_they_are_written_for(
    write, section: str, chosen_by: str, one: str, other: str
) -> None:
    def options(base: str, mine: str, *overrides: str) -> dict[str, object]:
        write("base.toml", f"{MODEL}[{section}]\n{base}\n[{section}.options]\na = 1\nb = 1\n")
        path = write("mine.toml", f'extends = "base.toml"\n[{section}]\n{mine}\n[{section}.options]\nb = 2\n')
        return getattr(read_config(path, overrides), section).options

    def chosen(name: str) -> str:
        return f'{chosen_by} = "{name}"'

    assert options(chosen(one), chosen(other)) == {"b": 2}
    assert options(chosen(one), chosen(one)) == {"a": 1, "b": 2}
    assert options(chosen(one), "") == {"a": 1, "b": 2}
    assert options("", chosen(one)) == {"a": 1, "b": 2}  # the default is the same
    assert options("", chosen(other)) == {"b": 2}
    assert options(chosen(other), chosen(one)) == {"b": 2}
    # An override changes the setting that it names and nothing else.
    assert options(chosen(one), "", f"{section}.{chosen_by}={other}") == {"a": 1, "b": 2}


def test_other_settings_of_the_section_carry_over_where_the_environment_changes(write) -> None:
    write("base.toml", MODEL + '[environment]\nname = "alfworld"\nmax_steps = 7\n')
    path = write("mine.toml", 'extends = "base.toml"\n[environment]\nname = "webshop"\n')
    assert read_config(path).environment.max_steps == 7


def test_what_a_run_keeps_and_a_dry_run_shows_is_flat(write, capsys: pytest.CaptureFixture[str]) -> None:
    write("base.toml", MODEL + "[training]\nupdates = 3\n")
    path = write("mine.toml", 'extends = "base.toml"\n[run]\nname = "mine"\n')
    config = load_config(path)
    flat = write("config.toml", dump_config(config))
    assert load_config(flat) == config
    assert main(["train", str(path), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert shown == dump_config(config)
    assert tomllib.loads(shown)["training"]["updates"] == 3
    assert "extends" not in shown


def test_a_circle_shows_the_chain(write) -> None:
    path = write("a.toml", 'extends = "b/b.toml"\n')
    write("b/b.toml", 'extends = "../c.toml"\n')
    write("c.toml", 'extends = "a.toml"\n')
    message = refusal(path)
    assert "a recipe cannot extend itself: " in message
    assert [Path(part).name for part in message.partition(": ")[2].split(" extends ")] == [
        "a.toml",
        "b.toml",
        "c.toml",
        "a.toml",
    ]


def test_a_missing_base_shows_the_chain(write, tmp_path: Path) -> None:
    path = write("a.toml", 'extends = "b.toml"\n')
    middle = write("b.toml", 'extends = "none.toml"\n')
    missing = tmp_path / "none.toml"
    chain = f"({path} extends {middle} extends {missing})"
    assert refusal(path) == f"no such recipe: {missing}; `hgpo train --help` lists the recipes {chain}"


def test_a_folder_or_a_broken_file_as_base_is_refused_by_name(write, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert f"{tmp_path / 'folder'} is a folder, not a recipe" in refusal(write("a.toml", 'extends = "folder"\n'))
    write("broken.toml", "[run\n")
    assert "broken.toml is not valid TOML" in refusal(write("a.toml", 'extends = "broken.toml"\n'))


def test_a_run_as_recipe_is_refused_with_the_option_that_continues_it(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(MODEL)
    assert refusal(tmp_path) == f"{tmp_path} is a folder, not a recipe; a run continues with `--resume {tmp_path}`"


@pytest.mark.parametrize("value", ["3", '["base.toml"]', "true"])
def test_a_base_is_a_path(write, value: str) -> None:
    path = write("a.toml", f"extends = {value}\n")
    assert f"{path}: extends = " in refusal(path)


def test_extends_stands_above_the_tables_and_not_on_the_command_line(write) -> None:
    path = write("a.toml", MODEL + 'extends = "base.toml"\n')
    assert "policy.extends: unknown setting" in refusal(path)
    assert "`extends` can be set in a recipe file only" in refusal(write("b.toml", MODEL), "extends=a.toml")


def test_all_mistakes_are_named_wherever_they_stand(write) -> None:
    write("base.toml", MODEL + "[training]\nupdate = 3\n[evaluation]\nseeds = 5\n[nonsense]\nx = 1\n")
    path = write("mine.toml", 'extends = "base.toml"\n[training]\nepochs = -1\n[warm_start]\ntarget_low = 0.9\n')
    found = refusal(path, "agent.history_length=-1").splitlines()
    for line in (
        "training.update: unknown setting; did you mean training.updates? `hgpo train --settings` lists all",
        "training.epochs: Input should be greater than or equal to 1 (got -1)",
        "evaluation.seeds: must be a list, e.g. [5] (got 5)",
        "nonsense: unknown setting; `hgpo train --settings` lists all",
        "agent.history_length: Input should be greater than or equal to 0 (got -1)",
    ):
        assert line in found
    assert any(line.startswith("warm_start: target_low 0.9 exceeds") for line in found)
