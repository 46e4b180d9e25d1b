"""Many environments side by side in one process, stepped together; those that have ended are left alone.

One object to hold where the environments live elsewhere than the agent: it can be pickled, so a worker process or a
Ray actor can be given one or keep one. It knows nothing of the environments but `Env`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from hgpo.envs.base import Env, Info, StepResult, Task

Start: TypeAlias = tuple[str, Info]
"""(observation, info), as in Gymnasium."""


class BatchedEnv:
    """Environments by slot: slot number `i` plays `tasks[i]`, and only live slots take commands.

    An error inside an environment is passed on with a note that names the task, the slot and the command.

    Example:
        >>> batch = BatchedEnv()  # doctest: +SKIP
        >>> starts = batch.reset(suite.tasks("train")[:2], seeds=[7, 7])  # doctest: +SKIP
        >>> results = batch.step({0: "go to desk 1", 1: "look"})  # doctest: +SKIP
        >>> observation, reward, terminated, truncated, info = results[0]  # doctest: +SKIP
        >>> batch.live  # 0 has ended  # doctest: +SKIP
        (1,)
    """

    def __init__(self) -> None:
        self._tasks: tuple[Task, ...] = ()
        self._environments: list[Env] = []
        self._live: dict[int, None] = {}

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The task of each slot."""
        return self._tasks

    @property
    def live(self) -> tuple[int, ...]:
        """The slots whose episodes are still running, in ascending order."""
        return tuple(self._live)

    def reset(
        self, tasks: Sequence[Task] | None = None, seeds: Sequence[int | None] | int | None = None
    ) -> dict[int, Start]:
        """Start an episode in every slot and return observation and info by slot.

        `tasks` says what the slots play from now on; without it they play their tasks again. `seeds` is one seed
        for all slots or one per slot. `ValueError` for no tasks at all or another number of seeds than of tasks.
        """
        if tasks is not None:
            environments = [task.make() for task in tasks]
            self._tasks, self._environments = tuple(tasks), environments
        if not self._tasks:
            raise ValueError("no tasks to play; give reset() at least one")
        per_slot = [seeds] * len(self._tasks) if seeds is None or isinstance(seeds, int) else list(seeds)
        if len(per_slot) != len(self._tasks):
            raise ValueError(f"{len(per_slot)} seeds for {len(self._tasks)} tasks; give one per task, or one for all")
        self._live = {}
        starts: dict[int, Start] = {}
        for slot, seed in enumerate(per_slot):
            try:
                starts[slot] = self._environments[slot].reset(seed=seed)
            except Exception as error:
                error.add_note(f"while resetting task {self._tasks[slot].id!r} in slot {slot} with seed {seed}")
                raise
        self._live = dict.fromkeys(starts)
        return starts

    def step(self, commands: Mapping[int, str]) -> dict[int, StepResult]:
        """Carry out one command in each slot named and return the results by slot; other slots are left alone.

        A slot whose episode ends with this step is live no longer. `ValueError`, before anything is carried out,
        names slots that are not live.
        """
        if not commands.keys() <= self._live.keys():
            wrong = sorted(commands.keys() - self._live.keys())
            raise ValueError(f"slots {wrong} are not live; live are {list(self._live)}")
        results: dict[int, StepResult] = {}
        for slot, command in commands.items():
            try:
                result = self._environments[slot].step(command)
            except Exception as error:
                error.add_note(f"while carrying out {command!r} for task {self._tasks[slot].id!r} in slot {slot}")
                raise
            results[slot] = result
            if result[2] or result[3]:
                del self._live[slot]
        return results
