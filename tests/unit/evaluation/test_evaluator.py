"""One evaluator: order and interruption change nothing, and failures are named or raised."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from corridor import CorridorSuite
from hgpo.agents import TEMPLATES, Agent
from hgpo.envs.env_checker import EnvContractError
from hgpo.envs.wrappers import LimitedSuite
from hgpo.evaluation.eval_log import log_path
from hgpo.evaluation.evaluator import NO_LIMIT, EvalBudget, Evaluator
from hgpo.evaluation.result_files import read_evaluation
from hgpo.policies.wrappers import AsyncBatcher
from hgpo.rollout.prompts import RolloutRules
from hgpo.utils.progress import Reporter
from killed import Killed
from scripted_policy import ScriptedPolicy

TASKS = LimitedSuite(CorridorSuite(longest=6), max_steps=8).tasks("held_out")
COMPACT = TEMPLATES.get("compact")


def straight_on(prompt, rng):
    """Opens the door when there, but only if it is not the far one."""
    goal = int(prompt.split("place ")[1].split()[0])
    return "open door" if prompt.split()[-1] == str(goal) and goal < 6 else "go right"


def guess(prompt, rng):
    return str(rng.choice(["go right", "open door", "go left"]))


def evaluator(tasks=TASKS, seeds=(1,), budget=NO_LIMIT, temperature=0.4):
    return Evaluator(
        tasks,
        "corridor",
        "direct",
        Agent(COMPACT, 2),
        RolloutRules(COMPACT, history_length=2, temperature=temperature),
        split="held_out",
        seeds=seeds,
        reporter=Reporter(quiet=True),
        budget=budget,
    )


@pytest.fixture
def output(tmp_path):
    return tmp_path / "evaluation.json"


def test_each_task_is_played_once_per_seed(output):
    stored = evaluator(seeds=(1, 2, 3)).evaluate(ScriptedPolicy(straight_on), output, model="scripted")
    figures = stored.evaluation
    assert figures.tasks_won == {"held_out/2": 1.0, "held_out/4": 1.0, "held_out/6": 0.0}
    assert figures.by_seed == (2 / 3, 2 / 3, 2 / 3)
    assert figures.episode_length == pytest.approx((3 + 5 + 8) / 3)
    assert figures.valid_actions == figures.admissible_actions == 1.0
    assert (stored.episodes, stored.failed, stored.requests) == (9, 0, 48)
    assert (stored.model, stored.agent, stored.environment) == ("scripted", "direct", "corridor")
    assert read_evaluation(output) == stored
    assert [path.name for path in output.parent.iterdir()] == ["evaluation.json"]  # no log of a complete evaluation


@pytest.mark.parametrize("most", [2, *(pytest.param(most, marks=pytest.mark.slow) for most in (1, 256))])
@pytest.mark.parametrize("form", [ScriptedPolicy, lambda answer: AsyncBatcher(ScriptedPolicy(answer))])
def test_a_sampled_policy_gets_the_same_figures_in_any_order(most, form, output):
    expected = evaluator(seeds=(7, 8)).evaluate(ScriptedPolicy(guess), output, model="m").evaluation
    budget = EvalBudget(max_concurrency=most)
    assert evaluator(seeds=(7, 8), budget=budget).evaluate(form(guess), output, model="m").evaluation == expected
    of_one_seed = evaluator(seeds=(8,)).evaluate(form(guess), output, model="m").evaluation
    assert of_one_seed.by_seed == expected.by_seed[1:]
    of_two_tasks = evaluator(TASKS[:2], seeds=(7, 8)).evaluate(form(guess), output, model="m").evaluation
    assert of_two_tasks.tasks_won.items() <= expected.tasks_won.items()


def test_a_killed_evaluation_resumes_task_by_task(output):
    expected = evaluator(seeds=(7, 8)).evaluate(ScriptedPolicy(guess), output, model="m")
    output.unlink()
    one_by_one = EvalBudget(max_concurrency=1)
    asked = []

    def dies(prompt, rng):
        asked.append(prompt)
        if len(asked) == 30:
            raise Killed
        return guess(prompt, rng)

    with pytest.raises(Killed):
        evaluator(seeds=(7, 8), budget=one_by_one).evaluate(ScriptedPolicy(dies), output, model="m")
    assert not output.exists()
    logged = len(log_path(output).read_text().splitlines()) - 1
    assert logged > 0
    seen = []

    def counted(prompt, rng):
        seen.append(prompt)
        return guess(prompt, rng)

    resumed = evaluator(seeds=(7, 8)).evaluate(ScriptedPolicy(counted), output, model="m")
    assert resumed.evaluation == expected.evaluation
    assert resumed.requests == expected.requests
    assert len(seen) < expected.requests
    assert resumed.seconds is None
    assert not log_path(output).exists()


def broken_at(goal):
    """A policy's answer that leaves no prompt, as an environment would that breaks its contract."""

    def answer(prompt, rng):
        if f"place {goal} now" in prompt:
            raise EnvContractError("the environment is broken")
        return straight_on(prompt, rng)

    return ScriptedPolicy(answer)


def test_an_error_ends_the_evaluation_or_is_named(output):
    one_by_one = EvalBudget(max_concurrency=1)
    with pytest.raises(EnvContractError, match=r"^the environment is broken$"):
        evaluator(budget=one_by_one).evaluate(broken_at(4), output, model="m")
    assert not output.exists()
    stored = evaluator(budget=one_by_one).evaluate(broken_at(4), output, model="m", keep_going=True)
    assert (stored.episodes, stored.failed) == (2, 1)
    assert [(one.task, one.reason) for one in stored.failures] == [
        ("held_out/4", "EnvContractError: the environment is broken")
    ]
    assert json.loads(output.read_text())["failures"][0]["seed"] == 1
    assert log_path(output).exists()  # the next call plays the failed task again
    again = evaluator().evaluate(ScriptedPolicy(straight_on), output, model="m", keep_going=True)
    assert (again.episodes, again.failed) == (3, 0)


def test_an_evaluation_without_an_episode_is_an_error(output):
    with pytest.raises(ValueError, match="none of 1 episodes was played to its end: EnvContractError"):
        evaluator(TASKS[1:2]).evaluate(broken_at(4), output, model="m", keep_going=True)
    again = evaluator(TASKS[1:2]).evaluate(ScriptedPolicy(straight_on), output, model="m", keep_going=True)
    assert again.seconds is None  # the first attempt took a part


def test_a_set_with_a_task_twice_is_refused():
    with pytest.raises(ValueError, match="names a task twice"):
        evaluator([TASKS[0], TASKS[0]])


def test_requests_of_failed_attempts_are_counted_as_their_cost_is(output):
    one_by_one, answered = EvalBudget(max_concurrency=1), []

    def breaks_once(prompt, rng):
        answered.append(prompt)
        if len(answered) == 6:
            raise EnvContractError("the environment is broken")
        return straight_on(prompt, rng)

    played = evaluator(budget=one_by_one)
    failed = played.evaluate(ScriptedPolicy(breaks_once), output, model="m", keep_going=True)
    assert (failed.failed, failed.requests) == (1, 3 + 2 + 8)
    whole = played.evaluate(ScriptedPolicy(straight_on), output, model="m", keep_going=True)
    assert (whole.failed, whole.requests) == (0, 3 + 2 + 5 + 8)


def test_one_task_is_not_called_tasks(output, capsys):
    one = replace(evaluator(TASKS[:1]), reporter=Reporter())
    one.evaluate(ScriptedPolicy(straight_on), output, model="m")
    assert "on 1 task of held_out" in capsys.readouterr().out
