import json

import numpy as np
import pytest

from hgpo.runs.generators import generator_state, restore_generator


@pytest.mark.parametrize("kind", ["PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937"])
def test_a_restored_generator_continues(kind):
    rng = np.random.Generator(getattr(np.random, kind)(7))
    rng.random(13)
    rng.integers(10, dtype=np.uint32)  # leaves half a word buffered
    restored = restore_generator(json.loads(json.dumps(generator_state(rng))))
    assert rng.random(5).tolist() == restored.random(5).tolist()
    assert rng.integers(100, size=9).tolist() == restored.integers(100, size=9).tolist()


@pytest.mark.parametrize("state", [{}, {"bit_generator": "seed"}, {"bit_generator": "PCG64", "state": 3}])
def test_other_states_are_refused(state):
    with pytest.raises(ValueError, match=r"generator|state"):
        restore_generator(state)
