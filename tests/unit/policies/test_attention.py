import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from hgpo.policies.sampler import attend, decoding_attention, decoding_mask

GENERATOR = torch.Generator().manual_seed(0)
HEADS, KEY_HEADS = 6, 2


class Heads(torch.nn.Module):
    num_key_value_groups = HEADS // KEY_HEADS


class AttentionCalls(TorchDispatchMode):
    """The shape of the keys in every call of an attention kernel."""

    def __init__(self):
        super().__init__()
        self.key_shapes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "scaled_dot_product" in str(func):
            self.key_shapes.append(tuple(args[1].shape))
        return func(*args, **(kwargs or {}))


def states(heads, tokens):
    return torch.randn(3, heads, tokens, 8, generator=GENERATOR)


def llama(key_heads=1, **options):
    config = AutoConfig.for_model(
        "llama", vocab_size=20, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4
    )
    config.num_key_value_heads = key_heads
    return AutoModelForCausalLM.from_config(config, **options).eval()


def decode(model):
    with torch.no_grad():
        mask = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]])
        past = model(torch.ones(2, 3, dtype=torch.long), attention_mask=mask[:, :3], use_cache=True).past_key_values
        with AttentionCalls() as calls:
            logits = model(torch.ones(2, 1, dtype=torch.long), attention_mask=mask, past_key_values=past).logits
    return logits, calls.key_shapes


@pytest.mark.parametrize("queries", [1, 7])
@pytest.mark.parametrize("masks", [0, 1, HEADS], ids=["no mask", "one mask", "a mask for every head"])
@pytest.mark.parametrize("scaling", [None, 0.2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_transformers_own(queries, masks, scaling, dtype):
    query, key, value = (s.to(dtype) for s in (states(HEADS, queries), states(KEY_HEADS, 7), states(KEY_HEADS, 7)))
    mask = (torch.rand(3, masks or 1, queries, 7, generator=GENERATOR) > 0.3).index_fill(-1, torch.tensor([0]), True)
    arguments = (Heads(), query, key, value, mask if masks else None)
    found, _ = attend(*arguments, scaling=scaling)
    expected, _ = sdpa_attention_forward(*arguments, scaling=scaling)
    torch.testing.assert_close(found, expected, atol=1e-6 if dtype == torch.float32 else 1e-2, rtol=0)


def test_keys_are_copied_for_every_query_head_only_outside():
    model = llama()
    expected, key_shapes = decode(model)
    assert key_shapes == [(2, 4, 4, 8)] * 2
    with decoding_attention(model):
        found, key_shapes = decode(model)
    assert key_shapes == [(2, 1, 4, 8)] * 2
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_the_model_is_left_as_it_was():
    model = llama()

    def fail_within():
        with decoding_attention(model):
            assert model.config._attn_implementation != "sdpa"
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        fail_within()
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("model", [llama(4), llama(attn_implementation="eager")], ids=["own keys", "eager"])
def test_models_that_gain_nothing_are_left_alone(model):
    before = model.config._attn_implementation
    with decoding_attention(model):
        assert model.config._attn_implementation == before


@pytest.mark.parametrize("queries", [1, 7])
def test_the_mask_is_transformers_own(queries):
    padding = torch.tensor([[False, True, True, True, True, True, True], [True] * 7])
    sizes = {"batch_size": 2, "q_length": queries, "kv_length": 7, "q_offset": 7 - queries, "attention_mask": padding}
    assert torch.equal(decoding_mask(device=torch.device("cpu"), **sizes), sdpa_mask(**sizes))


def test_no_token_waits_to_look_at_the_mask():
    padding = torch.ones(2, 7, dtype=torch.bool, device="meta")  # a tensor that nobody can look at
    sizes = {"batch_size": 2, "q_length": 1, "kv_length": 7, "q_offset": 6, "attention_mask": padding}
    with pytest.raises(RuntimeError):
        sdpa_mask(device=padding.device, **sizes)
    assert decoding_mask(device=padding.device, **sizes).shape == (2, 1, 1, 7)
