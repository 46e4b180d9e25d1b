"""`hgpo audit`: clean logs of every shape pass; each violation changes the exit status and is named with its tasks."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from audited import (
    FIRST_PROMPT,
    SHAPES,
    CleanLogs,
    Row,
    digest,
    episode_rows,
    manifest,
    observation_of,
    task_ids,
)
from compared import write_run
from hgpo.cli.main import main
from hgpo.evaluation.manifests import Catalogue, write_manifest
from hgpo.evaluation.result_files import Failure, StoredEvaluation, write_evaluation
from hgpo.evaluation.statistics import rate
from house import write_rows
from panels import panel

Run = Callable[..., tuple[int, str]]
TASKS = task_ids(6)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("HGPO_DEBUG", raising=False)

    def audit(*words: Any) -> tuple[int, str]:
        status = main(["audit", *map(str, words)])
        shown = capsys.readouterr()
        return status, shown.out + shown.err

    return audit


@pytest.fixture
def expected(tmp_path: Path) -> Path:
    """The list of the six tasks."""
    path = tmp_path / "expected.json"
    path.write_text(json.dumps(TASKS))
    return path


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """The manifest of the six tasks."""
    path = tmp_path / "manifest.json"
    write_manifest(path, manifest(TASKS))
    return path


def violations(run: Run, *words: Any) -> dict[str, list[str]]:
    """Kind -> tasks, of all logs; checks the exit status and that the text names the same."""
    status, shown = run(*words, "--json")
    found = {one["kind"]: list(one["tasks"]) for audit in json.loads(shown)["audits"] for one in audit["violations"]}
    assert status == int(bool(found))
    again, said = run(*words)
    assert again == status
    for kind, tasks in found.items():
        assert f"violation: {kind}: {len(tasks)} task" in said
        assert all(task in said.replace("\n", "") for task in tasks[:8])
    assert ("no violation" in said) is not bool(found)
    return found


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_clean_logs_pass(shape: str, seed: int, tmp_path: Path, run: Run) -> None:
    chance = random.Random(f"{shape} {seed}")
    tasks = task_ids(chance.randint(5, 40))
    write_manifest(tmp_path / "set/own.json", manifest(tasks))
    log = SHAPES[shape](CleanLogs(tmp_path, chance, tasks))
    given = [] if shape == "run" else ["--tasks", tmp_path / "set/own.json"]  # the run has two evaluation sets
    status, shown = run(log, *given, "--json")
    audits = json.loads(shown)["audits"]
    assert (status, [one["violations"] for one in audits]) == (0, [[]] * len(audits))
    assert {one["tasks"] for one in audits} == {one["expected"] for one in audits} == {len(tasks)}
    assert sum(len(one["passes"]) for one in audits) == CHECKPOINTS.get(shape, 1)
    assert not any(each["more"] or each["fewer"] for one in audits for each in one["passes"])


CHECKPOINTS = {"seeds_and_checkpoints": 3, "dumps_of_verl_agent": 2, "dumps_of_verl": 3, "run": 4}


def rows_of(tasks: Sequence[str], changed: Row | None = None, **columns: Any) -> list[Row]:
    """Episodes of these tasks; `changed` has other values for the first one."""
    rows = episode_rows(tasks, random.Random(1), **columns)
    return [{**rows[0], **(changed or {})}, *rows[1:]]


OTHERS, TRAINED = task_ids(2, "valid_unseen"), task_ids(1, "train")
VIOLATIONS: dict[str, tuple[list[Row], dict[str, list[str]], str]] = {
    "a task three times": (
        rows_of([*TASKS, TASKS[2], TASKS[2]]),
        {"repeated": [TASKS[2]]},
        f"to equalise: leave out plays of 1 task: {TASKS[2]} (2)",
    ),
    "a task twice with one seed, at equal numbers of plays": (
        [*rows_of(TASKS, {"seed": 2}, seed=1), *rows_of(TASKS, seed=2)],
        {"repeated": [TASKS[0]]},
        "seeds: 1, 2",
    ),
    "a task less often": (
        rows_of([*TASKS, *TASKS[:5]]),
        {"unequal": [TASKS[5]]},
        f"to equalise: play 1 task more: {TASKS[5]} (1)",
    ),
    "missing tasks": (rows_of(TASKS[1:5]), {"missing": [TASKS[0], TASKS[5]]}, "to equalise: play 2 tasks more"),
    "tasks of another split": (rows_of([*TASKS, *OTHERS]), {"other split": OTHERS}, "valid_seen 6, valid_unseen 2"),
    "training tasks": (rows_of([*TASKS, *TRAINED]), {"training": TRAINED}, "of the split train"),
    "unknown tasks": (rows_of([*TASKS, "made-up"]), {"unknown": ["made-up"]}, "unknown 1"),
    "another seed for a task": (rows_of(TASKS, {"seed": 4}, seed=3), {"seeds": [TASKS[0]]}, "seeds: 3, 4"),
}


@pytest.mark.parametrize(("rows", "found", "said"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_a_violation_is_named_with_its_tasks(
    rows: list[Row], found: dict[str, list[str]], said: str, tmp_path: Path, run: Run, expected: Path
) -> None:
    log = write_rows(tmp_path / "log.jsonl", rows)
    assert violations(run, log, "--tasks", expected) == found
    assert said in " ".join(run(log, "--tasks", expected)[1].split())  # lines of long paths are folded


def test_failed_episodes_of_a_result_file(tmp_path: Path, run: Run) -> None:
    won = dict.fromkeys(TASKS, 1.0)
    evaluation = panel({"put": [1.0]}, tasks_won=won, seeds=(1, 2), split="valid_seen")
    failed = StoredEvaluation(evaluation, failures=(Failure(TASKS[3], 2, "timed out"),))
    write_evaluation(tmp_path / "result.json", failed)
    assert violations(run, tmp_path / "result.json") == {"unequal": [TASKS[3]]}


def test_a_result_that_differs_from_its_manifest(tmp_path: Path, run: Run) -> None:
    evaluation = panel({"put": [1.0]}, tasks_won=dict.fromkeys(TASKS, 1.0), split="valid_seen")
    write_evaluation(tmp_path / "result.json", StoredEvaluation(evaluation, manifest_differs=(TASKS[2],)))
    assert violations(run, tmp_path / "result.json") == {"mixed": [TASKS[2]]}


def test_checkpoints_with_different_tasks(tmp_path: Path, run: Run) -> None:
    for step, tasks in ((10, TASKS), (20, TASKS[:4])):
        write_rows(tmp_path / f"log/{step}.jsonl", episode_rows(tasks, random.Random(1)))
    assert violations(run, tmp_path / "log") == {"missing": TASKS[4:]}
    assert "at checkpoint 20" in run(tmp_path / "log")[1]


def test_a_split_with_the_name_of_another(tmp_path: Path, run: Run) -> None:
    log = write_rows(tmp_path / "log.jsonl", episode_rows(TASKS, random.Random(1), split="eval_out_of_distribution"))
    assert violations(run, log) == {"other split": TASKS}
    assert "valid_seen, labelled valid_unseen" in run(log)[1]


def test_tasks_of_the_runs_own_rollouts(tmp_path: Path, run: Run) -> None:
    log = write_run(tmp_path / "run", {"after": panel({"walk": [1, 0, 1]})})
    rows = [{"group": f"u1/{task}", "task_id": task, "step": 0} for task in ("train/1", "walk/1")]
    write_rows(log / "rollouts/00001.jsonl", rows)
    assert violations(run, log) == {"training": ["walk/1"]}


def test_another_game_under_one_id(tmp_path: Path, run: Run, known: Path) -> None:
    rows = [{**row, "game_sha256": digest(row["task_id"])} for row in episode_rows(TASKS, random.Random(1))]
    log = write_rows(tmp_path / "log.jsonl", rows)
    assert violations(run, log, "--tasks", known) == {}
    rows[4]["game_sha256"] = digest("another")
    log = write_rows(tmp_path / "log.jsonl", rows)
    assert violations(run, log, "--tasks", known) == {"mixed": [TASKS[4]]}
    log = write_rows(tmp_path / "log.jsonl", [*rows, *({**row, "game_sha256": "0"} for row in rows[:1]), *rows[1:]])
    assert violations(run, log) == {"mixed": [TASKS[0]]}


def test_another_catalogue(tmp_path: Path, run: Run, known: Path) -> None:
    rows = episode_rows(TASKS, random.Random(1), catalogue=1000)
    rows[5]["catalogue"] = 1181436
    log = write_rows(tmp_path / "log.jsonl", rows)
    assert violations(run, log) == {"mixed": [TASKS[5]]}
    whole = Catalogue(name="items_shuffle", products=1181436, digest=digest("shop"))
    write_manifest(known, manifest(TASKS, whole))
    assert violations(run, log, "--tasks", known) == {"mixed": TASKS[:5]}


def dump(path: Path, tasks: Sequence[str], step: int) -> Path:
    rows: list[Row] = []
    for task in tasks:
        prompt = FIRST_PROMPT.format(observation=observation_of(task))
        rows.append({"input": prompt, "output": "", "score": 0.0, "step": step})
    return write_rows(path / f"{step}.jsonl", rows)


def test_dumps_without_ids_are_identified_by_first_observations(tmp_path: Path, run: Run, known: Path) -> None:
    dump(tmp_path / "log", [*TASKS[:4], TASKS[0]], 10)
    found = violations(run, tmp_path / "log", "--tasks", known)
    assert found == {"repeated": [TASKS[0]], "missing": TASKS[4:]}


def test_tasks_with_one_text_share_their_plays(tmp_path: Path, run: Run, known: Path) -> None:
    """Two tasks with one first observation: three plays of it repeat one of them, two need not."""
    alike = manifest(TASKS)
    twins = [
        task.model_copy(update={"observation": alike.tasks[0].observation}) if task.id == TASKS[1] else task
        for task in alike.tasks
    ]
    write_manifest(known, alike.model_copy(update={"tasks": tuple(twins)}))
    dump(tmp_path / "log", [TASKS[0], *TASKS[2:], TASKS[0]], 10)
    assert violations(run, tmp_path / "log", "--tasks", known) == {}
    assert "2 episodes may be of other tasks with the same text" in run(tmp_path / "log", "--tasks", known)[1]
    dump(tmp_path / "log", [TASKS[0], *TASKS[2:], TASKS[0], TASKS[0]], 10)
    assert violations(run, tmp_path / "log", "--tasks", known) == {"repeated": [TASKS[0]]}


def test_the_manifest_with_most_of_the_played_tasks_is_the_evaluation_set(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each first observation is that of one task of valid_seen and of three of train, which so has more ids."""
    seen, train = manifest(TASKS), manifest(task_ids(18, "train"))
    alike = [
        task.model_copy(update={"observation": seen.tasks[at % 6].observation}) for at, task in enumerate(train.tasks)
    ]
    train = train.model_copy(update={"id": "train-1", "split": "train", "tasks": tuple(alike)})
    for module in ("audit", "manifests"):
        known = {one.id: one for one in (train, seen)}
        monkeypatch.setattr(f"hgpo.evaluation.{module}.manifests", lambda known=known: known)
    assert violations(run, dump(tmp_path / "seen", TASKS, 10).parent) == {}
    assert "evaluation set: own-1, 6 tasks" in run(tmp_path / "seen")[1]
    log = write_rows(tmp_path / "train.jsonl", episode_rows(task_ids(18, "train"), random.Random(1)))
    assert violations(run, log) == {"training": sorted(task_ids(18, "train"))}
    assert "evaluation set: train-1, 18 tasks" in run(log)[1]
    assert violations(run, tmp_path / "seen", "--tasks", "train-1")["missing"] == sorted(task_ids(18, "train")[6:])


