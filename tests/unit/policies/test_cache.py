import pytest
import torch
from transformers import AutoConfig, LlamaConfig
from transformers.cache_utils import DynamicLayer

from hgpo.policies.cache import PreallocatedLayer, ResponseCache, cache_name, select_rows
from tiny_models import tiny_model

GENERATOR = torch.Generator().manual_seed(0)


def states(rows, tokens):
    return torch.randn(rows, 2, tokens, 4, generator=GENERATOR)


def cache_of_one_layer(rows, capacity):
    return ResponseCache(LlamaConfig(num_hidden_layers=1), rows, capacity)


def test_holds_what_transformers_own_layer_holds():
    cache, reference = cache_of_one_layer(4, 12), DynamicLayer()
    for tokens in (5, 1, 1):
        keys, values = states(4, tokens), states(4, tokens)
        found, expected = cache.update(keys, values, 0), reference.update(keys, values)
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
        assert cache.get_seq_length() == reference.get_seq_length()
        assert cache.get_mask_sizes(1, 0) == reference.get_mask_sizes(1)


def test_tokens_are_written_in_place():
    cache = cache_of_one_layer(4, 12)
    keys, values = cache.update(states(4, 5), states(4, 5), 0)
    places = keys.data_ptr(), values.data_ptr()
    for rows in (4, 4, 2):
        if rows < 4:
            select_rows(cache, torch.tensor([0, 3]), torch.device("cpu"))
        keys, values = cache.update(states(rows, 1), states(rows, 1), 0)
        assert (keys.data_ptr(), values.data_ptr()) == places


@pytest.mark.parametrize("index", [[0, 3, 2], [2], [1, 0, 0, 2, 3, 3], [0, 1, 2, 3]], ids=str)
def test_rows_are_dropped_moved_and_repeated(index):
    cache, reference = cache_of_one_layer(6, 12), DynamicLayer()
    keys, values = states(4, 5), states(4, 5)
    cache.show(slice(0, 4), 0, 0)
    cache.update(keys, values, 0)
    reference.update(keys, values)
    index_B = torch.tensor(index)
    select_rows(cache, index_B, torch.device("cpu"))
    reference.batch_select_indices(index_B)
    new = states(len(index), 1)
    for found, expected in zip(cache.update(new, new, 0), reference.update(new, new), strict=True):
        assert torch.equal(found, expected)


def test_prompts_of_unequal_length_are_read_in_parts():
    cache = cache_of_one_layer(3, 6)
    long, short = states(1, 4), states(2, 3)
    cache.show(slice(0, 1), 0, 0)
    assert cache.update(long, long, 0)[0].shape == (1, 2, 4, 4)
    cache.show(slice(1, 3), 1, 1)
    assert cache.get_seq_length() == 0
    assert torch.equal(cache.update(short, short, 0)[0], short)
    cache.show(slice(0, 3), 0, 4)
    seen = cache.layers[0].keys
    assert torch.equal(seen[:1], long)
    assert torch.equal(seen[1:, :, 1:], short)
    assert not seen[1:, :, 0].any(), "padding is finite"


def test_under_autocast_it_holds_the_type_that_attention_computes_in():
    model = tiny_model().model
    ids = torch.tensor([[5, 6, 7]])
    for dtype, enabled in ((torch.bfloat16, True), (torch.float32, False)):
        cache = ResponseCache.of(model, 1, 5)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            model(input_ids=ids, **{cache_name(model): cache}, use_cache=True)
        assert {layer.keys.dtype for layer in cache.layers} == {dtype}
        assert {layer.values.dtype for layer in cache.layers} == {dtype}


class Older(torch.nn.Module):
    def forward(self, input_ids, past_key_values=None, **options): ...


class Newer(torch.nn.Module):
    def forward(self, input_ids, cache=None, **options): ...


@pytest.mark.filterwarnings("error::FutureWarning")
def test_a_cache_has_the_name_that_the_model_knows():
    assert (cache_name(Older()), cache_name(Newer())) == ("past_key_values", "cache")
    model = tiny_model().model
    output = model(input_ids=torch.tensor([[5, 6]]), **{cache_name(model): ResponseCache.of(model, 1, 4)})
    assert isinstance(getattr(output, cache_name(model)), ResponseCache)


@pytest.mark.parametrize(("window", "in_place"), [(16, True), (15, False)])
def test_a_window_that_forgets_is_left_to_transformers(window, in_place):
    config = AutoConfig.for_model("mistral", num_hidden_layers=2, sliding_window=window)
    cache = ResponseCache(config, 2, 16)
    assert cache.in_place == in_place
    assert [isinstance(layer, PreallocatedLayer) for layer in cache.layers] == [in_place] * 2
