import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.policies.cache import lay_out_apart, lay_out_together, shared_tokens

PROMPTS = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=8), min_size=1, max_size=10, unique_by=tuple)


def as_prompts(rows):
    return [np.array(row, dtype=np.int32) for row in rows]


TWO_PAIRS = [[1, 1, *end, tail] for end in ([2, 2, 2], [3, 3, 3]) for tail in (4, 5)]


@pytest.mark.parametrize(
    ("rows", "shared"),
    [
        pytest.param([[5, 6, 7], [5, 6, 8], [9]], [2, 2, 0], id="the docstring's example"),
        pytest.param([[5, 6, 7], [5, 6, 7, 8, 9]], [2, 2], id="the last token is not shared"),
        pytest.param(TWO_PAIRS, [5, 5, 5, 5], id="pairs save more by five tokens than all four by two"),
    ],
)
def test_prefixes_are_shared_where_this_saves_most(rows, shared):
    assert shared_tokens(as_prompts(rows)).tolist() == shared


@given(PROMPTS)
def test_every_way_to_read_the_prompts_takes_as_many_tokens_or_more(rows):
    prompts = as_prompts(rows)
    shared = shared_tokens(prompts)
    assert all(count < len(prompt) for count, prompt in zip(shared, prompts, strict=True))
    assert tokens_read(prompts, shared) <= min(best_of_all_runs(sorted(rows)), sum(map(len, rows)))


@given(PROMPTS, st.sampled_from([0, 5, 1000]))
def test_a_layout_holds_the_prompts(rows, overhead):
    prompts = as_prompts(rows)
    layout = lay_out_together(prompts, 0, overhead=overhead)
    assert sorted(layout.order_U) == list(range(len(rows)))
    assert layout.shared == 0 or overhead < 1000
    own = layout.mask_UP[:, layout.shared :]
    assert own.any(axis=1).all(), "a response follows a token that was just read"
    assert (np.diff(own.sum(axis=1)) <= 0).all()
    for row, index in enumerate(layout.order_U):
        assert layout.ids_UP[row][layout.mask_UP[row]].tolist() == rows[index]
        seen = layout.mask_UP[row, : layout.shared]
        if seen.any():
            prefix = layout.prefix_U[row]
            np.testing.assert_array_equal(layout.mask_GP[prefix], seen)
            np.testing.assert_array_equal(layout.ids_GP[prefix][seen], layout.ids_UP[row, : layout.shared][seen])


def test_little_is_not_read_apart():
    prompts = as_prompts([[1, 2, 3, 4], [1, 2, 3, 5]])
    assert lay_out_together(prompts, 0, overhead=2).shared == 3
    together, apart = lay_out_together(prompts, 0, overhead=3), lay_out_apart(prompts, 0)
    assert together.shared == apart.shared == 0
    np.testing.assert_array_equal(together.ids_UP, apart.ids_UP)


def tokens_read(prompts, shared):
    prefixes = {prompt[:count].tobytes(): count for prompt, count in zip(prompts, shared, strict=True)}
    return sum(prefixes.values()) + sum(map(len, prompts)) - int(shared.sum())


def best_of_all_runs(rows):
    """By trying them all: the fewest tokens of any cut of the sorted prompts into runs."""
    if not rows:
        return 0
    costs = []
    for end in range(1, len(rows) + 1):
        common = 0
        if end > 1:
            shortest = min(map(len, rows[:end])) - 1
            differ = [place for place in range(shortest) if len({row[place] for row in rows[:end]}) > 1]
            common = differ[0] if differ else shortest
        costs.append(common + sum(len(row) - common for row in rows[:end]) + best_of_all_runs(rows[end:]))
    return min(costs)
