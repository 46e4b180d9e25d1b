"""One trainer for each `verl.mode`: `HgpoTrainer` combined with one of verl's training loops. Needs verl.

**Resuming an asynchronous run.** A checkpoint contains verl's queue. Complete groups are trained on unchanged;
incomplete groups are played again from the start. `tasks_drawn` counts both, so no task is lost or drawn twice.
"""

from __future__ import annotations

from hgpo.integrations.verl import verl_api
from hgpo.integrations.verl.mode import trainer_name
from hgpo.integrations.verl.queue import clear_rows_without_task, groups_in_queue
from hgpo.integrations.verl.trainer import HgpoTrainer


@verl_api.register_trainer(trainer_name("sync"))
class SyncTrainer(HgpoTrainer, verl_api.PPOTrainerSync):  # type: ignore[misc]
    """Samples a batch, then trains on it."""


class AsyncTrainer(HgpoTrainer):
    """Base class of the asynchronous trainers."""

    def _add_batch_to_generate(self) -> None:
        self._add_prompts_to_generate(self.recipe.rollout.tasks_per_update)

    def _add_prompts_to_generate(self, num_prompts: int) -> int:
        """Draw the next tasks, at most as many as the remaining updates need; return their number."""
        updates = self.total_training_steps - self.global_steps + 1
        missing = updates * self.recipe.rollout.tasks_per_update - groups_in_queue()
        drawn = min(num_prompts, missing)
        return int(super()._add_prompts_to_generate(drawn)) if drawn > 0 else 0

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self.global_steps:
            clear_rows_without_task()  # steps of the update before the checkpoint


@verl_api.register_trainer(trainer_name("colocate_async"))
class ColocateAsyncTrainer(AsyncTrainer, verl_api.PPOTrainerColocateAsync):  # type: ignore[misc]
    """Samples later batches early, pauses sampling during an update, and continues with the new weights."""


@verl_api.register_trainer(trainer_name("separate_async"))
class SeparateAsyncTrainer(AsyncTrainer, verl_api.PPOTrainerSeparateAsync):  # type: ignore[misc]
    """Trains while other GPUs sample."""
