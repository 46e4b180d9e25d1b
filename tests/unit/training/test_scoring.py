import numpy as np
import pytest
import torch

from hgpo.training.samples import Sample
from hgpo.training.scoring import response_log_probs, score_responses
from tiny_models import tiny_policy, tiny_samples


def test_scores_equal_plain_forward_passes():
    model = tiny_policy().model
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
    model = tiny_policy().model
    samples = tiny_samples(9)
    for one, other in zip(
        response_log_probs(model, samples, max_tokens=1),
        response_log_probs(model, samples, max_tokens=10_000),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_autocast_scores_are_close():
    model = tiny_policy().model
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