def test_peak_last_and_mean_of_checkpoints(tmp_path: Path, run: Run) -> None:
    for step, won in ((0, 6), (10, 3), (20, 5), (30, 4)):
        rows = [{"task_id": task, "success": place < won} for place, task in enumerate(TASKS)]
        write_rows(tmp_path / f"log/step_{step}.jsonl", rows)
    status, shown = run(tmp_path / "log", "--reported", 83.3)
    assert status == 0
    assert "peak 83.3 %, last 66.7 %, mean 66.7 %" in shown
    assert "the peak exceeds the last by 16.7 points the reported figure is peak, of checkpoint 20" in " ".join(
        shown.split()
    )
    assert "checkpoint 0, before training, is in neither peak nor mean" in shown
    assert "the reported figure is none of them" in " ".join(run(tmp_path / "log", "--reported", 90)[1].split())


def test_successes_that_are_carried_over_are_noted(tmp_path: Path, run: Run) -> None:
    """As logs of repeated attempts have them, in which only lost tasks are played again."""
    carried = "this may be success of all attempts so far"
    for step in (1, 2, 3):
        rows = [{"task_id": task, "success": place < 2 * step} for place, task in enumerate(TASKS)]
        write_rows(tmp_path / f"log/{step}.jsonl", rows)
    assert carried not in run(tmp_path / "log")[1]  # 4 tasks may improve by chance
    more = [*TASKS, *task_ids(12)[6:]]
    for step in (1, 2, 3):
        rows = [{"task_id": task, "success": place < 4 * step} for place, task in enumerate(more)]
        write_rows(tmp_path / f"log/{step}.jsonl", rows)
    status, shown = run(tmp_path / "log")
    assert status == 0
    assert carried in shown
    rows[0]["success"] = False
    write_rows(tmp_path / "log/3.jsonl", rows)
    assert carried not in run(tmp_path / "log")[1]


