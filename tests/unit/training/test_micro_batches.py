import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.policies.cache import length_buckets
from hgpo.training.batching import Sample, distinct, micro_batches, padded_tokens


def sample(prompt, response, token=0):
    ids = np.zeros(response, dtype=np.int32)
    return Sample(np.full(prompt, token, dtype=np.int32), ids, ids.astype(np.float32), 0.0)


def samples_of(lengths):
    """One sample of each pair of lengths, no two alike."""
    return [sample(*pair, token) for token, pair in enumerate(lengths)]


def layout_tokens(samples, rows):
    """Rows times columns of what `token_log_probs` hands to the model."""
    prompt = max(len(samples[row].prompt_ids) for row in rows)
    response = max(len(samples[row].response_ids) for row in rows)
    return len(rows) * (prompt + response - 1)


def test_long_prompts_and_long_responses_do_not_pad_each_other_over_the_limit():
    samples = samples_of([(500, 12), (12, 500)] * 8)
    batches = micro_batches(samples, 8_192)
    assert sorted(np.concatenate(batches)) == list(range(16))
    assert max(layout_tokens(samples, rows) for rows in batches) <= 8_192


LENGTHS = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), max_size=60)


@given(LENGTHS, st.integers(1, 2_000))
def test_micro_batches_keep_to_the_limit_and_to_the_batches_that_always_did(lengths, limit):
    samples = samples_of(lengths)
    batches = micro_batches(samples, limit)
    assert sorted(row for rows in batches for row in rows) == list(range(len(samples)))
    assert all(len(rows) == 1 or layout_tokens(samples, rows) <= limit for rows in batches)
    by_total = length_buckets([one.token_count for one in samples], max_tokens=limit)
    if all(layout_tokens(samples, rows) <= limit for rows in by_total):
        assert [rows.tolist() for rows in batches] == [rows.tolist() for rows in by_total]


@pytest.mark.parametrize("lengths", [[(7, 3)], [(7, 3), (2, 9), (1, 1)]])
def test_padded_tokens_are_those_of_the_layout(lengths):
    samples = samples_of(lengths)
    rows = range(len(samples))
    assert padded_tokens(samples, rows) == layout_tokens(samples, rows)


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(1, 60))
def test_samples_that_are_not_distinct_share_a_batch_and_count_once(tokens, limit):
    samples = [sample(5, 3, token) for token in tokens]
    batches = micro_batches(samples, limit)
    assert sorted(row for rows in batches for row in rows) == list(range(len(samples)))
    for rows in batches:
        here = {tokens[row] for row in rows}
        assert sum(tokens.count(token) for token in here) == len(rows)
        assert len(here) == 1 or len(here) * 7 <= limit
        assert padded_tokens(samples, rows) == len(here) * 7
    assert len(batches) == -(-len(set(tokens)) // max(1, limit // 8))  # as long as a sample is by itself


def test_distinct_samples_differ_in_prompt_or_response():
    first, other, longer = sample(4, 2), sample(4, 2, 1), sample(4, 3)
    rows, places = distinct([first, other, sample(4, 2), longer, other])
    assert rows == [0, 1, 3]
    assert places.tolist() == [0, 1, 0, 2, 1]
