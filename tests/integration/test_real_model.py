"""SmolLM2-135M-Instruct, a real language model: loaded, asked, scored."""

from functools import cache

import gguf
import numpy as np
import pytest
import torch

from hgpo.policies.language_model import GenerationLimits, LanguageModel
from hgpo.policies.local import TransformersPolicy
from hgpo.training.batching import Sample
from hgpo.training.log_probs import response_log_probs, token_log_probs
from real_model import real_model_file
from tiny_models import generate

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def language_model():
    with pytest.MonkeyPatch.context() as patch:
        # To read 49,152 tokens takes it 6 s; configuration, tokenizer and weights each ask for them.
        patch.setattr(gguf, "GGUFReader", cache(gguf.GGUFReader))
        yield LanguageModel.from_pretrained(
            real_model_file(), GenerationLimits(512, 24, "float32"), device="cpu", dtype="float32"
        )


@pytest.fixture(scope="module")
def samples(language_model):
    prompts = ["What is the capital of France?", "Name a fruit.", "You are in a kitchen. What do you do next?"]
    responses = generate(TransformersPolicy(language_model), prompts)
    return [Sample(one.prompt_ids, one.token_ids, one.log_probs, 0.5) for one in responses]


def test_it_is_whole_and_knows_the_capital_of_france(language_model):
    assert sum(parameter.numel() for parameter in language_model.model.parameters()) == 134_515_008
    [answer] = generate(TransformersPolicy(language_model), ["What is the capital of France?"], temperature=0)
    assert "Paris" in answer.text
    assert answer.finished


def test_its_turns_end_as_its_chat_template_ends_them(language_model):
    [answer] = language_model.encode_responses(["go to shelf 1"])
    assert language_model.tokenizer.decode(answer) == "go to shelf 1<|im_end|>"
    assert language_model.end_tokens == [int(answer[-1])]


def test_it_is_sampled_as_it_is_scored(language_model, samples):
    for sample, log_probs in zip(
        samples, response_log_probs(language_model.model, samples, precision="float32"), strict=True
    ):
        np.testing.assert_allclose(sample.log_probs, log_probs, atol=1e-3)


def test_it_writes_greedily_what_transformers_writes(language_model):
    prompts = ["What is the capital of France?", "Name a fruit.", "Count: one, two, three. " * 20]
    responses = generate(TransformersPolicy(language_model), prompts, temperature=0)
    for response in responses:
        prompt_ids = torch.from_numpy(response.prompt_ids.astype(np.int64))[None]
        written = language_model.model.generate(
            prompt_ids, attention_mask=torch.ones_like(prompt_ids), do_sample=False, max_new_tokens=24
        )
        assert response.token_ids.tolist() == written[0, prompt_ids.shape[1] :].tolist()


def test_in_bfloat16_it_is_sampled_as_it_is_scored(language_model):
    rough = LanguageModel.of(language_model.model, language_model.tokenizer, GenerationLimits(512, 24, "bfloat16"))
    responses = generate(TransformersPolicy(rough), ["Name a fruit.", "Name a river.", "Tell me about the sea. " * 20])
    samples = [Sample(one.prompt_ids, one.token_ids, one.log_probs, 0.5) for one in responses]
    with torch.autocast("cpu", torch.bfloat16):
        scored = response_log_probs(language_model.model, samples)
    differences = np.concatenate([one.log_probs - two for one, two in zip(samples, scored, strict=True)])
    assert 0 < np.abs(differences).mean() < 0.05


def test_chunks_of_its_vocabulary_change_nothing_but_rounding(language_model, samples):
    model = language_model.model
    gradients = []
    for max_logits in (2**26, 20 * 49_152):
        model.zero_grad(set_to_none=True)
        scores = token_log_probs(
            model, samples, precision="float32", max_logits=max_logits, recompute_layers=max_logits < 2**26
        )
        scores.log_prob_BT.masked_fill(~scores.mask_BT, 0).mean().backward()
        gradients.append(model.get_input_embeddings().weight.grad.clone())
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-3)


def test_bfloat16_moves_its_log_probs_by_no_more_than_a_twentieth(language_model, samples):
    model = language_model.model
    exact, rounded = (
        np.concatenate(response_log_probs(model, samples, precision=precision)) for precision in ("float32", "bfloat16")
    )
    assert 0 < np.abs(exact - rounded).mean() < 0.05
