import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgpo.policies.padding import length_buckets
from hgpo.training.samples import Sample
from hgpo.training.scoring import micro_batches, response_log_probs, score_responses
from tiny_models import tiny_model, tiny_samples


def test_scores_equal_plain_forward_passes():
    model = tiny_model().model
    samples = tiny_samples(7)
    scores = score_responses(model, samples, temperature=0.7)
    for row, sample in enumerate(samples):
        prompt, response = sample.prompt_ids.tolist(), sample.response_ids.tolist()
        logits = model(input_ids=torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
        log_prob_TV = (logits / 0.7).log_softmax(-1)
        width = len(response)
        expected = log_prob_TV[torch.arange(width), response]
        torch.testing.assert_close(scores.log_prob_BT[row, :width], expected, atol=1e-4, rtol=0)
        entropy = -(log_prob_TV.exp() * log_prob_TV).sum(-1)
        torch.testing.assert_close(scores.entropy_BT[row, :width], entropy, atol=1e-4, rtol=0)
        assert scores.mask_BT[row].tolist() == [True] * width + [False] * (scores.mask_BT.shape[1] - width)


def test_bucket_size_changes_nothing():
    model = tiny_model().model
    samples = tiny_samples(9)
    for one, other in zip(
        response_log_probs(model, samples, max_tokens=1),
        response_log_probs(model, samples, max_tokens=10_000),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_autocast_scores_are_close():
    model = tiny_model().model
    samples = tiny_samples(3)
    exact = score_responses(model, samples).log_prob_BT
    rough = score_responses(model, samples, precision="bfloat16").log_prob_BT
    assert rough.dtype == torch.float32
    assert not torch.equal(exact, rough)
    torch.testing.assert_close(exact, rough, atol=1.0, rtol=0.1)


def test_impossible_samples_are_refused():
    ids, log_probs = np.array([5], dtype=np.int32), np.zeros(1, dtype=np.float32)
    with pytest.raises(ValueError, match="at least one prompt token"):
        Sample(ids[:0], ids, log_probs, 0.0)
    with pytest.raises(ValueError, match="differ"):
        Sample(ids, ids, log_probs[:0], 0.0)
    with pytest.raises(ValueError, match="finite"):
        Sample(ids, ids, log_probs, float("nan"))
    with pytest.raises(ValueError, match="finite"):
        Sample(ids, ids, log_probs - np.inf, 0.0)


def sample(prompt, response):
    ids = np.zeros(response, dtype=np.int32)
    return Sample(np.zeros(prompt, dtype=np.int32), ids, ids.astype(np.float32), 0.0)


def layout_tokens(samples, rows):
    """Rows times columns of what `score_responses` hands to the model."""
    prompt = max(len(samples[row].prompt_ids) for row in rows)
    response = max(len(samples[row].response_ids) for row in rows)
    return len(rows) * (prompt + response - 1)


def test_long_prompts_and_long_responses_do_not_pad_each_other_over_the_limit():
    samples = [sample(*lengths) for lengths in [(500, 12), (12, 500)] * 8]
    batches = micro_batches(samples, 8_192)
    assert sorted(np.concatenate(batches)) == list(range(16))
    assert max(layout_tokens(samples, rows) for rows in batches) <= 8_192


LENGTHS = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), max_size=60)


@given(LENGTHS, st.integers(1, 2_000))
def test_micro_batches_keep_to_the_limit_and_to_the_batches_that_always_did(lengths, limit):
    samples = [sample(*pair) for pair in lengths]
    batches = micro_batches(samples, limit)
    assert sorted(row for rows in batches for row in rows) == list(range(len(samples)))
    assert all(len(rows) == 1 or layout_tokens(samples, rows) <= limit for rows in batches)
    by_total = length_buckets([one.token_count for one in samples], max_tokens=limit)
    if all(layout_tokens(samples, rows) <= limit for rows in by_total):
        assert [rows.tolist() for rows in batches] == [rows.tolist() for rows in by_total]
