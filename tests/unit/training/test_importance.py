import numpy as np
import pytest

from hgpo.training.losses import importance_weights, sampler_mismatch

# Probabilities of four sampled tokens in trainer and sampler; the weights by hand: 1.5, 6 (cap: 2), 0.5, 1.
TRAINER_N = np.log(np.array([0.3, 0.6, 0.2, 0.5], dtype=np.float32))
SAMPLER_N = np.log(np.array([0.2, 0.1, 0.4, 0.5], dtype=np.float32))


def test_weights_by_hand():
    weight_N = importance_weights(TRAINER_N, SAMPLER_N, 2.0)
    assert weight_N.tolist() == pytest.approx([1.5, 2.0, 0.5, 1.0])
    assert weight_N.dtype == np.float32
    assert importance_weights(TRAINER_N, SAMPLER_N, None).tolist() == pytest.approx([1.5, 6.0, 0.5, 1.0])


def test_figures_by_hand():
    gaps = np.log([1.5, 6.0, 2.0, 1.0])
    assert sampler_mismatch(TRAINER_N, SAMPLER_N, 2.0) == {
        "sampler_gap_mean": pytest.approx(gaps.mean()),
        "sampler_gap_max": pytest.approx(np.log(6)),
        "sampler_effective_sample_size": pytest.approx(5.0**2 / (4 * (2.25 + 4 + 0.25 + 1))),
        "sampler_clipped_share": 0.25,
    }


def test_without_a_cap_nothing_is_clipped():
    figures = sampler_mismatch(TRAINER_N, SAMPLER_N, None)
    assert figures["sampler_effective_sample_size"] == pytest.approx(9.0**2 / (4 * (2.25 + 36 + 0.25 + 1)))
    assert "sampler_clipped_share" not in figures


def test_one_that_samples_as_it_trains_needs_no_correction():
    assert importance_weights(TRAINER_N, TRAINER_N, 2.0).tolist() == [1.0] * 4
    figures = sampler_mismatch(TRAINER_N, TRAINER_N, 2.0)
    assert figures["sampler_gap_max"] == figures["sampler_clipped_share"] == 0
    assert figures["sampler_effective_sample_size"] == 1


def test_extreme_gaps_stay_finite_and_no_tokens_give_no_figures():
    far_N = np.array([500.0, -500.0], dtype=np.float32)
    assert np.isfinite(importance_weights(far_N, np.zeros_like(far_N), None)).all()
    assert importance_weights(far_N, np.zeros_like(far_N), 2.0).tolist() == pytest.approx([2.0, 0.0], abs=1e-8)
    assert np.isfinite(list(sampler_mismatch(far_N[1:], np.zeros_like(far_N[1:]), 2.0).values())).all()
    assert sampler_mismatch(far_N[:0], far_N[:0], 2.0) == {}
