"""Trees say of every branch what a row of its own says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgpo.config import TrainingSettings
from hgpo.policies.weights import Adapter, adapter_dropout, add_adapter
from hgpo.training.batching import (
    Sample,
    accepts_trees,
    lay_out_trees,
    micro_batches,
    pack,
    padded_tokens,
    row_tokens,
    row_width,
    split_model,
)
from hgpo.training.log_probs import response_log_probs, token_log_probs
from hgpo.training.update import Trained, make_optimizer, update_policy
from tiny_models import tiny_model


def sample(prompt, response, advantage=1.0):
    response_ids = np.asarray(response, dtype=np.int32)
    log_probs = np.full(len(response), -2.0, dtype=np.float32)
    return Sample(np.asarray(prompt, dtype=np.int32), response_ids, log_probs, advantage)


def samples_that_share(count, seed=0):
    """Prompts from a few prefixes, several responses to some of them."""
    rng = np.random.default_rng(seed)
    prefixes = [rng.integers(5, 40, size) for size in (3, 9, 17)]
    prompts = [np.concatenate([prefixes[k % 3], rng.integers(5, 9, k % 5)]) for k in range(max(1, count // 2))]
    return [
        sample(prompts[k % len(prompts)], rng.integers(5, 9, rng.integers(1, 6)), float(rng.normal()))
        for k in range(count)
    ]


TOKENS = st.lists(st.integers(1, 3), min_size=1, max_size=8)
BATCHES = st.lists(st.builds(sample, TOKENS, TOKENS), min_size=1, max_size=12)


@given(BATCHES, st.integers(1, 40))
def test_every_sample_can_be_read_along_its_path(samples, width):
    longest = max(one.token_count for one in samples) - 1
    trees = pack(samples, max(width, longest))
    assert sorted(member for tree in trees for member in tree.members) == list(range(len(samples)))
    for tree in trees:
        assert len(tree.ids_W) <= max(width, longest)
        for member, path in zip(tree.members, tree.paths, strict=True):
            tokens = [*samples[member].prompt_ids, *samples[member].response_ids[:-1]]
            assert tree.ids_W[path].tolist() == tokens


@given(BATCHES)
def test_nothing_is_read_twice_where_the_row_has_room_for_all(samples):
    [tree] = pack(samples, 1_000)
    tokens = [(*one.prompt_ids, *one.response_ids[:-1]) for one in samples]
    assert len(tree.ids_W) == len({one[:length] for one in tokens for length in range(1, len(one) + 1)})


@given(BATCHES)
def test_a_token_sees_its_own_branch_alone(samples):
    trees = pack(samples, 20)
    inputs = lay_out_trees(samples, trees, torch.device("cpu")).inputs
    for row, tree in enumerate(trees):
        for path in tree.paths:
            for depth, place in enumerate(path):
                assert inputs["attention_mask"][row, 0, place].nonzero().flatten().tolist() == sorted(path[: depth + 1])
                assert inputs["position_ids"][row, place] == depth


@given(BATCHES, st.integers(1, 60))
def test_micro_batches_keep_to_the_limit(samples, limit):
    longest = max(one.token_count for one in samples) - 1
    width = min(row_width(longest, limit), 24) if longest <= 24 else row_width(longest, limit)
    batches = micro_batches(samples, limit, width)
    assert sorted(row for rows in batches for row in rows) == list(range(len(samples)))
    for rows in batches:
        assert padded_tokens(samples, rows, width) <= max(limit, width)


@pytest.mark.parametrize("entropy", ["none", pytest.param("figure", marks=pytest.mark.slow), "with_gradient"])
@pytest.mark.parametrize("max_logits", [1, 2**26])
@pytest.mark.parametrize("width", [40, 512])
def test_scores_and_gradients_are_those_of_rows(entropy, max_logits, width):
    model = tiny_model().model
    samples = samples_that_share(17)

    def scored(row_width):
        model.zero_grad()
        scores = token_log_probs(
            model, samples, temperature=0.7, entropy=entropy, max_logits=max_logits, row_tokens=row_width
        )
        loss = (scores.log_prob_BT * scores.mask_BT).sum()
        if entropy == "with_gradient":
            loss = loss + (scores.entropy_BT * scores.mask_BT).sum()
        loss.backward()
        return scores, [parameter.grad.clone() for parameter in model.parameters()]

    (rows, row_gradients), (trees, tree_gradients) = scored(None), scored(width)
    assert torch.equal(rows.mask_BT, trees.mask_BT)
    torch.testing.assert_close(trees.log_prob_BT[rows.mask_BT], rows.log_prob_BT[rows.mask_BT], atol=1e-5, rtol=0)
    assert (trees.entropy_BT is None) == (entropy == "none")
    if entropy != "none":
        torch.testing.assert_close(trees.entropy_BT[rows.mask_BT], rows.entropy_BT[rows.mask_BT], atol=1e-5, rtol=0)
    for one, other in zip(row_gradients, tree_gradients, strict=True):
        torch.testing.assert_close(other, one, atol=1e-4, rtol=1e-3)


def test_recomputed_layers_read_trees_too():
    model = tiny_model().model
    samples = samples_that_share(9)
    plain = token_log_probs(model, samples, row_tokens=64)
    again = token_log_probs(model, samples, row_tokens=64, recompute_layers=True)
    torch.testing.assert_close(again.log_prob_BT, plain.log_prob_BT)
    again.log_prob_BT.sum().backward()


@pytest.mark.parametrize("share_prefixes", [False, True])
@pytest.mark.parametrize("limit", [1, 50, 10_000])
def test_the_size_of_batches_changes_nothing(limit, share_prefixes):
    model = tiny_model().model
    samples = samples_that_share(11)
    apart = response_log_probs(model, samples, share_prefixes=False)
    found = response_log_probs(model, samples, max_tokens=limit, share_prefixes=share_prefixes)
    for one, other in zip(apart, found, strict=True):
        np.testing.assert_allclose(other, one, atol=1e-5)


def test_an_update_is_the_same_with_and_without_shared_prefixes():
    samples = samples_that_share(24)

    def updated(share):
        model = tiny_model().model
        settings = TrainingSettings(
            learning_rate=1e-3, mini_batch_size=8, micro_batch_tokens=64, kl_coefficient=0.0, share_prefixes=share
        )
        rng = np.random.default_rng(0)
        metrics = update_policy(Trained(model, make_optimizer(model, settings)), samples, settings, rng)
        return metrics, torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    (apart, one), (shared, other) = updated(False), updated(True)
    assert {name: pytest.approx(value, abs=2e-4) for name, value in apart.items()} == shared
    torch.testing.assert_close(other, one, atol=2e-4, rtol=0)


def test_rows_are_shared_where_it_is_asked_for_and_possible():
    model = tiny_model().model
    samples = samples_that_share(4)
    assert row_tokens(model, True, samples, 8_192) == 512
    assert row_tokens(model, True, samples, 100) == 100
    assert row_tokens(model, "auto", samples, 8_192) is None, "narrow models gain nothing"
    assert row_tokens(model, False, samples, 8_192) is None
    assert row_tokens(model, True, [], 8_192) is None
    assert row_width(longest=4_000, max_tokens=8_192) == 8_000


def test_a_model_that_looks_back_a_few_tokens_only_is_left_alone():
    from transformers import AutoModelForCausalLM, MistralConfig

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    for window, expected in ((4, False), (None, True)):
        config = MistralConfig(vocab_size=50, num_key_value_heads=1, sliding_window=window, **sizes)
        assert accepts_trees(AutoModelForCausalLM.from_config(config).eval()) is expected


def test_a_model_that_does_not_heed_the_mask_is_found_out():
    model = tiny_model().model
    body = model.base_model
    plain = body.forward
    body.forward = lambda *args, attention_mask=None, **named: plain(*args, **named)
    assert not accepts_trees(model)


def test_a_model_that_fails_on_a_mask_for_each_token_is_left_alone():
    from transformers import FalconConfig, FalconForCausalLM

    config = FalconConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, alibi=True)
    assert not accepts_trees(FalconForCausalLM(config).eval())


def test_an_adapters_dropout_does_not_hide_what_its_model_can_do():
    pytest.importorskip("peft")
    model = add_adapter(tiny_model().model, Adapter(4, 400.0, dropout=0.5), seed=0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.ones_(parameter)  # as it was made, an adapter changes nothing
    with adapter_dropout(model, np.random.default_rng(0)):
        before = torch.get_rng_state()
        assert split_model(model) is not None
        assert accepts_trees(model)
        assert torch.equal(torch.get_rng_state(), before)
