"""The columns that a shortened last layer returns are those of the whole layer."""

from __future__ import annotations

import copy

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

from hgpo.policies.cache import LastLayer, ResponseCache, cache_name, last_columns
from hgpo.policies.tiny import build_model
from hgpo.training.batching import Sample
from hgpo.training.log_probs import recomputed_layers, token_log_probs

VOCABULARY, WIDTH = 30, 9
IDS = torch.randint(3, VOCABULARY, (3, WIDTH), generator=torch.Generator().manual_seed(0))
PADDED = torch.arange(WIDTH) >= torch.tensor([[0], [2], [5]])


def grouped_heads():
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        attn_implementation="sdpa",
    )
    return Qwen2ForCausalLM(config).eval()


def with_adapter():
    adapter = LoraConfig(r=2, target_modules=["q_proj", "k_proj", "v_proj", "down_proj"], init_lora_weights=False)
    return get_peft_model(build_model(VOCABULARY, heads=2), adapter).eval()


MODELS = {"tiny": lambda: build_model(VOCABULARY, heads=2), "grouped heads": grouped_heads, "adapter": with_adapter}
models = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


def inputs(mask):
    return {"input_ids": IDS, "attention_mask": mask.long(), "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}


def shown(model):
    """Output shapes of the last layer, filled while the model runs."""
    shapes = []
    last_columns(model, 1)
    [layer] = [module for module in model.modules() if isinstance(module, LastLayer)]
    layer.register_forward_hook(lambda module, given, output: shapes.append(output.shape[1]))
    return shapes


@models
@pytest.mark.parametrize("mask", [PADDED, torch.ones_like(PADDED)], ids=["padded", "equal lengths"])
@pytest.mark.parametrize("columns", [1, 3, WIDTH, WIDTH + 1])
def test_same_logits(make, mask, columns):
    model = make()
    widths = shown(model)
    with torch.no_grad():
        found = model(**inputs(mask), logits_to_keep=columns, **last_columns(model, columns)).logits
        expected = model(**inputs(mask)).logits[:, -columns:]
    assert widths == [min(columns, WIDTH), WIDTH], "only these columns were computed"
    real = mask[:, -columns:]
    torch.testing.assert_close(found[real], expected[real], rtol=1e-5, atol=1e-5)


@models
@pytest.mark.parametrize("recomputed", [False, True])
def test_same_gradients(make, recomputed):
    model = make()

    def gradients(**columns):
        model.zero_grad()
        if recomputed:
            with recomputed_layers(model):
                logits = model(**inputs(PADDED), use_cache=False, logits_to_keep=4, **columns).logits
                logits.float().log_softmax(-1)[..., 5].sum().backward()
        else:
            model(**inputs(PADDED), logits_to_keep=4, **columns).logits.log_softmax(-1)[..., 5].sum().backward()
        return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}

    found, expected = gradients(**last_columns(model, 4)), gradients()
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-5, msg=name)


@models
@pytest.mark.parametrize("parts", [[WIDTH], [4, WIDTH - 4]], ids=str)
def test_a_cache_holds_the_keys_of_all_columns(make, parts):
    model = make()

    def read(shorten):
        cache = ResponseCache.of(model, len(IDS), WIDTH + 1)
        positions, start = inputs(PADDED)["position_ids"], 0
        for size in parts:
            end = start + size
            given = {"attention_mask": PADDED[:, :end].long(), "position_ids": positions[:, start:end]}
            columns = last_columns(model, 1) if shorten else {}
            output = model(
                input_ids=IDS[:, start:end],
                **given,
                **{cache_name(model): cache},
                use_cache=True,
                logits_to_keep=1,
                **columns,
            )
            start = end
        mask = torch.cat([PADDED, torch.ones(len(IDS), 1, dtype=torch.bool)], dim=1).long()
        after = model(
            input_ids=IDS[:, :1],
            attention_mask=mask,
            position_ids=positions[:, -1:] + 1,
            **{cache_name(model): cache},
            use_cache=True,
        )
        return output.logits, after.logits

    with torch.no_grad():
        for found, expected in zip(read(True), read(False), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_training_and_sampling_use_it():
    model = build_model(VOCABULARY, heads=2)
    widths = shown(model)
    rows = [
        Sample(ids.numpy().astype("int32"), ids[:2].numpy().astype("int32"), torch.zeros(2).numpy(), 1.0) for ids in IDS
    ]
    for ends in (False, True):
        token_log_probs(model, rows, prompt_ends=ends)
    assert widths[-2:] == [2, 2]


def test_other_models_take_no_such_argument():
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=VOCABULARY))
    assert last_columns(model, 1) == {}


def test_weights_keep_their_names():
    model = build_model(VOCABULARY, heads=2)
    last_columns(model, 1)
    plain = Qwen2ForCausalLM(copy.deepcopy(model.config))
    assert model.state_dict().keys() == plain.state_dict().keys()
