"""Writes the advantage of each step to its response tokens in a training batch. Needs torch (extra "train").

Shapes: N steps, B rows of the training batch, T response tokens.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray


def spread_over_tokens(
    advantage_N: NDArray[np.floating] | torch.Tensor,
    response_mask_BT: torch.Tensor,
    row_N: NDArray[np.integer] | torch.Tensor | None = None,
) -> torch.Tensor:
    """Give every response token the advantage of its step: result[row_N[i], t] = advantage_N[i] where the mask is 1.

    Each step is cast from float64 to the nearest float32 once (relative error at most 2^-24), so that all its tokens
    have the same bits. Tokens outside the mask, and rows without a step (padding), are 0.

    Args:
        advantage_N: float[N], in the order of the steps (`Advantages.values`), or any other number per step.
        response_mask_BT: [B, T], bool or numbers 0 and 1; or a nested tensor of that shape with rows of different
            lengths (layout jagged), as in verl's V1 trainer.
        row_N: integers[N], the row of each step in the training batch, if rows were reordered or padded. None: row i is
            step i, and B must be N.

    Returns:
        float32 of the mask's shape and layout, on the mask's device.

    Raises:
        ValueError: shapes differ, a row outside the batch or with two steps, a mask value other than 0 and 1,
            or an advantage that is not finite in float32.

    Example: a training batch of three rows, the second of which is padding.

    >>> spread_over_tokens(np.array([0.5, -1.0]), torch.tensor([[1, 1], [0, 0], [1, 0]]), row_N=np.array([2, 0]))
    tensor([[-1.0000, -1.0000],
            [ 0.0000,  0.0000],
            [ 0.5000,  0.0000]])
    """
    if response_mask_BT.dim() != 2:
        raise ValueError(f"response_mask needs two dimensions, rows and tokens, got {response_mask_BT.dim()}")
    row_count = response_mask_BT.size(0)
    cast_N = _cast(advantage_N)
    index_N = _rows(row_N, len(cast_N), row_count)
    advantage_B = torch.zeros(row_count, dtype=torch.float32)
    advantage_B[index_N] = cast_N
    advantage_B = advantage_B.to(response_mask_BT.device)
    if not response_mask_BT.is_nested:
        return torch.where(_as_bool(response_mask_BT), advantage_B[:, None], 0.0)
    if response_mask_BT.layout != torch.jagged:
        raise ValueError("a nested response_mask needs layout=torch.jagged")
    token_mask = _as_bool(response_mask_BT.values())
    offsets: torch.Tensor = response_mask_BT.offsets()  # type: ignore[attr-defined]  # only nested tensors have it
    token_advantage = advantage_B.repeat_interleave(offsets.diff())
    return torch.nested.nested_tensor_from_jagged(torch.where(token_mask, token_advantage, 0.0), offsets)


def _cast(advantage_N: NDArray[np.floating] | torch.Tensor) -> torch.Tensor:
    """The advantages as float32[N] on the CPU."""
    if isinstance(advantage_N, torch.Tensor):
        values_N = advantage_N.detach().cpu()
    else:
        values_N = torch.from_numpy(np.array(advantage_N))  # a copy: read-only arrays are fine
    if values_N.dim() != 1:
        raise ValueError(f"advantage needs one dimension, one number per step, got shape {tuple(values_N.shape)}")
    cast_N = values_N.to(torch.float32)
    bad = torch.nonzero(~torch.isfinite(cast_N))
    if len(bad):
        step = int(bad[0])
        raise ValueError(f"advantage of step {step} is {values_N[step].item()}, which is no finite float32 number")
    return cast_N


def _rows(row_N: NDArray[np.integer] | torch.Tensor | None, steps: int, rows: int) -> torch.Tensor:
    """The row of each step, int64[N], checked."""
    if row_N is None:
        if steps != rows:
            raise ValueError(
                f"{steps} advantages for {rows} rows: pass the row of each step as row_N if the batch was padded or "
                "reordered"
            )
        return torch.arange(rows)
    index_N = torch.as_tensor(np.array(row_N) if not isinstance(row_N, torch.Tensor) else row_N).cpu()
    if index_N.dtype.is_floating_point or index_N.dtype == torch.bool or index_N.shape != (steps,):
        shape = tuple(index_N.shape)
        raise ValueError(f"row_N needs one integer for each of {steps} steps, got {index_N.dtype} of shape {shape}")
    index_N = index_N.to(torch.int64)
    outside = torch.nonzero((index_N < 0) | (index_N >= rows))
    if len(outside):
        step = int(outside[0])
        raise ValueError(f"row_N puts step {step} in row {int(index_N[step])}, but rows go from 0 to {rows - 1}")
    count_B = torch.bincount(index_N, minlength=rows)
    if bool((count_B > 1).any()):
        row = int(count_B.argmax())
        raise ValueError(f"row_N puts {int(count_B[row])} steps in row {row}; a row has one")
    return index_N


def _as_bool(mask: torch.Tensor) -> torch.Tensor:
    is_one = mask == 1
    if not bool((is_one | (mask == 0)).all()):
        raise ValueError("response_mask may contain only 0 and 1")
    return is_one
