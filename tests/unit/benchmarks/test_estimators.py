"""The speed benchmark at a tiny size: same results as the published way, and figures that mean what they say."""

from __future__ import annotations

import json

import numpy as np
import pytest

import estimators
import published
from estimators import BASELINE, ESTIMATORS, PAPER, TENFOLD, timed
from hgpo import StepBatch, compute_advantages
from step_batches import RawBatch


@pytest.fixture(scope="module")
def tiny() -> RawBatch:
    return RawBatch.make(2, trajectories=4, steps=25)


def test_a_batch_is_made_from_its_seed_with_a_new_text_per_step(tiny):
    again, other = RawBatch.make(2, trajectories=4, steps=25), RawBatch.make(2, seed=1, trajectories=4, steps=25)
    assert len(tiny) == len(tiny.observations()) == 200
    assert again.columns() == tiny.columns() != other.columns()
    texts = tiny.observations()
    assert len({id(text) for text in texts}) == 200 > len(set(texts))
    assert 250 < np.mean([len(text) for text in texts]) < 330
    assert set(tiny.reward) == {0.0, 10.0}


def test_groups_are_shared_and_shrink_with_the_context():
    batch = StepBatch.from_columns(**RawBatch.make(4).columns())
    shares = [(level.size > 1).mean() for level in compute_advantages(batch, history_length=4).levels]
    assert shares[0] > 0.9
    assert shares == sorted(shares, reverse=True)
    assert 0.05 < shares[4] < 0.3


@pytest.mark.parametrize("seed", range(4))
def test_the_published_way_gives_the_library_s_advantages(seed):
    raw = RawBatch.make(2, seed=seed, trajectories=4, steps=25)
    columns = raw.columns()
    group, trajectory, text = (published.objects(columns[name]) for name in ("group", "trajectory", "observation"))
    return_N = published.step_returns(np.array(raw.reward), trajectory, gamma=0.95)
    advantage_N = published.step_advantages(return_N, text, group, trajectory, estimators.HISTORY_LENGTH)
    assert estimators.check_equal(raw, advantage_N) <= estimators.LARGEST_DIFFERENCE
    assert len(set(advantage_N.tolist())) > 10
    batch = StepBatch.from_columns(**columns)
    np.testing.assert_allclose(return_N, compute_advantages(batch).returns, rtol=0, atol=1e-12)
    advantage_N[7] += 1e-6
    with pytest.raises(ValueError, match="published and library advantages differ"):
        estimators.check_equal(raw, advantage_N)


@pytest.mark.slow
def test_everything_is_measured(tiny):
    reference = estimators.measure_published(tiny, repeats=1)
    assert reference.returns > 0
    assert reference.groups > 0
    measurements = estimators.measure(tiny, repeats=2)
    assert [m.estimator for m in measurements] == list(ESTIMATORS)
    for m in measurements:
        assert m.steps == 200
        assert 0 < m.interned.minimum <= m.interned.median
        assert 0 < m.texts.minimum <= m.texts.median
    faster = estimators.ratios(measurements, {200: reference})
    assert faster["200/gigpo/texts"] == sum(reference) / measurements[2].texts.minimum


def test_an_input_is_made_for_every_call_and_the_last_result_comes_back():
    made: list[int] = []

    def make() -> int:
        made.append(len(made))
        return made[-1]

    found, result = timed(lambda number: sum(range(100_000 * (number + 1))), make, 3)
    assert made == [0, 1, 2]
    assert result == sum(range(300_000))
    assert 0 < found.minimum <= found.median


def test_a_ratio_that_fell_too_far_is_named():
    recorded = {"6400/gigpo/texts": 300.0, "6400/grpo/texts": 300.0, "64000/grpo/texts": 900.0}
    measured = {"6400/gigpo/texts": 149.0, "6400/grpo/texts": 151.0}
    assert estimators.fallen(measured, recorded) == [
        "6400/gigpo/texts: 149× the speed of the published way, recorded were 300×"
    ]


def test_the_baseline_covers_both_sizes():
    recorded = json.loads(BASELINE.read_text())
    kinds = ("interned", "texts")
    assert set(recorded) >= {f"{n}/{name}/{kind}" for n in (PAPER, TENFOLD) for name in ESTIMATORS for kind in kinds}
    assert all(ratio > 1 for ratio in recorded.values())
