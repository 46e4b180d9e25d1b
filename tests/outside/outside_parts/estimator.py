"""The return against the mean of the step's task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgpo import Advantages, StepBatch
from hgpo.estimators import register
from hgpo.returns import discounted_returns


@dataclass(frozen=True)
class CentredOptions:
    scale: float = 1.0


def centred(batch: StepBatch, gamma: float, options: CentredOptions) -> Advantages:
    return_N = discounted_returns(batch, gamma)
    mean_G = np.bincount(batch.group, return_N) / np.bincount(batch.group)
    return Advantages(options.scale * (return_N - mean_G[batch.group]), return_N)


CENTRED = register("centred", centred, CentredOptions)
