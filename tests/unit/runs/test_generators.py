import json

import numpy as np
import pytest

from hgpo.runs.checkpoints import restore_generator


def test_a_restored_generator_continues():
    rng = np.random.default_rng(7)
    rng.random(13)
    rng.integers(10, dtype=np.uint32)  # leaves half a word buffered
    restored = restore_generator(json.loads(json.dumps(rng.bit_generator.state)))
    assert rng.integers(10, dtype=np.uint32) == restored.integers(10, dtype=np.uint32)
    assert rng.random(5).tolist() == restored.random(5).tolist()
    assert rng.integers(100, size=9).tolist() == restored.integers(100, size=9).tolist()


@pytest.mark.parametrize(
    "state", [{}, {"bit_generator": "MT19937"}, {"bit_generator": "PCG64"}, {"bit_generator": "PCG64", "state": 3}]
)
def test_other_states_are_refused(state):
    with pytest.raises(ValueError, match="PCG64"):
        restore_generator(state)