def test_trajectories_have_their_results_in_their_steps(tmp_path: Path, run: Run) -> None:
    rows = [
        {
            "group": task,
            "trajectory": 0,
            "steps": [{"observation": "a", "reward": 0.0}, {"observation": "b", "reward": won}],
        }
        for task, won in zip(TASKS, (1.0, 0.0, 1.0, 1.0, 0.0, 0.0), strict=True)
    ]
    status, shown = run(write_rows(tmp_path / "trajectories.jsonl", rows))
    assert status == 0
    assert " 50.0 % " in shown


@pytest.mark.parametrize("key", ["score", "final_reward"])
def test_a_score_in_every_step_is_not_added(key: str, tmp_path: Path, run: Run) -> None:
    rows = [
        {"task_id": task, "trajectory": 0, "step": step, "action": "go", key: float(place < 3)}
        for place, task in enumerate(TASKS)
        for step in range(2 + place)
    ]
    assert " 50.0 % " in run(write_rows(tmp_path / "log.jsonl", rows))[1]


def test_positions_are_replaced_by_what_the_first_observation_names(tmp_path: Path, run: Run, known: Path) -> None:
    rows = [{"game_id": 9 - place, "initial_obs": observation_of(task), "won": 1} for place, task in enumerate(TASKS)]
    log = write_rows(tmp_path / "log.jsonl", [*rows, rows[3]])
    assert violations(run, log, "--tasks", known) == {"repeated": [TASKS[3]]}


