"""Random generators of a checkpoint, so that a resumed run draws the numbers that the first one would have drawn.

A checkpoint stores `rng.bit_generator.state` as JSON, whose integers have more than 64 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def restore_generator(state: dict[str, Any]) -> np.random.Generator:
    """A generator (PCG64, numpy's default) that continues from `rng.bit_generator.state`.

    Raises:
        ValueError: It is not a state of PCG64.
    """
    bit_generator = np.random.PCG64()
    try:
        bit_generator.state = state  # type: ignore[assignment]
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"not a state of numpy's PCG64: {error}") from error
    return np.random.Generator(bit_generator)
