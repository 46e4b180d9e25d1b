import numpy as np
import pytest

from hgpo.evaluation.statistics import (
    Rate,
    detectable,
    detectable_by,
    gain,
    mean_interval,
    paired_bootstrap,
    rate,
    student_quantile,
    summarise,
    units_needed,
    wilson_interval,
)
from hgpo.rollout.records import EpisodeSummary, StepCounts, TotalUsage
from panels import panel

USAGE = TotalUsage(prompt_tokens=0, response_tokens=0, requests=0)


def end(task, *, won, seed=1, steps=4, score=0.0):
    return EpisodeSummary(task, task.split("/")[0], seed, (won,), score, StepCounts(steps, steps, 2, 1), USAGE)


def summary(ends, seeds=(1,)):
    return summarise(ends, split="held_out", seeds=seeds, temperature=0.4)


def test_the_figures_of_two_seeds_by_hand():
    evaluation = summary(
        [
            end("heat/0", won=True, score=1.0),
            end("cool/0", won=False, steps=8),
            end("heat/0", won=False, seed=2),
            end("cool/0", won=False, seed=2),
        ],
        seeds=(1, 2),
    )
    assert evaluation.tasks_won == {"heat/0": 0.5, "cool/0": 0.0}
    assert evaluation.success.mean == 0.25
    assert evaluation.success.tasks == 2
    assert evaluation.by_seed == (0.5, 0.0)
    assert {kind: rate.mean for kind, rate in evaluation.by_task_type.items()} == {"heat": 0.5, "cool": 0.0}
    assert evaluation.score == 0.25
    assert evaluation.episode_length == 5
    assert evaluation.valid_actions == 1.0
    assert evaluation.admissible_actions == 0.5


def test_score_and_success_are_means_over_tasks_also_where_an_episode_failed():
    """Task a was won and its second episode failed; b was lost twice."""
    ends = [end("a", won=True, score=1.0), end("b", won=False), end("b", won=False, seed=2)]
    evaluation = summary(ends, seeds=(1, 2))
    assert (evaluation.success.mean, evaluation.score) == (0.5, 0.5)


def test_wilson_interval_has_the_published_values():
    # Wilson score interval, 95 %: 8 of 10 -> (0.490, 0.943); 0 of 20 -> (0, 0.161)
    assert wilson_interval(0.8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson_interval(0.0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)


def test_several_seeds_do_not_count_as_more_tasks():
    wins = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0] * 10
    once = rate(wins, seeds=1)
    thrice = rate(wins, seeds=3)
    assert once == thrice, "tasks that are always or never won count once"
    halves = rate([0.5] * 60, seeds=2)
    assert (halves.low, halves.high) == pytest.approx(wilson_interval(0.5, 120)), "tasks that are all alike count twice"


def test_one_lost_episode_more_does_not_raise_the_lower_limit():
    all_won, one_lost = rate([1.0] * 24, seeds=3), rate([1.0] * 23 + [2 / 3], seeds=3)
    assert one_lost.low == pytest.approx(all_won.low, abs=0.005)  # by the normal interval .959, after .862
    assert one_lost.high < 1.0


@pytest.mark.parametrize(
    ("tasks", "seeds", "mean", "spread"), [(24, 3, 0.95, 2), (64, 3, 0.02, 0.3), (24, 10, 0.95, 2), (256, 3, 0.9, 1)]
)
def test_nineteen_of_twenty_intervals_over_several_seeds_hold_the_rate(tasks, seeds, mean, spread):
    """Tasks' chances follow a beta distribution; the normal interval held 0.88, 0.92, 0.85 and 0.94 of them."""
    rng = np.random.default_rng(7)
    chance_RT = rng.beta(mean / spread, (1 - mean) / spread, (600, tasks))
    rates = [rate(wins.tolist(), seeds) for wins in rng.binomial(seeds, chance_RT) / seeds]
    assert np.mean([one.low <= mean <= one.high for one in rates]) >= 0.94


def test_intervals_stay_between_0_and_1():
    assert wilson_interval(0.0, 40)[0] == 0.0  # less than 0, and below more than 1, by rounding
    assert wilson_interval(1.0, 40)[1] == 1.0


def test_types_of_task_have_the_interval_of_all_seeds_and_an_unplayed_seed_has_no_success():
    ends = [end(f"heat/{place}", won=place < 2, seed=seed) for place in range(4) for seed in (1, 2)]
    evaluation = summary(ends, seeds=(1, 2, 3))
    assert evaluation.by_task_type == {"heat": rate([1.0, 1.0, 0.0, 0.0], seeds=3)} == {"heat": evaluation.success}
    assert evaluation.by_seed == (0.5, 0.5, None)


