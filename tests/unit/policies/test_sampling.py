import numpy as np
import pytest
import torch

from hgpo.policies import sampler as sampling
from hgpo.policies.local import TransformersPolicy
from hgpo.policies.sampler import draw_tokens, sample_responses
from tiny_models import generate, random_prompts, tiny_model

LOGITS = torch.tensor([[0.0, 1.0, float("-inf"), 2.0]])


def sample_without_cache(language_model, prompt_ids, uniform_T, temperature):
    """The whole sequence through the model once per token: slow, and plainly what sampling means."""
    ids = prompt_ids.tolist()
    token_ids, log_probs = [], []
    for uniform in uniform_T:
        with torch.no_grad():
            logits = language_model.model(input_ids=torch.tensor([ids])).logits[0, -1].double()
        probs = (logits / temperature).softmax(-1)
        token = int((probs.cumsum(-1) <= uniform).sum())
        token_ids.append(token)
        log_probs.append(float(probs[token].log()))
        ids.append(token)
        if token == language_model.tokenizer.eos_token_id:
            break
    return token_ids, log_probs


def test_cached_loop_equals_loop_without_cache():
    language_model = tiny_model(max_response_tokens=8)
    prompts = language_model.encoder.encode_prompts([*random_prompts(6), "go", "go"])
    uniform_BT = np.random.default_rng(1).random((len(prompts), 8))
    sampled = sample_responses(
        language_model.model, prompts, uniform_BT=uniform_BT, temperature=1.3, max_tokens=8, end_tokens=[2], pad_token=0
    )
    lengths = set()
    for prompt, uniform_T, response in zip(prompts, uniform_BT, sampled, strict=True):
        token_ids, log_probs = sample_without_cache(language_model, prompt, uniform_T, 1.3)
        assert response.token_ids.tolist() == token_ids
        np.testing.assert_allclose(response.log_probs, log_probs, atol=1e-4)
        assert response.finished == (token_ids[-1] == 2)
        lengths.add(len(token_ids))
    assert len(lengths) > 1, "rows of different length are what this test is about"


@pytest.mark.parametrize("same_task", [3, *(pytest.param(rows, marks=pytest.mark.slow) for rows in (0, 9))])
def test_prompts_that_begin_alike_say_what_each_says_alone(monkeypatch, same_task):
    """Read in two passes, prefixes first; so that it happens, the model counts as large and a pass as cheap."""
    monkeypatch.setattr(sampling, "_SHARE_FROM", 0)
    monkeypatch.setattr(sampling, "_CPU", sampling._Pace(forward_tokens=12, tokens_between_drops=1))
    language_model = tiny_model(max_response_tokens=8)
    prefix = "put two mugs in cabinet . places : shelf"
    texts = [f"{prefix} {text}" if row < same_task else text for row, text in enumerate(random_prompts(12))]
    prompts = language_model.encoder.encode_prompts([*texts, texts[0], "go"])
    shared = sampling.lay_out_together(prompts[:12], 0, overhead=12).shared
    assert (shared > 0) == (same_task > 0)
    uniform_BT = np.random.default_rng(1).random((len(prompts), 8))
    sampled = sample_responses(
        language_model.model, prompts, uniform_BT=uniform_BT, temperature=1.0, max_tokens=8, end_tokens=[2], pad_token=0
    )
    for prompt, uniform_T, response in zip(prompts, uniform_BT, sampled, strict=True):
        token_ids, log_probs = sample_without_cache(language_model, prompt, uniform_T, 1.0)
        assert response.token_ids.tolist() == token_ids
        np.testing.assert_allclose(response.log_probs, log_probs, atol=1e-4)


@pytest.mark.parametrize(("uniform", "token"), [(0.0, 0), (0.0900, 0), (0.0901, 1), (0.3347, 1), (0.3348, 3), (1.0, 3)])
def test_tokens_are_drawn_by_inverting_the_cumulative_distribution(uniform, token):
    # softmax(0, 1, -inf, 2) = .09003, .24473, 0, .66524
    drawn, log_prob = draw_tokens(LOGITS, torch.tensor([uniform], dtype=torch.float64), 1.0)
    assert drawn.item() == token
    assert log_prob.item() == pytest.approx([-2.40761, -1.40761, None, -0.40761][token], abs=1e-5)


def test_frequencies_match_the_distribution_at_the_temperature():
    uniform = torch.from_numpy(np.random.default_rng(0).random(20_000))
    drawn, _ = draw_tokens(LOGITS.expand(20_000, -1), uniform, 0.5)
    frequencies = torch.bincount(drawn, minlength=4) / 20_000
    torch.testing.assert_close(frequencies, (LOGITS[0] / 0.5).softmax(-1), atol=0.01, rtol=0)


def test_greedy_takes_the_likeliest_token():
    drawn, log_prob = draw_tokens(LOGITS, None, 0.0)
    assert drawn.item() == 3
    assert log_prob.item() == pytest.approx(-0.40761, abs=1e-5)


def test_broken_weights_are_an_error():
    language_model = tiny_model()
    language_model.model.get_input_embeddings().weight.data.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="non-finite"):
        generate(TransformersPolicy(language_model), ["go"])
