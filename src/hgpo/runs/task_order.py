"""Which tasks come next: all of a split in a shuffled order, again and again, each pass shuffled anew."""

from __future__ import annotations

import numpy as np


def task_indices(seed: int, tasks: int, start: int, count: int) -> list[int]:
    """Indices of draws `start` to `start + count` of the endless order that `seed` fixes.

    A pure function of its arguments, so a resumed run needs to remember only how many draws were made. Within one
    pass over the split no task comes twice.

    Example: `task_indices(0, 3, 0, 6)` is two permutations of 0, 1, 2 one after the other.
    """
    if tasks < 1:
        raise ValueError("the training split has no tasks")
    drawn: list[int] = []
    while len(drawn) < count:
        epoch, offset = divmod(start + len(drawn), tasks)
        order = np.random.default_rng([seed, epoch]).permutation(tasks)
        drawn += order[offset : offset + count - len(drawn)].tolist()
    return drawn