def test_repeats_do_not_narrow_the_interval(tmp_path: Path, run: Run) -> None:
    rows = [{"task_id": task, "success": place < 4} for place, task in enumerate(TASKS)] * 10
    log = write_rows(tmp_path / "log.jsonl", rows)
    [success] = [one["passes"][0]["success"] for one in json.loads(run(log, "--json")[1])["audits"]]
    wanted = rate([1.0] * 4 + [0.0] * 2, seeds=10)
    assert (success["mean"], success["low"], success["high"]) == (wanted.mean, wanted.low, wanted.high)
    assert success["tasks"] == 6


@pytest.mark.parametrize(("scores", "won"), [((0, 0.5, 1), 1), ((0.5, 1, 10), 1), ((99, 100, 100), 2)])
def test_success_is_the_full_score(scores: Sequence[float], won: int, tmp_path: Path, run: Run) -> None:
    rows = [{"task_id": task, "score": score} for task, score in zip(TASKS, scores, strict=False)]
    log = write_rows(tmp_path / "log.jsonl", rows)
    assert f"{100 * won / 3:.1f} %" in run(log)[1]
    assert "no column of successes" in run(log)[1]


def test_columns_are_named(tmp_path: Path, run: Run, expected: Path) -> None:
    rows = [{"where": task, "ok": 1} for task in TASKS]
    log = write_rows(tmp_path / "log.jsonl", rows)
    assert run(log, "--tasks", expected, "--column", "task=where", "--column", "success=ok")[0] == 0


