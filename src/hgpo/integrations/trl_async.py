"""A rollout worker for TRL's async GRPO: episodes of yours in, one sample an answer out. Run on TRL 1.16.

    AsyncGRPOTrainer(model=…, rollout_worker=StepWorker(play, StepAdvantages("hgpo")), …)

It implements `trl.experimental.async_grpo.async_grpo_trainer.RolloutWorkerProtocol` with a thread of its own.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hgpo.integrations.attempts import StepAdvantages, Turn
from hgpo.integrations.trl import split_sample


@dataclass(frozen=True, slots=True)
class Conversation:
    """One attempt at a task as tokens, and as turns.

    Example: `Conversation([1, 2, 3, 4], [0, 1, 0, 1], [0, -0.1, 0, -0.7], [Turn("hall"), Turn("kitchen")])`.

    Attributes:
        input_ids: Prompt, answers and what came between them.
        completion_mask: 1 for the model's tokens; each run of ones is an answer.
        old_log_probs: Of the policy that answered, 0 where the mask is 0.
        turns: What each answer was an answer to, and its reward.
        prompt: Messages, for TRL's log.
        completion: The same.
    """

    input_ids: Sequence[int]
    completion_mask: Sequence[int]
    old_log_probs: Sequence[float]
    turns: Sequence[Turn]
    prompt: Sequence[dict[str, Any]] = field(default_factory=list)
    completion: Sequence[dict[str, Any]] = field(default_factory=list)


Play = Callable[[int], Sequence[Conversation]]
"""The version of the policy that is live -> the conversations of one group, all at the same task."""


class StepWorker:
    """Plays groups in a thread until it is stopped.

    Args:
        play: Plays one group; called again and again, from the worker's thread alone.
        estimate: The estimator.
        most: Samples that may wait for the trainer; the thread waits once there are as many.
    """

    def __init__(self, play: Play, estimate: StepAdvantages, most: int = 1024) -> None:
        self._play, self._estimate = play, estimate
        self.rollout_buffer: queue.Queue[Any] = queue.Queue(maxsize=most)
        self.metrics_queue: queue.Queue[dict[str, Any]] = queue.Queue()
        self._version = 0
        self._group = 0
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._last = time.monotonic()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to play."""
        self._last = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="hgpo-rollouts", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the group that is being played."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(timeout=60)

    def update_model_version(self, model_version: int) -> None:
        """Samples that are begun from now on are of this version."""
        self._version = model_version

    def check_health(self, stale_after_s: float) -> None:
        """Raise what ended the thread, if it has ended, or that it has made nothing for so long.

        Raises:
            RuntimeError: either; the cause is chained.
        """
        if self._failure is not None:
            raise RuntimeError(f"playing failed: {self._failure}") from self._failure
        silent = time.monotonic() - self._last
        if silent > stale_after_s and self.rollout_buffer.empty():
            raise RuntimeError(f"no group was played to its end for {silent:.0f} s")

    def _work(self) -> None:
        try:
            while not self._stopped.is_set():
                version = self._version
                for sample in self.samples(self._play(version), version):
                    self._put(sample)
                self._last = time.monotonic()
        except Exception as error:  # said by check_health, in the trainer's thread
            self._failure = error

    def _put(self, sample: Any) -> None:
        while not self._stopped.is_set():
            try:
                sample.enqueued_at = time.monotonic()
                self.rollout_buffer.put(sample, timeout=0.2)
            except queue.Full:
                self._last = time.monotonic()  # waiting for the trainer is no fault
            else:
                return

    def samples(self, conversations: Sequence[Conversation], version: int) -> list[Any]:
        """The samples of one group."""
        from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

        self._group += 1
        advantages = self._estimate([conversation.turns for conversation in conversations], [0] * len(conversations))
        scores = [sum(turn.reward for turn in conversation.turns) for conversation in conversations]
        found: list[Any] = []
        for conversation, advantage_T, score in zip(conversations, advantages, scores, strict=True):
            whole = RolloutSample(
                prompt=list(conversation.prompt),
                completion=list(conversation.completion),
                input_ids=np.asarray(conversation.input_ids, dtype=np.int64),
                completion_mask=np.asarray(conversation.completion_mask, dtype=np.int64),
                old_log_probs=np.asarray(conversation.old_log_probs, dtype=np.float32),
                advantage=0.0,
                model_version=version,
                group_id=self._group,
                metrics={"reward": float(score), "reward_std": float(np.std(scores))},
            )
            found += split_sample(whole, advantage_T)
        return found
