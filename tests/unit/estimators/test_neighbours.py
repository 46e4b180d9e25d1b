"""Similar states: hashed trigrams beside counted ones, blocks beside all pairs, and time that does not grow faster."""

from __future__ import annotations

import time
import tracemalloc
from collections import Counter

import numpy as np
import pytest

from hgpo import StepBatch, compute_advantages
from hgpo.estimators.levels import Matching
from hgpo.estimators.neighbours import BLOCK, MOST_MATCHES, similar_states, trigram_counts
from hgpo.grouping import group_steps

TEXTS = [
    "You arrive at fridge 1. The fridge 1 is closed.",
    "You arrive at fridge 1. The fridge 1 is open. In it, you see nothing.",
    "You arrive at fridge 2. The fridge 2 is closed.",
    "Nothing happens.",
    "",
    "a",
    "\ud800 is half of a surrogate pair",
]


def counted(text: str) -> Counter[str]:
    padded = f"\x02\x02{text}\x03"
    return Counter(padded[at : at + 3] for at in range(len(padded) - 2))


def cosine(one: Counter[str], other: Counter[str]) -> float:
    shared = sum(count * other[trigram] for trigram, count in one.items())
    return float(shared / np.sqrt(sum(n * n for n in one.values()) * sum(n * n for n in other.values())))


def scaled(texts: list[str]) -> np.ndarray:
    count_UD = trigram_counts(texts).astype(np.float64)
    return count_UD / np.linalg.norm(count_UD, axis=1, keepdims=True)


def test_products_of_vectors_are_cosines_of_trigram_counts() -> None:
    vector_UD = scaled(TEXTS)
    exact = np.array([[cosine(counted(one), counted(other)) for other in TEXTS] for one in TEXTS])
    np.testing.assert_allclose(vector_UD @ vector_UD.T, exact, atol=0.08)
    np.testing.assert_allclose(np.diag(vector_UD @ vector_UD.T), 1, atol=1e-6)


def test_texts_without_a_common_trigram_are_not_similar() -> None:
    """Many of their trigrams share a cell; without signs, the cosine would be 0.5."""
    random = np.random.default_rng(0)
    one, other = ("".join(random.choice(list(letters), 1_000)) for letters in ("abcdefghijklm", "nopqrstuvwxyz"))
    vector_UD = scaled([one, other])
    assert abs(vector_UD[0] @ vector_UD[1]) < 0.15


def test_a_text_has_one_vector_wherever_it_stands() -> None:
    many = [*(f"filler {number}" for number in range(1_500)), *TEXTS]
    np.testing.assert_array_equal(trigram_counts(many)[-len(TEXTS) :], trigram_counts(TEXTS))