@pytest.mark.parametrize(
    ("rows", "words", "message"),
    [
        ([{"success": True}], [], "no id of the task; there are success"),
        ([{"task_id": "a"}], [], "no success, won, score or reward"),
        ([{"task_id": "a", "success": "maybe"}], [], "key 'success'"),
        (
            [{"task_id": "a", "success": 1}],
            ["--column", "task=b"],
            "no row has the key b for task; name one of",
        ),
        ([{"task_id": "a", "success": 1}], ["--column", "colour=b"], "no column colour is read from logs"),
        ([{"task_id": "a", "success": 1}], ["--tasks", "nothing.json"], "nothing.json"),
        ([], [], "no rows"),
    ],
)
def test_a_mistake_is_status_2(
    rows: list[Row], words: list[str], message: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, shown = run(write_rows(tmp_path / "log.jsonl", rows), *words)
    assert status == 2
    assert message in shown


@pytest.mark.parametrize("text", ["[", "[]", "3", '["a", 1.5]'])
def test_a_wrong_list_of_tasks_is_status_2(text: str, tmp_path: Path, run: Run) -> None:
    log = write_rows(tmp_path / "log.jsonl", episode_rows(TASKS, random.Random(1)))
    (tmp_path / "tasks.json").write_text(text)
    status, shown = run(log, "--tasks", tmp_path / "tasks.json")
    assert status == 2
    assert "tasks.json" in shown


def test_untrusted_names_are_shown_without_controls(tmp_path: Path, run: Run, expected: Path) -> None:
    rows = episode_rows([*TASKS, "\x1b[31m[red]made up"], random.Random(1))
    status, shown = run(write_rows(tmp_path / "log.jsonl", rows), "--tasks", expected)
    assert status == 1
    assert "\x1b" not in shown
    assert "[red]made up" in shown


@pytest.mark.parametrize("goals", [100, 500])
def test_numbers_of_goals_are_those_of_the_official_shop(tmp_path: Path, run: Run, goals: int) -> None:
    """Goals of generated shops have numbers, too, and two sets of the package have the official ones."""
    rows = [{"goal_idx": number, "won": number % 2 == 0} for number in range(goals)]
    status, shown = run(write_rows(tmp_path / "shop.jsonl", rows), "--json")
    [report] = json.loads(shown)["audits"]
    assert (report["evaluation_set"], report["expected"], report["tasks"]) == ("webshop-test-1", 500, goals)
    assert status == int(goals < 500)


def test_paths_of_games_on_windows_are_recognised(tmp_path: Path, run: Run, expected: Path) -> None:
    rows = [{"gamefile": f"C:/data/json_2.1.1/{task}/game.tw-pddl".replace("/", "\\"), "won": True} for task in TASKS]
    assert violations(run, write_rows(tmp_path / "log.jsonl", rows), "--tasks", expected) == {}


@pytest.mark.parametrize(
    ("reported", "said"),
    [("66.7", "the reported figure is the success above"), ("95", "the reported figure is not the success above")],
)
def test_a_reported_figure_is_compared_with_a_single_success(
    reported: str, said: str, tmp_path: Path, run: Run
) -> None:
    rows = [{"task_id": task, "success": place < 4} for place, task in enumerate(TASKS)]
    assert said in run(write_rows(tmp_path / "log.jsonl", rows), "--reported", reported)[1]


@pytest.mark.parametrize("reported", ["nan", "-1", "many"])
def test_a_reported_figure_is_an_amount(reported: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["audit", str(tmp_path), "--reported", reported])
