"""The yardsticks themselves: the problems, the enumeration, the measures, and the figures published for them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chain import CONTEXT_SHARE, PROBLEMS, STRESS, Outcomes, Problem, enumerate_task, parts, sample
from hgpo.columns import FloatArray
from yardsticks import BATCH_WIDE, CONTENDERS, advantages, main, measure

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
KNOWN = {problem.name: problem for problem in (*PROBLEMS, *STRESS)}


def drawn(problem: str, batches: int, tasks: int = 16, trajectories: int = 8) -> Outcomes:
    return sample(KNOWN[problem], batches, tasks, trajectories, np.random.default_rng(5))


def measured(problem: str, name: str, outcomes: Outcomes) -> dict[str, float]:
    return measure(KNOWN[problem], outcomes, advantages(name, outcomes))


@pytest.mark.parametrize("problem", KNOWN.values(), ids=list(KNOWN))
def test_problems_are_what_they_say(problem: Problem) -> None:
    """Rewards are probabilities, and the gradient is that of the expected reward."""
    assert ((problem.reward_share >= 0) & (problem.reward_share <= 1)).all()

    def expected_reward(logit: FloatArray) -> float:
        take = 1 / (1 + np.exp(-logit))
        return float(
            (CONTEXT_SHARE * ((1 - take) * problem.reward_share[:, 0] + take * problem.reward_share[:, 1])).sum()
        )

    policy = np.array(problem.policy)
    logit, nudge = np.log(policy / (1 - policy)), 1e-6 * np.eye(4)
    difference = [(expected_reward(logit + d) - expected_reward(logit - d)) / 2e-6 for d in nudge]
    np.testing.assert_allclose(problem.gradient, difference, atol=1e-8)


def test_enumeration_is_complete() -> None:
    """3,876 multisets where everything is possible; weights add up to 1, and so does each trajectory's share."""
    outcomes = enumerate_task(KNOWN["P"], 4)
    assert len(outcomes) == 3876
    np.testing.assert_allclose(outcomes.weight.sum(), 1)
    first = np.bincount(outcomes.context.reshape(-1), np.repeat(outcomes.weight, 4) / 4)
    np.testing.assert_allclose(first, CONTEXT_SHARE)


def test_the_enumerated_gradient_of_level_0_has_the_true_direction() -> None:
    outcomes = enumerate_task(KNOWN["A strong"], 4)
    found = measure(KNOWN["A strong"], outcomes, advantages("level 0", outcomes), sampled=False)
    assert found["direction_bias"] < 1e-6
    assert found["cosine_error"] == found["direction_error"] == 0


@pytest.mark.slow
def test_samples_agree_with_the_enumeration() -> None:
    problem = KNOWN["A extreme"]
    exact_outcomes = enumerate_task(problem, 4)
    sampled = sample(problem, 4000, 1, 4, np.random.default_rng(3))
    for name in ("paper", "verl-agent"):
        exact = measure(problem, exact_outcomes, advantages(name, exact_outcomes), sampled=False)
        found = measure(problem, sampled, advantages(name, sampled))
        assert abs(found["cosine"] - exact["cosine"]) < 4 * found["cosine_error"]


@pytest.mark.parametrize("name", sorted(CONTENDERS.keys() - set(BATCH_WIDE)))
def test_what_is_not_batch_wide_may_be_computed_together(name: str) -> None:
    outcomes = drawn("A strong", 3, tasks=4)
    alone = np.concatenate([advantages(name, part) for part in parts(outcomes, 1)])
    np.testing.assert_allclose(advantages(name, outcomes), alone, atol=1e-9)


