"""Which tasks a report shows: all, or so many whole ones, spread evenly over the updates.

Tasks are taken whole because a step can only be understood beside those it was compared with.
"""

from __future__ import annotations

import numpy as np

from hgpo.columns import IntArray

_ROUNDING = 1e-9
"""So that ten times a tenth is one."""


class TaskSampler:
    """Takes `share` of the tasks of each update, drawn at random, and carries what is left over to the next.

    Every task is as likely as any other. To fill up a number of steps with the tasks that still fit would prefer short
    ones, which are those that were won.

    Example: with share 0.4, updates of four tasks each give 1, 2, 1, 2, 2 tasks.
    """

    def __init__(self, share: float, rng: np.random.Generator, due: float = 0.0) -> None:
        """Take `share` (0 to 1) of the tasks, drawn from `rng`, and `due` more (1: surely one of the first update)."""
        if not 0.0 < share <= 1.0:
            raise ValueError(f"share must be above 0 and at most 1, got {share!r}")
        self._share = share
        self._rng = rng
        self._due = due

    def take(self, group_N: IntArray) -> list[int]:
        """Numbers of the tasks of one update to show, ascending. group_N: number of each step's task."""
        tasks = np.unique(group_N)
        self._due += self._share * len(tasks)
        count = int(self._due + _ROUNDING)
        self._due -= count
        return [int(task) for task in np.sort(self._rng.permutation(tasks)[:count])]
