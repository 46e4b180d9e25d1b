import json

import pytest

from hgpo.evaluation.eval_log import EvalLog, EvalLogError
from hgpo.rollout.records import EpisodeSummary, StepCounts, TotalUsage
from killed import killed_at_each_call
from step_records import step_record

WHAT = {"model": "m", "seeds": [1]}
USAGE = TotalUsage(100, 10, requests=2, latencies=(0.5,), cost=0.25)


def played(task, *, won=True, failure=""):
    summary = EpisodeSummary(task, "corridor", 1, (won,), 1.0, StepCounts(1, 1), USAGE, failure=failure)
    return summary, [step_record(group=f"1/{task}", trajectory=f"1/{task}#0", task_id=task)]


def open_log(folder):
    return EvalLog(folder / "a.json", WHAT, keep_steps=True)


def rows(log):
    return [json.loads(line)["task_id"] for line in log.rollouts.read_text().splitlines()]


def test_what_was_played_is_there_when_it_is_opened_again(tmp_path):
    log = open_log(tmp_path)
    log.add(*played("x"))
    log.add(*played("y", won=False))
    again = open_log(tmp_path)
    assert again.episodes == log.episodes
    assert list(again.episodes) == ["1/x", "1/y"]
    assert again.finished("1/y")
    assert not again.finished("1/z")
    assert again.cost == pytest.approx(0.5)
    assert rows(again) == ["x", "y"]


def test_a_failed_game_is_not_finished_but_was_paid(tmp_path):
    log = open_log(tmp_path)
    log.add(*played("x", failure="gone"))
    again = open_log(tmp_path)
    assert not again.finished("1/x")
    again.add(*played("x"))
    last = open_log(tmp_path)
    assert last.finished("1/x")
    assert last.cost == pytest.approx(0.5)
    assert rows(last) == ["x"]


def test_half_a_surrogate_pair_in_a_servers_error_or_a_tasks_name_is_read_again(tmp_path):
    log = open_log(tmp_path)
    log.add(*played("x", failure="the server said \ud83d"))
    log.add(*played("\udcff"))
    assert open_log(tmp_path).episodes == log.episodes


def test_steps_of_games_that_were_cut_off_and_half_lines_are_dropped(tmp_path):
    log = open_log(tmp_path)
    log.add(*played("x"))
    lines = log.path.read_text()
    log.add(*played("y"))
    log.path.write_text(lines + '{"task": "y", "ki')
    with log.rollouts.open("a") as half:
        half.write('{"group": "1/y", "pro')
    again = open_log(tmp_path)
    assert list(again.episodes) == ["1/x"]
    assert rows(again) == ["x"]
    again.add(*played("y"))
    assert rows(again) == ["x", "y"]


def test_wherever_it_is_killed_no_game_is_there_twice_or_half(tmp_path):
    def work():
        log = open_log(tmp_path)
        for task in ("x", "y"):
            if not log.finished(f"1/{task}"):
                log.add(*played(task))

    for place in killed_at_each_call(work):
        log = open_log(tmp_path)
        steps = rows(log) if log.rollouts.exists() else []
        assert steps == [game.removeprefix("1/") for game in log.episodes], place
        for path in tmp_path.iterdir():
            path.unlink()
    assert rows(open_log(tmp_path)) == ["x", "y"]


def test_games_of_another_evaluation_are_refused_by_what_differs(tmp_path):
    open_log(tmp_path)
    with pytest.raises(EvalLogError, match=r"other settings \(model, temperature\)"):
        EvalLog(tmp_path / "a.json", {"model": "n", "seeds": [1], "temperature": 0})


def test_a_damaged_step_is_said(tmp_path):
    log = open_log(tmp_path)
    log.add(*played("x"))
    log.rollouts.write_text(log.rollouts.read_text().replace('"group"', '"grouq"'))
    with pytest.raises(EvalLogError, match=r"a\.rollouts\.jsonl is damaged \('group'\); delete it and"):
        open_log(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "{}\n", "[]\n", '{"evaluation": 3}\n', '{"evaluation": {"model": "m", "seeds": [1]}}\nnonsense\n']
)
def test_a_damaged_file_is_said(text, tmp_path):
    (tmp_path / "a.games.jsonl").write_text(text)
    with pytest.raises(EvalLogError, match=r"is damaged|other settings"):
        open_log(tmp_path)