def test_gain_is_paired_by_task():
    before = summary([end(f"heat/{place}", won=False) for place in range(3)])
    after = summary([end(f"heat/{place}", won=place < 2) for place in range(3)])
    change = gain(before, after)
    assert change.mean == pytest.approx(2 / 3)
    assert change.low < change.mean < change.high
    with pytest.raises(ValueError, match="cannot be paired"):
        gain(before, summary([end("heat/0", won=True)]))


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
    change = gain(panel({"walk": before}), panel({"walk": after}))
    assert (change.low, change.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


@pytest.mark.parametrize(
    ("games", "before", "after"),
    [(16, 0.02, 0.1), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((64, 0.01, 0.03), (256, 0.35, 0.6)))],
)
def test_nineteen_of_twenty_intervals_hold_the_gain(games, before, after):
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(400):
        shared, own = rng.random((2, games))
        second = np.where(rng.random(games) < 0.5, shared, own)
        change = gain(panel({"walk": 1.0 * (shared < before)}), panel({"walk": 1.0 * (second < after)}))
        held += change.low <= after - before <= change.high
    assert held >= 0.93 * 400


@pytest.mark.parametrize(
    ("freedom", "limit", "power"),
    [(1, 12.706, 1.3764), (2, 4.303, 1.0607), (3, 3.182, 0.9785), (9, 2.262, 0.8834), (1000, 1.962, 0.8420)],
)
def test_students_quantiles_are_those_of_the_tables(freedom, limit, power):
    assert student_quantile(0.975, freedom) == pytest.approx(limit, abs=0.004)
    assert student_quantile(0.8, freedom) == pytest.approx(power, abs=0.004)


@pytest.mark.parametrize("seeds", [2, 3, 4, 5, 6])
def test_the_detectable_difference_is_found_in_80_of_100_cases(seeds):
    rng, deviation = np.random.default_rng(0), 0.06
    least = detectable(deviation, seeds)
    intervals = [mean_interval(rng.normal(least, deviation, seeds)) for _ in range(6000)]
    assert np.mean([low > 0 for _, low, _ in intervals]) == pytest.approx(0.8, abs=0.02)


def test_what_tasks_detect_follows_from_the_interval_of_their_gain():
    """By hand: a standard error of 0.3 / 3.92, times 2.365 + 0.896, Student's quantiles with 7 degrees of freedom."""
    assert detectable_by(Rate(0.25, 0.1, 0.4, 8)) == pytest.approx(0.3 / 3.92 * (2.365 + 0.896), abs=1e-3)
    assert detectable_by(Rate(0.0, -0.9, 0.9, 3)) == detectable_by(Rate(1.0, -0.1, 1.0, 1)) == 1.0


def test_the_number_needed_is_the_least_that_detects_the_difference():
    needed = units_needed(0.06, 0.05)
    assert detectable(0.06, needed) <= 0.05 < detectable(0.06, needed - 1)
    assert units_needed(1e-6, 0.05) == 2


def test_the_bootstrap_of_one_seed_is_over_tasks():
    difference_ST = np.array([[1.0, 0.0] * 50])
    assert paired_bootstrap(difference_ST) == pytest.approx((0.4, 0.6), abs=0.01)  # 1.96 * .5 / sqrt(100) = .098
    assert paired_bootstrap(difference_ST) == paired_bootstrap(difference_ST)


def test_the_bootstrap_covers_the_variation_between_seeds():
    """Tasks that all differ alike vary between seeds only, and seeds that differ alike between tasks only."""
    of_seeds = np.repeat(np.array([0.0, 0.1, 0.2, 0.3]), 50).reshape(4, 50)
    low, high = paired_bootstrap(of_seeds)
    assert (low, high) == pytest.approx((0.05, 0.25), abs=0.03)
    of_tasks = np.tile([1.0, 0.0], 50)[None].repeat(4, axis=0)
    assert paired_bootstrap(of_tasks) == pytest.approx((0.4, 0.6), abs=0.02)


def test_the_interval_over_training_seeds_is_students():
    """1, 3, -1: mean 1, standard deviation 2, two degrees of freedom."""
    half = 4.303 * 2 / 3**0.5
    assert mean_interval([1, 3, -1]) == pytest.approx((1, 1 - half, 1 + half), abs=1e-3)
    with pytest.raises(ValueError, match="needs at least 2, got 1"):
        mean_interval([1.0])


def test_a_seed_without_an_episode_keeps_its_place():
    evaluation = summary([end("heat/0", won=True), end("heat/0", won=False, seed=3)], seeds=(1, 2, 3))
    assert evaluation.by_seed == (1.0, None, 0.0)
    assert evaluation.seed_deviation == pytest.approx(0.5**0.5)
    assert summary([end("heat/0", won=True)], seeds=(1, 2)).seed_deviation is None
