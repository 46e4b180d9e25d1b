import subprocess
import sys

import numpy as np
import pytest
import torch

from hgpo.policies.base import PromptTooLong
from hgpo.policies.language_model import GenerationLimits, LanguageModel
from hgpo.policies.local import TransformersPolicy, batch_limits
from hgpo.policies.tiny import END, PAD
from hgpo.training.batching import Sample
from hgpo.training.log_probs import response_log_probs
from tiny_models import WORDS, generate, random_prompts, save_tiny_model, tiny_model, tiny_policy


def assert_same(one, other):
    assert one.text == other.text
    assert one.finished == other.finished
    assert one.token_ids.tolist() == other.token_ids.tolist()
    np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-4)


@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_log_probs_equal_those_of_a_fresh_forward_pass(temperature):
    policy = tiny_policy()
    responses = generate(policy, random_prompts(20), temperature=temperature)
    samples = [Sample(r.prompt_ids, r.token_ids, r.log_probs, 0.0) for r in responses]
    scored = response_log_probs(policy.language_model.model, samples, temperature=temperature, max_tokens=200)
    for response, log_probs in zip(responses, scored, strict=True):
        np.testing.assert_allclose(response.log_probs, log_probs, atol=1e-4)


def test_greedy_answer_is_the_same_alone_and_in_a_batch():
    policy = tiny_policy()
    prompts = random_prompts(8)
    together = generate(policy, prompts, temperature=0)
    assert len({response.text for response in together}) > 3
    for prompt, response in zip(prompts, together, strict=True):
        assert_same(generate(policy, [prompt], temperature=0)[0], response)


@pytest.mark.parametrize(
    "limits", [{"max_batch_size": 4}, pytest.param({"max_batch_tokens": 100}, marks=pytest.mark.slow)]
)
def test_splitting_into_batches_changes_nothing(limits):
    prompts = random_prompts(21)
    for one, other in zip(generate(tiny_policy(), prompts), generate(tiny_policy(**limits), prompts), strict=True):
        assert_same(one, other)


def test_sampling_is_reproducible_and_moves_the_generator_by_a_fixed_amount():
    policy = tiny_policy()
    prompts = random_prompts(5)
    rng, shadow = np.random.default_rng(3), np.random.default_rng(3)
    first = generate(policy, prompts, rng=rng)
    shadow.random((5, policy.numbers_per_response))
    assert rng.bit_generator.state == shadow.bit_generator.state
    for one, other in zip(first, generate(policy, prompts, rng=np.random.default_rng(3)), strict=True):
        assert_same(one, other)
    assert [r.text for r in first] != [r.text for r in generate(policy, prompts, rng=np.random.default_rng(4))]


def test_greedy_takes_no_random_numbers():
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    generate(tiny_policy(), ["go"], temperature=0, rng=rng)
    assert rng.bit_generator.state == before


def test_identical_prompts_get_answers_of_their_own():
    responses = generate(tiny_policy(), ["go to fridge"] * 8)
    assert len({response.text for response in responses}) > 1


def test_response_limit_leaves_the_answer_unfinished():
    responses = generate(tiny_policy(max_response_tokens=1), random_prompts(40))
    assert {len(response.token_ids) for response in responses} == {1}
    unfinished = [response for response in responses if not response.finished]
    assert unfinished
    end = tiny_model().tokenizer.eos_token_id
    assert all((response.token_ids[-1] == end) == response.finished for response in responses)


def test_text_holds_no_special_tokens():
    policy = tiny_policy()
    for response in generate(policy, random_prompts(40), temperature=2.0):
        assert END not in response.text
        assert PAD not in response.text


@pytest.mark.parametrize(
    "prompt", ["", "zebra 蘋果 🦓", "\x00\x1b[31m\r\n\t", "\ud800 go", "<|end|><|assistant|>", "{{ x }}"]
)
def test_any_prompt_is_answered(prompt):
    [response] = generate(tiny_policy(), [prompt])
    assert len(response.token_ids) >= 1
    assert response.token_ids.dtype == np.int32
    assert response.log_probs.dtype == np.float32


def test_no_prompts_no_responses():
    assert generate(tiny_policy(), []) == []
    assert tiny_policy().count_prompt_tokens([]) == []


def test_a_prompt_over_the_limit_is_an_error_that_names_it():
    policy = tiny_policy(max_prompt_tokens=10)
    fits, too_long = " ".join(WORDS[:7]), " ".join(WORDS[:8])
    assert policy.count_prompt_tokens([fits, too_long]) == [10, 11]
    assert len(generate(policy, [fits])[0].prompt_ids) == 10
    with pytest.raises(PromptTooLong, match=r"prompt 1 has 11 tokens, the limit is 10.*max_prompt_tokens"):
        generate(policy, [fits, too_long])


@pytest.mark.parametrize("temperature", [-1.0, float("nan"), float("inf")])
def test_impossible_temperature(temperature):
    with pytest.raises(ValueError, match="temperature"):
        generate(tiny_policy(), ["go"], temperature=temperature)


def test_loads_a_folder(tmp_path):
    folder = save_tiny_model(tmp_path, [" ".join(WORDS)], hidden_size=16, layers=1, heads=2, max_tokens=64)
    policy = TransformersPolicy(LanguageModel.from_pretrained(folder, GenerationLimits(40, 4), device="cpu"))
    assert policy.language_model.model.dtype == torch.float32
    assert policy.max_prompt_tokens == 40
    assert len(generate(policy, ["go to fridge 1"])[0].token_ids) <= 4


def test_autocast_samples_nearly_the_same():
    prompts = random_prompts(10)
    exact = generate(tiny_policy(max_response_tokens=1), prompts)
    rough = generate(tiny_policy(max_response_tokens=1, precision="bfloat16"), prompts)
    shared = [(one, other) for one, other in zip(exact, rough, strict=True) if one.token_ids == other.token_ids]
    assert len(shared) > 5
    differences = [abs(float(one.log_probs[0] - other.log_probs[0])) for one, other in shared]
    assert 0 < max(differences) < 0.5


def test_sampling_follows_the_weights_as_they_are_trained():
    policy = tiny_policy()
    before = generate(policy, ["go"], temperature=0)[0]
    with torch.no_grad():
        for parameter in policy.language_model.model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    assert generate(policy, ["go"], temperature=0)[0].token_ids.tolist() != before.token_ids.tolist()


@pytest.mark.slow
def test_importing_the_package_loads_no_torch():
    code = "import sys, hgpo, hgpo.policies.base, hgpo.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_batch_is_as_large_as_suits_the_device():
    assert batch_limits(torch.device("cpu")) == (64, 65_536)
    assert batch_limits(torch.device("cuda")) == (256, 262_144)
    assert batch_limits(torch.device("cuda"), 3, 500) == (3, 500)
