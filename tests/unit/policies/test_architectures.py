"""Every kind of attention and cache, against what transformers itself generates."""

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from hgpo.policies import sampler as sampling
from hgpo.policies.cache import pad_left
from hgpo.policies.sampler import sample_responses
from hgpo.policies.tiny import build_model

ENDS, PAD, VOCABULARY, MAX_TOKENS = [2, 7, 13, 19, 23], 0, 40, 12
FAMILIES = {
    "qwen2": {"num_key_value_heads": 1},
    "qwen3": {"num_key_value_heads": 1, "head_dim": 8},
    "llama": {"num_key_value_heads": 2, "num_attention_heads": 4},
    "mistral": {"num_key_value_heads": 1, "sliding_window": 8},
    "gemma3_text": {
        "num_key_value_heads": 1,
        "head_dim": 8,
        "sliding_window": 8,
        "tie_word_embeddings": False,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "gemma2": {"num_key_value_heads": 1, "head_dim": 8, "sliding_window": 8, "tie_word_embeddings": False},
    "phi": {"initializer_range": 1.0},
    "phi3": {"num_key_value_heads": 1},
    "gpt2": {},
    "lfm2": {"num_key_value_heads": 1, "layer_types": ["conv", "full_attention"]},
}
UNLIKE = ("qwen2", "gemma3_text", "gpt2", "lfm2")
"""With whole and sliding attention, positions that are learned, and convolutions."""


def build(family):
    options = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 128,
        "initializer_range": 0.3,  # large enough that answers differ and end
        "bos_token_id": None,
        "eos_token_id": ENDS,
        "pad_token_id": PAD,
        **({} if family == "gpt2" else {"intermediate_size": 32}),
        **FAMILIES[family],
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **options)).eval()


def random_prompts(count=24, longest=30):
    rng = np.random.default_rng(0)
    prompts = [rng.integers(3, VOCABULARY, size=int(rng.integers(1, longest))).astype(np.int32) for _ in range(count)]
    return [*prompts, *prompts[:4]]


def sample(model, prompts, uniform_BT=None, temperature=0.0):
    return sample_responses(
        model,
        prompts,
        uniform_BT=uniform_BT,
        temperature=temperature,
        max_tokens=MAX_TOKENS,
        end_tokens=ENDS,
        pad_token=PAD,
    )


def generated(model, prompts):
    """What transformers decodes greedily, each row up to its first end token."""
    ids_BP, mask_BP = (torch.from_numpy(array) for array in pad_left(prompts, PAD))
    written_BL = model.generate(
        ids_BP, attention_mask=mask_BP.long(), do_sample=False, max_new_tokens=MAX_TOKENS, pad_token_id=PAD
    )
    rows = written_BL[:, ids_BP.shape[1] :].tolist()
    ends = [next((t for t, token in enumerate(row) if token in ENDS), MAX_TOKENS) for row in rows]
    return [row[: end + 1] for row, end in zip(rows, ends, strict=True)]


def teacher_forced(model, prompt, response, temperature):
    ids = torch.tensor([[*prompt.tolist(), *response.token_ids.tolist()]])
    with torch.no_grad():
        log_prob_TV = (model(input_ids=ids).logits[0] / temperature).log_softmax(-1)
    return log_prob_TV[len(prompt) - 1 : -1].gather(-1, ids[0, len(prompt) :, None]).squeeze(-1).numpy()


def assert_scored_alike(model, prompts, responses, temperature):
    for prompt, response in zip(prompts, responses, strict=True):
        expected = teacher_forced(model, prompt, response, temperature)
        np.testing.assert_allclose(response.log_probs, expected, atol=1e-4)