PUBLISHED = {
    "P": {
        "level 0": 0.965,
        "paper": 0.934,
        "verl-agent": 0.962,
        "renormalised": 0.947,
        "renormalised leave-one-out": 0.947,
    },
    "P mild": {"level 0": 0.981, "paper": 0.969, "verl-agent": 0.980, "renormalised": 0.973},
    "none": {"level 0": 0.984, "paper": 0.976, "verl-agent": 0.984, "renormalised": 0.979},
    "A strong": {"level 0": 0.756, "paper": 0.839, "verl-agent": 0.804, "renormalised": 0.818, "pooled": 0.844},
    "A extreme": {"level 0": 0.466, "paper": 0.642, "verl-agent": 0.515, "renormalised": 0.573, "pooled": 0.787},
    "A skewed": {"level 0": 0.659, "paper": 0.764, "verl-agent": 0.716, "renormalised": 0.736, "pooled": 0.773},
}
"""Mean cosine at N = 8, 16 tasks, measured before on 1,500 to 2,000 batches."""


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "cosines"), PUBLISHED.items(), ids=list(PUBLISHED))
def test_the_cosines_measured_before_come_out_again(problem: str, cosines: dict[str, float]) -> None:
    """Within 4 standard errors of a difference between two samples of 1,500 batches."""
    outcomes = drawn(problem, 1500)
    for name, expected in cosines.items():
        found = measured(problem, name, outcomes)
        assert abs(found["cosine"] - expected) < 4 * np.sqrt(2) * found["cosine_error"] + 0.0005, name


@pytest.mark.slow
def test_pooled_meets_its_bar_where_it_is_furthest_from_it() -> None:
    """On A extreme, N = 8, pooling must gain .10 on the paper's weights; mixed effects gain more."""
    outcomes = drawn("A extreme", 600)
    paper, pooled, mixed = (
        measured("A extreme", name, outcomes)["cosine"] for name in ("paper", "pooled", "mixed_effects")
    )
    assert pooled > paper + 0.1
    assert mixed > pooled + 0.02


@pytest.mark.slow
def test_pooled_leave_one_out_does_not_turn_the_gradient() -> None:
    """Within what sampling alone gives; with the step's own return in the means it turns by .13 radians."""
    outcomes = drawn("A extreme", 8000)
    own = measured("A extreme", "pooled leave-one-out", outcomes)
    assert own["direction_bias"] < 3 * own["direction_error"]
    assert own["direction_error"] < 0.02
    with_itself = measured("A extreme", "pooled", drawn("A extreme", 2000))
    assert with_itself["direction_bias"] > 4 * with_itself["direction_error"]


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    output = tmp_path / "rows.json"
    arguments = ["--problems", "P", "--trajectories", "4", "--batches", "5", "--estimators", "paper", "pooled"]
    main([*arguments, "-o", str(output)])
    shown = capsys.readouterr().out
    assert "cosine, N = 4\n\n| estimator | P |\n" in shown
    assert "| pooled | 0." in shown
    assert '"estimator": "pooled"' in output.read_text()


def stored(file: str, measure: str) -> dict[tuple[str, str, int], float]:
    rows = json.loads((BENCHMARKS / file).read_text(encoding="utf-8"))["rows"]
    return {(row["estimator"], row["problem"], row["N"]): row[measure] for row in rows}


def test_which_estimators_equal_level_0_and_which_is_best() -> None:
    cosine = stored("yardsticks.json", "cosine")
    problems, counts = {problem for _, problem, _ in cosine}, {count for *_, count in cosine}
    for problem, count in itertools.product(problems, counts):
        level_0 = cosine["level 0", problem, count]
        for same in ("gigpo", "g2po", "graphgpo", "dr_grpo", "rloo"):
            assert cosine[same, problem, count] == level_0
        assert abs(cosine["grpo std", problem, count] - level_0) <= 0.004
        best = max(value for (_, *where), value in cosine.items() if where == [problem, count])
        if problem.startswith("A "):
            assert cosine["mixed_effects", problem, count] == best
        if problem == "P":
            assert cosine["mixed_effects", problem, count] >= level_0


def test_leaving_the_task_out_leaves_no_bias() -> None:
    """The angle is at most .004, and at most 2.1 times its standard error."""
    angle = stored("yardsticks_leave_one_out.json", "direction_bias")
    error = stored("yardsticks_leave_one_out.json", "direction_error")
    assert len(angle) == 18
    assert max(angle.values()) <= 0.004
    assert max(angle[cell] / error[cell] for cell in angle) <= 2.1
