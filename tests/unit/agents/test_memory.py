import pytest

from hgpo.agents import Memory


def test_only_the_last_pairs_are_kept_oldest_first():
    memory = Memory(2)
    for number in range(4):
        memory.remember(f"o{number}", f"a{number}", "")
    assert memory.recent() == (("o2", "a2"), ("o3", "a3"))


def test_an_agent_without_memory_remembers_nothing():
    memory = Memory(0)
    memory.remember("o", "a", "")
    assert memory.recent() == ()


def test_a_negative_length_is_refused():
    with pytest.raises(ValueError, match="history_length must be 0 or more, not -1"):
        Memory(-1)