def large_enough_to_read_in_parts():
    return build_model(VOCABULARY, hidden_size=512, layers=4, heads=8)


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=[] if name in UNLIKE else pytest.mark.slow) for name in FAMILIES]
)
@pytest.mark.parametrize(
    "pace",
    [sampling._CPU, pytest.param(sampling._ACCELERATOR, marks=pytest.mark.slow)],
    ids=["cpu", "accelerator"],
)
def test_greedy_decoding_is_transformers_own(family, pace, monkeypatch):
    monkeypatch.setattr(sampling, "_CPU", pace)
    model, prompts = build(family), random_prompts()
    responses = sample(model, prompts)
    expected = generated(model, prompts)
    assert [response.token_ids.tolist() for response in responses] == expected
    assert len({len(row) for row in expected}) > 2, "rows that are dropped are what this test is about"
    assert_scored_alike(model, prompts, responses, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_log_probs_are_those_of_a_fresh_forward_pass(family):
    model, prompts = build(family), random_prompts()
    uniform_BT = np.random.default_rng(1).random((len(prompts), MAX_TOKENS))
    assert_scored_alike(model, prompts, sample(model, prompts, uniform_BT, 0.7), 0.7)


def test_a_model_that_measures_distances_in_columns_shares_no_prefixes(monkeypatch):
    monkeypatch.setattr(sampling, "_SHARE_FROM", 0)
    monkeypatch.setattr(sampling, "_CPU", sampling._Pace(0, 1))
    config = AutoConfig.for_model(
        "mpt", vocab_size=VOCABULARY, d_model=16, n_layers=2, n_heads=2, initializer_range=0.5
    )
    model, prefix = AutoModelForCausalLM.from_config(config).eval(), np.arange(3, 23, dtype=np.int32)
    prompts = [np.append(prefix, np.full(count, 30, dtype=np.int32)) for count in (1, 9)]
    assert_scored_alike(model, prompts, sample(model, prompts), 1.0)


@pytest.mark.parametrize(
    ("family", "options", "problem"),
    [
        ("openai-gpt", {"n_embd": 12}, "OpenAIGPTLMHeadModel returns no key-value cache"),
        ("rwkv", {"hidden_size": 12, "num_hidden_layers": 2}, "RwkvForCausalLM needs a cache of its own"),
    ],
)
def test_a_model_without_a_key_value_cache_is_named(family, options, problem):
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, vocab_size=VOCABULARY, **options))
    with pytest.raises(ValueError, match=problem):
        sample(model, random_prompts(2))


@pytest.mark.slow
def test_prompts_are_read_in_parts_of_similar_length():
    model, prompts = large_enough_to_read_in_parts(), random_prompts(60, longest=60)
    shapes = []
    model.register_forward_pre_hook(
        lambda module, args, options: shapes.append(tuple(options["input_ids"].shape)), with_kwargs=True
    )
    uniform_BT = np.random.default_rng(1).random((len(prompts), MAX_TOKENS))
    responses = sample(model, prompts, uniform_BT, 1.0)
    read = [shape for shape in shapes if shape[1] > 1]
    assert len(read) > 1
    assert sum(rows for rows, _ in read) == 60, "identical prompts are read once"
    assert sum(rows * width for rows, width in read) < 0.8 * 60 * max(map(len, prompts))
    assert_scored_alike(model, prompts, responses, 1.0)


def test_an_accelerator_is_asked_now_and_then_which_rows_have_ended(monkeypatch):
    model, prompts = build("llama"), random_prompts()
    batches = {}
    for name in ("_CPU", "_ACCELERATOR"):
        monkeypatch.setattr(sampling, "_CPU", getattr(sampling, name))
        rows = batches[name] = []
        hook = model.register_forward_pre_hook(
            lambda module, args, options, rows=rows: rows.append(len(options["input_ids"])), with_kwargs=True
        )
        sample(model, prompts)
        hook.remove()
    assert len(set(batches["_CPU"][1:])) > 3
    assert len(set(batches["_ACCELERATOR"][1:9])) == 2
    assert batches["_ACCELERATOR"][8] == batches["_CPU"][8]
