"""One training sample: a step's prompt, the response that was sampled, and its advantage."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Sample:
    """A step as the update sees it.

    Example: a 57-token prompt answered by "go to fridge 1" and the end token is
    `Sample(prompt_ids=int32[57], response_ids=int32[5], log_probs=float32[5], advantage=0.7)`.

    Raises:
        ValueError: the prompt is empty, log-probs and response differ in length, or a number is not finite.
    """

    prompt_ids: NDArray[np.int32]
    response_ids: NDArray[np.int32]
    log_probs: NDArray[np.float32]  # of the response tokens, when they were sampled
    advantage: float
    cut: bool = False  # the response reached its length limit without an end token

    def __post_init__(self) -> None:
        if len(self.prompt_ids) == 0:
            raise ValueError("a sample needs at least one prompt token")
        if self.response_ids.shape != self.log_probs.shape or self.response_ids.ndim != 1:
            raise ValueError(f"response_ids {self.response_ids.shape} and log_probs {self.log_probs.shape} differ")
        if not isfinite(self.advantage) or not np.isfinite(self.log_probs).all():
            raise ValueError(f"advantage {self.advantage} and log_probs must be finite")

    @property
    def token_count(self) -> int:
        """Prompt and response tokens together."""
        return len(self.prompt_ids) + len(self.response_ids)
