"""A person at the keyboard, an agent that is watched, and stored games."""

from __future__ import annotations

import io
import itertools
import json
import re
import sys

import pytest

from chat_server import ChatServer, says
from corridor import Corridor
from hgpo.cli.main import main
from hgpo.rollout.records import write_rollouts
from house import write_rows
from step_records import step_record


def play(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, *words: str) -> str:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert main(["play", *words]) == 0
    return capsys.readouterr().out


def test_the_task_is_said_where_the_page_does_not_say_it(monkeypatch, capsys) -> None:
    shown = play(monkeypatch, capsys, "\n", "webshop")
    assert re.match(r"\[task: \w+ \w+ .*, price under \d+\]\nsearch\n", shown)
    shown = play(monkeypatch, capsys, "\n", "webshop", "--option", "observation_mode=text")
    assert "[task:" not in shown
    assert "price under" in shown


def test_a_search_bar_is_listed_where_there_is_one(monkeypatch, capsys) -> None:
    shown = play(monkeypatch, capsys, "?\nsearch[mug]\n?\n\n", "webshop")
    before, _, after = shown.partition("page 1")
    assert "search[words]" in before
    assert "search[words]" not in after
    assert "click[back to search]\nclick[next >]" in after


def test_available_actions_of_another_form_list_no_search(monkeypatch, capsys) -> None:
    info = {"won": False, "available_actions": ["left"], "admissible_commands": ["go left"]}
    monkeypatch.setattr(Corridor, "_info", lambda self, won: info)
    assert "go left\n" in play(monkeypatch, capsys, "?\n\n", "corridor:CorridorSuite")


def test_text_of_an_environment_cannot_act_on_the_terminal(monkeypatch, capsys) -> None:
    monkeypatch.setattr(Corridor, "_look", lambda self: "a\x1b[2J\u200fb\u202ec\nsecond\tline")
    assert "a�[2J�b�c\nsecond\tline\n" in play(monkeypatch, capsys, "\n", "corridor:CorridorSuite")


def test_settings_of_a_policy_need_a_policy(capsys) -> None:
    assert main(["play", "corridor:CorridorSuite", "--temperature", "0", "--prompts"]) == 2
    assert "--temperature, --prompts: nothing uses these if you play; add --policy MODEL" in capsys.readouterr().err


def test_a_seed_is_not_negative(trained_run, capsys) -> None:
    assert main(["play", str(trained_run), "--seed", "-1"]) == 2
    assert "--seed -1: give a whole number, 0 or more" in capsys.readouterr().err


def test_a_run_or_stored_steps_play_no_other_policy(trained_run, tmp_path, capsys) -> None:
    assert main(["play", str(trained_run), "--policy", "other/model"]) == 2
    assert (
        "--policy: nothing uses these if a run plays; name an environment instead of the run" in capsys.readouterr().err
    )
    assert main(["play", str(tmp_path / "steps.jsonl"), "--split", "test", "--option", "size=full"]) == 2
    assert "--split, --option: nothing uses these if stored steps are shown" in capsys.readouterr().err


@pytest.mark.slow
def test_household_games_list_what_they_did(monkeypatch, capsys) -> None:
    shown = play(monkeypatch, capsys, "?\n\n", "alfworld")
    assert "\ninventory\nlook\n" in shown
    assert "[task:" not in shown
    assert "search[" not in shown


def test_an_environment_that_breaks_its_promise_is_one_line(monkeypatch, capsys) -> None:
    monkeypatch.setattr(Corridor, "_info", lambda self, won: {"task": "leave"})
    assert main(["play", "corridor:CorridorSuite"]) == 2
    error = capsys.readouterr().err
    assert "task 'train/1': reset(seed=…) has to return (observation, info), with the bool info['won']" in error
    assert error.count("\n") == 1


def test_a_runs_policy_is_watched_step_by_step(trained_run, capsys) -> None:
    assert main(["play", str(trained_run), "--game", "1"]) == 0
    shown = capsys.readouterr().out
    assert "[0/held_out/4#0]\nyou are at place 0\n── step 1 " in shown
    assert re.search(r"\[(won|lost), 1 trial, \d steps?\]\n$", shown)


