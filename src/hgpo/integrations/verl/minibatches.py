"""How many steps a mini-batch has when the steps are shared among training processes."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True, slots=True)
class Cut:
    """How a batch is cut.

    Attributes:
        mini_batches: how many there are.
        size: rows of each.
        padding: rows among all of them that are no steps.
    """

    mini_batches: int
    size: int
    padding: int


def cut(steps: int, mini_batch_size: int, ranks: int) -> Cut:
    """Equal parts of at most `mini_batch_size` rows, each a multiple of `ranks`: as few as can be, then as small.

    The built-in trainer cuts a batch the same way; filling up to whole mini-batches, as verl does by itself, would let
    the last one train on a handful of steps. Fewer rows are padding than a mini-batch has, so none is padding alone.

    Args:
        steps: rows to be trained on.
        mini_batch_size: the most rows per optimiser step; a multiple of `ranks`.
        ranks: training processes, each of which takes an equal share of a mini-batch.

    Raises:
        ValueError: there are no steps, or the ranks cannot share a mini-batch.

    Example: 1,000 steps in mini-batches of at most 256 on 4 ranks: `Cut(mini_batches=4, size=252, padding=8)`.
    """
    if steps < 1:
        raise ValueError("there are no steps to cut into mini-batches")
    if ranks < 1 or mini_batch_size < ranks or mini_batch_size % ranks:
        raise ValueError(f"mini_batch_size {mini_batch_size} must be a multiple of the {ranks} ranks")
    mini_batches = ceil(steps / mini_batch_size)
    size = ceil(steps / (mini_batches * ranks)) * ranks
    return Cut(mini_batches, size, mini_batches * size - steps)
