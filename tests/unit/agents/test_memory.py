import pytest

from hgpo.agents import Memory


@pytest.mark.parametrize(("length", "kept"), [(2, (2, 3)), (0, ()), (None, (0, 1, 2, 3))])
def test_only_the_last_steps_are_kept_oldest_first(length, kept):
    memory = Memory(length)
    for number in range(4):
        memory.remember(f"o{number}", f"a{number}", f"r{number}")
    assert memory.recent() == tuple((f"o{number}", f"a{number}") for number in kept)
    assert memory.responses() == tuple(f"r{number}" for number in kept)