def test_a_served_model_is_watched_through_an_agent(capsys) -> None:
    actions = itertools.cycle(["go right", "go right", "open door"])
    with ChatServer(lambda body: says(f"Thought: on.\nAction: {next(actions)}")) as server:
        words = ["corridor:CorridorSuite", "--policy", "m", "--server", server.url, "--agent", "react", "--prompts"]
        assert main(["play", *words, "--split", "held_out"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("response     Thought: on.\n             Action: ") == 3
    assert "Your task: open the door at place 2" in shown
    assert shown.endswith("reward       10, won\n[won, 1 trial, 3 steps]\n")


def test_a_stored_game_is_shown_again(tmp_path, capsys) -> None:
    stored = tmp_path / "steps.jsonl"
    steps = [step_record(trajectory=name, step=step) for step in (1, 0) for name in ("a", "b")]
    write_rollouts(stored, steps)
    assert main(["play", str(stored), "--game", "1"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("[b; game 1 of 2]\nhall\n── step 1 ")
    assert shown.index("step 1 ") < shown.index("step 2 ")
    assert main(["play", str(stored), "--game", "2"]) == 2
    assert "--game 2: the file has games 0 to 1" in capsys.readouterr().err
    assert main(["play", str(tmp_path / "none.parquet")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_a_game_that_was_won_before_its_end_is_shown_as_won(monkeypatch, capsys) -> None:
    step = Corridor.step

    def goes_on(self, action):
        observation, reward, *_, info = step(self, action)
        return observation, reward, self.place == 2, False, info

    monkeypatch.setattr(Corridor, "step", goes_on)
    shown = play(monkeypatch, capsys, "go right\nopen door\ngo right\n", "corridor:CorridorSuite")
    assert shown.endswith("[won; reward 0]\n")


def test_games_of_two_tasks_with_one_id_are_two_games(tmp_path, capsys) -> None:
    """Their ids are unique within their group, and their steps are counted from 1."""
    steps = [
        {"group": group, "trajectory": "0", "step": step, "observation": group, "action": f"{group}{step}", "reward": 0}
        for step in (1, 2)
        for group in ("g1", "g2")
    ]
    stored = tmp_path / "steps.jsonl"
    write_rows(stored, steps)
    assert main(["play", str(stored), "--game", "1"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("[g2/0; game 1 of 2]\ng2\n── step 1 ")
    assert re.findall(r"── step (\d)|action +(\w+)", shown) == [("1", ""), ("", "g21"), ("2", ""), ("", "g22")]


def test_the_end_of_a_foreign_game_is_that_of_its_last_step(tmp_path, capsys) -> None:
    steps = [{"observation": place, "action": "go", "truncated": False} for place in ("hall", "room")]
    games = [
        {"group": "g", "trajectory": "won", "reward": 1, "success": True, "steps": steps},
        {
            "group": "g",
            "trajectory": "cut",
            "reward": 0,
            "success": False,
            "steps": [steps[0], steps[1] | {"truncated": True}],
        },
    ]
    write_rows(tmp_path / "games.jsonl", games)
    for game, end in enumerate((", won", ", cut at the step limit")):
        assert main(["play", str(tmp_path / "games.jsonl"), "--game", str(game)]) == 0
        shown = capsys.readouterr().out
        assert re.findall(r"reward +\d(.*)", shown) == ["", end]


def test_stored_steps_that_are_none_are_refused(tmp_path, capsys) -> None:
    row = {"group": "a", "trajectory": [[]], "step": 0, "observation": "here", "reward": 0.0}
    (tmp_path / "steps.jsonl").write_text(json.dumps(row))
    assert main(["play", str(tmp_path / "steps.jsonl")]) == 2
    assert "trajectory" in capsys.readouterr().err


def test_a_run_without_settings_is_not_taken_for_an_environment(trained_run, capsys) -> None:
    (trained_run / "config.toml").unlink()
    assert main(["play", str(trained_run)]) == 2
    assert f"{trained_run / 'config.toml'} does not exist" in capsys.readouterr().err
