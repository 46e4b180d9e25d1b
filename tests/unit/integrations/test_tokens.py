import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hgpo.integrations.tokens import spread_over_tokens

MASK = torch.tensor([[1, 1, 0], [0, 1, 0], [0, 0, 0]])


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_every_response_token_gets_the_advantage_of_its_step(make, dtype):
    spread = spread_over_tokens(make([0.5, -2.0, 3.0]), MASK.to(dtype))
    assert spread.dtype == torch.float32
    assert spread.tolist() == [[0.5, 0.5, 0.0], [0.0, -2.0, 0.0], [0.0, 0.0, 0.0]]


def test_rows_may_be_reordered_and_padded():
    spread = spread_over_tokens(np.array([0.5, -2.0]), torch.ones(4, 2), row_N=np.array([3, 1]))
    assert spread.tolist() == [[0.0, 0.0], [-2.0, -2.0], [0.0, 0.0], [0.5, 0.5]]
    assert not np.signbit(spread[0].numpy()).any()
    again = spread_over_tokens(
        torch.tensor([0.5, -2.0]), torch.ones(4, 2), row_N=torch.tensor([3, 1], dtype=torch.int32)
    )
    assert torch.equal(again, spread)


def test_the_cast_is_the_nearest_float32_once_per_step():
    values = np.random.default_rng(0).normal(size=200) * 10.0 ** np.arange(-100, 100) / 1e70
    spread = spread_over_tokens(values, torch.ones(200, 3, dtype=torch.bool)).numpy()
    assert (spread == values.astype(np.float32)[:, None]).all()
    assert spread.any()


def test_rows_of_different_lengths_keep_their_layout():
    masks = [torch.tensor([1, 1]), torch.tensor([0, 1, 1]), torch.tensor([0])]
    nested = torch.nested.as_nested_tensor(masks, layout=torch.jagged)
    spread = spread_over_tokens(np.array([2.0, 1.0]), nested, row_N=np.array([1, 0]))
    assert spread.is_nested
    assert spread.layout == torch.jagged
    assert [row.tolist() for row in spread.unbind()] == [[1.0, 1.0], [0.0, 2.0, 2.0], [0.0]]


@given(st.integers(1, 6), st.integers(0, 4), st.integers(1, 5), st.integers(0, 2**32))
def test_steps_are_found_again_wherever_their_rows_went(steps, padding, tokens, seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=steps)
    row_of_step = rng.permutation(steps + padding)[:steps]
    mask = torch.from_numpy(rng.random((steps + padding, tokens)) < 0.6)
    spread = spread_over_tokens(values, mask, row_N=row_of_step)
    straight = spread_over_tokens(values, mask[row_of_step])
    assert torch.equal(spread[row_of_step], straight)
    assert spread.count_nonzero() == mask[row_of_step].sum()
    assert (spread[~mask] == 0).all()


def test_a_read_only_array_is_not_written_to():
    values = np.ones(3)
    values.flags.writeable = False
    assert spread_over_tokens(values, MASK).sum() == 3.0


@pytest.mark.parametrize(
    ("advantage", "mask", "row", "problem"),
    [
        (np.zeros(2), MASK, None, "2 advantages for 3 rows: .* row_N"),
        (np.zeros((3, 1)), MASK, None, r"one number per step, got shape \(3, 1\)"),
        (np.zeros(3), MASK[0], None, "two dimensions"),
        (np.array([0.0, np.nan, 0.0]), MASK, None, "step 1 is nan"),
        (np.array([0.0, 0.0, 1e39]), MASK, None, r"step 2 is 1e\+39"),
        (np.zeros(3), MASK * 2, None, "only 0 and 1"),
        (np.zeros(3), MASK * float("nan"), None, "only 0 and 1"),
        (np.zeros(2), MASK, np.array([0, 3]), "row_N puts step 1 in row 3, but rows go from 0 to 2"),
        (np.zeros(2), MASK, np.array([-1, 0]), "row_N puts step 0 in row -1"),
        (np.zeros(2), MASK, np.array([1, 1]), "row_N puts 2 steps in row 1"),
        (np.zeros(2), MASK, np.array([0, 1, 2]), r"one integer for each of 2 steps, got torch.int64 of shape \(3,\)"),
        (np.zeros(2), MASK, np.array([0.0, 1.0]), "got torch.float64"),
    ],
)
def test_what_does_not_fit_is_refused(advantage, mask, row, problem):
    with pytest.raises(ValueError, match=problem):
        spread_over_tokens(advantage, mask, row)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_mask_that_is_not_jagged_is_refused():
    strided = torch.nested.nested_tensor([torch.ones(2), torch.ones(1)])
    with pytest.raises(ValueError, match="layout"):
        spread_over_tokens(np.zeros(2), strided)
