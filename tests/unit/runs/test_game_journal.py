import json

import pytest

from hgpo.evaluation.eval_log import GameJournal, JournalError
from hgpo.rollout.games import Played
from hgpo.rollout.records import PlayedGame, TotalUsage
from killed import killed_at_each_call
from step_records import step_record

WHAT = {"model": "m", "seeds": [1]}
SPENT = TotalUsage(100, 10, requests=2, latencies=(0.5,), cost=0.25)


def played(task, *, won=True, failure=""):
    game = PlayedGame(task, "corridor", 1, (won,), 1.0, 1, 1, 0, 0, SPENT, failure=failure)
    return Played(game, [step_record(group=f"1/{task}", trajectory=f"1/{task}#0", task_id=task)])


def rows(journal):
    return [json.loads(line)["task_id"] for line in journal.rollouts.read_text().splitlines()]


def test_what_was_played_is_there_when_it_is_opened_again(tmp_path):
    journal = GameJournal.open(tmp_path / "a.json", WHAT)
    journal.add(played("x"))
    journal.add(played("y", won=False))
    again = GameJournal.open(tmp_path / "a.json", WHAT)
    assert again.games == journal.games
    assert list(again.games) == ["1/x", "1/y"]
    assert again.finished("1/y")
    assert not again.finished("1/z")
    assert again.cost == pytest.approx(0.5)
    assert rows(again) == ["x", "y"]


def test_a_failed_game_is_not_finished_but_was_paid(tmp_path):
    journal = GameJournal.open(tmp_path / "a.json", WHAT)
    journal.add(played("x", failure="gone"))
    again = GameJournal.open(tmp_path / "a.json", WHAT)
    assert not again.finished("1/x")
    again.add(played("x"))
    last = GameJournal.open(tmp_path / "a.json", WHAT)
    assert last.finished("1/x")
    assert last.cost == pytest.approx(0.5)
    assert rows(last) == ["x"]


def test_steps_of_games_that_were_cut_off_and_half_lines_are_dropped(tmp_path):
    journal = GameJournal.open(tmp_path / "a.json", WHAT)
    journal.add(played("x"))
    lines = journal.lines.read_text()
    journal.add(played("y"))
    journal.lines.write_text(lines + '{"task": "y", "ki')
    with journal.rollouts.open("a") as half:
        half.write('{"group": "1/y", "pro')
    again = GameJournal.open(tmp_path / "a.json", WHAT)
    assert list(again.games) == ["1/x"]
    assert rows(again) == ["x"]
    again.add(played("y"))
    assert rows(again) == ["x", "y"]


def test_wherever_it_is_killed_no_game_is_there_twice_or_half(tmp_path):
    def work():
        journal = GameJournal.open(tmp_path / "a.json", WHAT)
        for task in ("x", "y"):
            if not journal.finished(f"1/{task}"):
                journal.add(played(task))

    for place in killed_at_each_call(work):
        journal = GameJournal.open(tmp_path / "a.json", WHAT)
        steps = rows(journal) if journal.rollouts.exists() else []
        assert steps == [game.removeprefix("1/") for game in journal.games], place
        for path in tmp_path.iterdir():
            path.unlink()
    assert rows(GameJournal.open(tmp_path / "a.json", WHAT)) == ["x", "y"]


def test_games_of_another_evaluation_are_refused_by_what_differs(tmp_path):
    GameJournal.open(tmp_path / "a.json", WHAT)
    with pytest.raises(JournalError, match=r"other settings \(model, temperature\)"):
        GameJournal.open(tmp_path / "a.json", {"model": "n", "seeds": [1], "temperature": 0})


def test_a_damaged_step_is_said(tmp_path):
    journal = GameJournal.open(tmp_path / "a.json", WHAT)
    journal.add(played("x"))
    journal.rollouts.write_text(journal.rollouts.read_text().replace('"group"', '"grouq"'))
    with pytest.raises(JournalError, match=r"a\.rollouts\.jsonl is damaged \('group'\); delete it and"):
        GameJournal.open(tmp_path / "a.json", WHAT)


@pytest.mark.parametrize(
    "text", ["", "{}\n", "[]\n", '{"evaluation": 3}\n', '{"evaluation": {"model": "m", "seeds": [1]}}\nnonsense\n']
)
def test_a_damaged_file_is_said(text, tmp_path):
    (tmp_path / "a.games.jsonl").write_text(text)
    with pytest.raises(JournalError, match=r"is damaged|other settings"):
        GameJournal.open(tmp_path / "a.json", WHAT)