def test_long_texts_need_little_memory() -> None:
    texts = ["ab cd" * 10_000] * 60
    tracemalloc.start()
    trigram_counts(texts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6


def walks(steps: int, tasks: int, seed: int = 0) -> StepBatch:
    """Random walks in the plane of 50 steps each, as dense in a large task as in a small one; no state is met twice."""
    random = np.random.default_rng(seed)
    trajectories = steps // 50
    start = random.uniform(0, 5 * (trajectories / tasks) ** 0.5, (trajectories, 1, 2))
    place = (start + np.cumsum(random.normal(0, 1, (trajectories, 50, 2)), axis=1)).reshape(-1, 2)
    return StepBatch.from_columns(
        group=np.repeat(np.arange(tasks), steps // tasks),
        trajectory=np.repeat(np.arange(trajectories), 50),
        step=np.tile(np.arange(50), trajectories),
        observation=np.arange(steps),
        reward=random.random(steps),
        embedding=place,
    )


def test_blocks_find_nearly_all_pairs_of_a_large_task() -> None:
    batch = walks(50 * (2 * BLOCK // 50 + 1), 1)
    groups = group_steps(batch, 0)
    found = similar_states(batch, groups, Matching(0.95, "embedding"))
    assert batch.embedding is not None
    place = batch.embedding[groups.row_N]
    near = ((place[:, None] - place) ** 2).sum(axis=2) <= 0.1
    pairs = set(zip(*np.nonzero(near), strict=True))
    matched = set(zip(found.source_E.tolist(), found.target_E.tolist(), strict=True))
    assert matched <= pairs
    assert len(matched) >= 0.97 * len(pairs)


def test_a_state_matches_the_most_similar_ones_only() -> None:
    batch = walks(200, 1)
    found = similar_states(batch, group_steps(batch, 0), Matching(1e-6, "embedding"))
    everything = StepBatch.from_columns(
        group=[0] * 200, trajectory=np.arange(200), step=[0] * 200, observation=np.arange(200), reward=[0] * 200,
        embedding=np.arange(200)[:, None] / 1_000,
    )  # fmt: skip
    assert np.bincount(found.source_E).max() <= MOST_MATCHES + 1
    found = similar_states(everything, group_steps(everything, 0), Matching(0.5, "embedding"))
    assert (np.bincount(found.source_E) == MOST_MATCHES + 1).all()
    assert sorted(found.target_E[found.source_E == 0].tolist()) == list(range(MOST_MATCHES + 1))


def soft(observation: list, threshold: float, **columns: object) -> list[int]:
    """Steps that are compared with each step, of its own included."""
    count = len(observation)
    batch = StepBatch.from_columns(
        group=[0] * count, trajectory=range(count), step=[0] * count, observation=observation, reward=[0] * count,
        **columns,
    )  # fmt: skip
    found = similar_states(batch, group_steps(batch, 0), Matching(threshold, "embedding" if columns else "text"))
    sizes = np.bincount(found.source_E, minlength=count)
    return sizes[np.argsort(group_steps(batch, 0).row_N)].tolist()


@pytest.mark.parametrize("far", [1e5, 1e8, 1e10, 1e12, 1e90])
def test_a_far_state_changes_no_match_of_others(far: float) -> None:
    near = [0.0, 0.9, 1.8]
    assert soft([*"abc"], 0.5, embedding=[[place] for place in near]) == [2, 3, 2]
    assert soft([*"abcd"], 0.5, embedding=[[place] for place in (*near, far)]) == [2, 3, 2, 1]
    beyond = [place + far for place in (0, 0.75, 1.5)]  # exact up to 1e12
    if far < 1e90:
        assert soft([*"abcdef"], 0.5, embedding=[[place] for place in (*near, *beyond)]) == [2, 3, 2, 2, 3, 2]


@pytest.mark.parametrize("length", range(8, 23))
def test_a_similarity_equal_to_the_threshold_matches(length: int) -> None:
    """Half of the trigrams are equal, whatever the length."""
    random = np.random.default_rng(length)
    letters = iter(random.permutation(np.arange(0x4E00, 0x9000)).tolist())
    shared = "".join(chr(next(letters)) for _ in range(length))  # its trigrams: one per character, with the mark
    texts = [shared + "".join(chr(next(letters)) for _ in range(length - 1)) for _ in range(2)]
    counts = trigram_counts(texts).astype(np.float64)
    cosine_of_hashed = counts[0] @ counts[1] / np.sqrt((counts[0] @ counts[0]) * (counts[1] @ counts[1]))
    assert soft(texts, float(cosine_of_hashed)) == [2, 2]


@pytest.mark.parametrize("match_by", ["embedding", "text"])
@pytest.mark.parametrize("states", [200, BLOCK + 100])
def test_the_order_of_the_rows_changes_no_advantage(match_by: str, states: int) -> None:
    """Many states are equally similar, more than are kept. Each is met twice, and its embedding is a mean."""
    random = np.random.default_rng(0)
    place = np.repeat(0.1 * random.normal(size=(4, 3)), states // 4, axis=0)
    both = np.concatenate([place + 0.01 * random.normal(size=3), place + 0.02])
    observation, reward = np.tile([f"room {number:04}" for number in range(states)], 2), random.random(2 * states)

    def advantages(row: np.ndarray) -> np.ndarray:
        batch = StepBatch.from_columns(
            group=[0] * len(row), trajectory=row, step=[0] * len(row), observation=observation[row],
            reward=reward[row], embedding=both[row],
        )  # fmt: skip
        found = compute_advantages(batch, "hgpo", match_threshold=0.5, match_by=match_by, mode="mean_norm")
        assert (found.levels[0].size > MOST_MATCHES).any()
        return found.values

    expected = advantages(np.arange(2 * states))
    for _ in range(3):
        row = random.permutation(2 * states)
        np.testing.assert_allclose(advantages(row), expected[row], rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "tasks_of", [lambda steps: steps // 400, lambda steps: 1], ids=["400 steps a task", "one task"]
)
def test_time_grows_about_as_the_number_of_steps(tasks_of) -> None:  # type: ignore[no-untyped-def]
    """16 times as many steps, less than 48 times the CPU time; all pairs would take 256 times."""

    def seconds(steps: int) -> float:
        batch, took = walks(steps, tasks_of(steps)), []
        for _ in range(3):
            begun = time.process_time()
            compute_advantages(batch, "hgpo", match_threshold=0.9, match_by="embedding")
            took.append(time.process_time() - begun)
        return min(took)

    assert seconds(25_600) < 48 * seconds(1_600)
