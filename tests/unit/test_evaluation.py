import numpy as np
import pytest

from hgpo.agents import get_template
from hgpo.envs.wrappers import LimitedSuite
from hgpo.evaluation.statistics import Evaluation, evaluate, gain, mean_interval, rate, student_95, wilson_interval
from hgpo.rollout.prompts import RolloutRules
from scripted_policy import ScriptedPolicy

RULES = RolloutRules(get_template("compact"), history_length=2, temperature=1.0)


def straight_on(prompt, rng):
    """Opens the door when there, but only if it is not the far one."""
    goal = int(prompt.split("place ")[1].split()[0])
    return "open door" if prompt.split()[-1] == str(goal) and goal < 6 else "go right"


def play(suite, answer=straight_on, seeds=(1,), **options):
    tasks = LimitedSuite(suite, 8).tasks("held_out")
    return evaluate(tasks, ScriptedPolicy(answer), RULES, split="held_out", seeds=seeds, temperature=0.4, **options)


def test_each_task_is_played_once_per_seed(corridor_suite):
    evaluation = play(corridor_suite, seeds=(1, 2, 3), batch=2)
    assert evaluation.tasks_won == {"held_out/2": 1.0, "held_out/4": 1.0, "held_out/6": 0.0}
    assert evaluation.success.mean == pytest.approx(2 / 3)
    assert evaluation.success.tasks == 3
    assert evaluation.by_seed == (2 / 3, 2 / 3, 2 / 3)
    assert evaluation.by_task_type.keys() == {"corridor"}
    assert evaluation.episode_length == pytest.approx((3 + 5 + 8) / 3)
    assert evaluation.valid_actions == 1.0
    assert evaluation.admissible_actions == 1.0


def test_the_same_seed_gives_the_same_evaluation_and_counts_are_reported(corridor_suite):
    def guess(prompt, rng):
        return str(rng.choice(["go right", "open door", "go left"]))

    counts = []
    first = play(corridor_suite, guess, on_progress=lambda done, total: counts.append((done, total)), batch=2)
    assert first == play(corridor_suite, guess, batch=2)
    assert counts == sorted(counts)  # after every turn, across batches
    assert {(2, 3), (3, 3)} <= set(counts) <= {(done, 3) for done in range(4)}


def test_wilson_interval_has_the_published_values():
    # Wilson score interval, 95 %: 8 of 10 -> (0.490, 0.943); 0 of 20 -> (0, 0.161)
    assert wilson_interval(0.8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson_interval(0.0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)


def test_several_seeds_do_not_count_as_more_tasks():
    wins = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0] * 10
    once = rate(wins, seeds=1)
    thrice = rate(wins, seeds=3)
    assert once.tasks == thrice.tasks == 60
    assert thrice.high - thrice.low == pytest.approx(2 * 1.96 * np.std(wins, ddof=1) / 60**0.5, rel=1e-3)
    assert 0.9 < (once.high - once.low) / (thrice.high - thrice.low) < 1.1


def test_gain_is_paired_by_task(corridor_suite):
    before = play(corridor_suite, lambda prompt, rng: "go left")
    after = play(corridor_suite)
    change = gain(before, after)
    assert change.mean == pytest.approx(2 / 3)
    assert change.low < change.mean < change.high
    other = play(type(corridor_suite)(longest=4))
    with pytest.raises(ValueError, match="not on the same tasks"):
        gain(before, other)


def panel(outcomes: list[float]) -> Evaluation:
    won = {str(game): outcome for game, outcome in enumerate(outcomes)}
    return Evaluation(
        "held_out", 0.4, (123,), rate(outcomes), 0.0, (float(np.mean(outcomes)),), {}, 1.0, 1.0, None, won
    )


@pytest.mark.parametrize(
    ("before", "after", "low", "high"),
    [
        # no correlation: the sides are those of 0 of 8 (Wilson: 0 to .3244) and 8 of 8
        ([0.0] * 8, [1.0] * 8, 1 - 0.3244 * 2**0.5, 1.0),
        ([0.0] * 8, [0.0] * 8, -0.3244, 0.3244),
        # the same four of eight twice: covariance 2 - 1/2 of 2, sides of .2848
        ([0.0, 1.0] * 4, [0.0, 1.0] * 4, -0.2848 * 0.5**0.5, 0.2848 * 0.5**0.5),
    ],
)
def test_the_interval_of_a_gain_never_claims_certainty(before, after, low, high):
    change = gain(panel(before), panel(after))
    assert (change.low, change.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


@pytest.mark.parametrize(("games", "before", "after"), [(16, 0.02, 0.1), (64, 0.01, 0.03), (256, 0.35, 0.6)])
def test_nineteen_of_twenty_intervals_hold_the_gain(games, before, after):
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(400):
        shared, own = rng.random((2, games))
        second = np.where(rng.random(games) < 0.5, shared, own)
        change = gain(panel(list(1.0 * (shared < before))), panel(list(1.0 * (second < after))))
        held += change.low <= after - before <= change.high
    assert held >= 0.93 * 400


def test_an_empty_or_repeated_panel_is_refused(corridor_suite):
    tasks = corridor_suite.tasks("held_out")
    for panel, message in ((), "has no tasks"), ([tasks[0], tasks[0]], "names a task twice"):
        with pytest.raises(ValueError, match=message):
            evaluate(panel, ScriptedPolicy(straight_on), RULES, split="held_out", seeds=(1,), temperature=0.4)


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (1000, 1.962)]
)
def test_students_quantiles_are_those_of_the_tables(freedom, quantile):
    assert student_95(freedom) == pytest.approx(quantile, abs=0.004)


def test_the_interval_over_training_seeds_is_students():
    """1, 3, -1: mean 1, standard deviation 2, two degrees of freedom."""
    half = 4.303 * 2 / 3**0.5
    assert mean_interval([1, 3, -1]) == pytest.approx((1, 1 - half, 1 + half), abs=1e-3)
    with pytest.raises(ValueError, match="needs at least 2, got 1"):
        mean_interval([1.0])
