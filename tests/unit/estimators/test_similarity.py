from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from difflib import SequenceMatcher

import pytest

from hgpo.estimators import similarity
from hgpo.estimators.similarity import least_matches, matches_reach, representatives, similar_observations
from hgpo.steps import StepBatch


def standing(observation: list[object], threshold: float, step: list[int] | None = None) -> list[object]:
    """One task; every row is a trajectory of its own, or `step` of trajectory "a" where that is given."""
    count = len(observation)
    batch = StepBatch.from_columns(
        group=[0] * count,
        trajectory=list(range(count)) if step is None else ["a"] * count,
        step=[0] * count if step is None else step,
        observation=observation,
        reward=[0.0] * count,
    )
    return [batch.labels["observation"][number] for number in similar_observations(batch, threshold)]


def test_by_hand() -> None:
    """abcd and abce share 3 of 4 characters, abce and abfe too, abcd and abfe only 2."""
    assert representatives(["abcd", "abce", "abfe", "xy"], 0.75).tolist() == [0, 0, 2, 3]
    assert representatives(["abcd", "abce", "abfe", "xy"], 0.5).tolist() == [0, 0, 0, 3]
    assert representatives(["abcd", "abce", "abfe", "xy"], 0.76).tolist() == [0, 1, 2, 3]


def test_the_first_similar_representative_is_joined_not_the_closest() -> None:
    assert representatives(["aaaa", "aabb", "abbb"], 0.5).tolist() == [0, 0, 2]
    assert representatives(["aabb", "aaaa", "abbb"], 0.75).tolist() == [0, 1, 0]


def test_the_text_is_compared_with_the_representative_in_that_order() -> None:
    """difflib's ratio is not symmetric: "tide" against "diet" is .25, "diet" against "tide" .5."""
    assert SequenceMatcher(None, "tide", "diet").ratio() == 0.25
    assert representatives(["diet", "tide"], 0.5).tolist() == [0, 1]
    assert representatives(["tide", "diet"], 0.5).tolist() == [0, 0]


def test_earlier_steps_come_first_then_the_alphabet() -> None:
    assert standing(["abfe", "abce", "abcd"], 0.75, step=[0, 1, 2]) == ["abfe", "abfe", "abcd"]
    assert standing(["abfe", "abce", "abcd"], 0.75, step=[2, 1, 0]) == ["abfe", "abcd", "abcd"]
    assert standing(["abfe", "abce", "abcd"], 0.75) == ["abfe", "abcd", "abcd"]
    assert standing(["abcd", "abfe", "abce"], 0.75) == ["abcd", "abfe", "abcd"]


def test_tasks_are_apart() -> None:
    batch = StepBatch.from_columns(
        group=[0, 1], trajectory=["a", "b"], step=[0, 0], observation=["abcd", "abce"], reward=[0.0, 0.0]
    )
    assert similar_observations(batch, 0.5).tolist() == [0, 1]


def test_the_empty_text_is_similar_to_itself_alone() -> None:
    assert standing(["", "a", ""], 0.01) == ["", "a", ""]


def test_one_text() -> None:
    assert representatives(["abc"], 0.5).tolist() == [0]
    assert representatives([""], 0.5).tolist() == [0]


def test_long_texts_are_compared_in_all_their_characters() -> None:
    """difflib leaves out frequent characters of texts of 200 and more, unless told otherwise."""
    number = random.Random(1)
    text = "".join(number.choice("etaoin shrdlu") for _ in range(300))
    changed = list(text)
    for at in number.sample(range(300), 6):
        changed[at] = "x"
    other = "".join(changed)
    assert SequenceMatcher(None, other, text).ratio() < 0.07
    assert SequenceMatcher(None, other, text, autojunk=False).ratio() >= 0.98 - 1e-9
    assert representatives([text, other], 0.95).tolist() == [0, 0]


def test_the_bounds_never_decide_against_the_ratio() -> None:
    number = random.Random(0)
    texts = list(dict.fromkeys("".join(number.choices("abcd", k=number.randint(0, 9))) for _ in range(120)))
    for threshold in (0.2, 0.5, 2 / 3, 0.8):
        kept: list[int] = []
        expected = []
        for index, text in enumerate(texts):
            ratios = {k: SequenceMatcher(None, text, texts[k], autojunk=False).ratio() for k in kept}
            expected.append(next((k for k, ratio in ratios.items() if ratio >= threshold), index))
            if expected[-1] == index:
                kept.append(index)
        assert representatives(texts, threshold).tolist() == expected


def test_observations_must_be_text() -> None:
    message = r"column 'observation', row 1: similarity_threshold compares text, got tuple \(1, 2\)"
    with pytest.raises(ValueError, match=message):
        standing(["abc", (1, 2), 7], 0.9)


def test_what_was_only_shown_next_need_not_be_text() -> None:
    batch = StepBatch.from_columns(
        group=[0], trajectory=[0], step=[0], observation=["a"], reward=[0.0], next_observation=[7]
    )
    assert similar_observations(batch, 0.9).tolist() == [0]


def matches(text: str, other: str) -> int:
    blocks = SequenceMatcher(None, text, other, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks)


def random_text(number: random.Random, length: int, words: int = 400) -> str:
    vocabulary = ["".join(number.choices("etaoinshrdlu", k=number.randint(2, 8))) for _ in range(words)]
    return " ".join(number.choices(vocabulary, k=length // 3))[:length]


def edited(number: random.Random, text: str, edits: int) -> str:
    characters = list(text)
    for _ in range(edits):
        at = number.randrange(len(characters))
        characters[at : at + number.randint(0, 9)] = number.choices("etaoin ", k=number.randint(0, 9))
    return "".join(characters)


def rotated(number: random.Random) -> tuple[str, str]:
    text = random_text(number, 300)
    return text[100:] + text[:100], text


def with_edits(number: random.Random) -> tuple[str, str]:
    text = random_text(number, 400)
    return text, edited(number, text, 12)


PAIRS: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    "two letters": lambda number: ("".join(number.choices("ab", k=90)), "".join(number.choices("ab", k=110))),
    "rotated": rotated,
    "edited": with_edits,
    "one letter": lambda number: ("a" * number.randint(1, 60), "a" * number.randint(1, 60)),
    "lengths that differ": lambda number: (random_text(number, 30), random_text(number, 900)),
    "beyond 16 bits": lambda number: ("".join(number.choices("é\U0001f642\ud83dz", k=80)), "\U0001f642z\ud83d" * 20),
    "nothing in common": lambda number: ("abc" * 20, "xyz" * 20),
    "empty": lambda number: ("", "abc"),
}


@pytest.mark.parametrize("times", [2, pytest.param(25, marks=pytest.mark.slow)])
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_the_blocks_are_those_of_difflib(pair: Callable[[random.Random], tuple[str, str]], times: int) -> None:
    number = random.Random(3)
    for _ in range(times):
        text, other = pair(number)
        for first, second in ((text, other), (other, text)):  # the order decides between blocks of one length
            total = matches(first, second)
            assert [matches_reach(first, second, total + more) for more in (-1, 0, 1)] == [True, True, False]


def test_the_least_number_of_matches_is_that_of_the_ratio() -> None:
    for characters in range(1, 200):
        for threshold in (0.01, 0.3, 0.6, 2 / 3, 0.7, 0.95, 1.0):
            least = least_matches(threshold, characters)
            assert 2.0 * least / characters >= threshold
            assert least == 0 or 2.0 * (least - 1) / characters < threshold


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [0.5, 0.95])
@pytest.mark.parametrize("kind", ["edited", "shuffled", "unlike"])
def test_four_texts_of_20_000_characters_take_seconds(kind: str, threshold: float) -> None:
    """About 1.2 s for "edited", where difflib's own search takes over a minute."""
    number = random.Random(1)
    text = random_text(number, 20_000)
    others: dict[str, Callable[[], str]] = {
        "edited": lambda: edited(number, text, 200),
        "shuffled": lambda: " ".join(number.sample(words := text.split(), len(words))),
        "unlike": lambda: random_text(number, 20_000),
    }
    texts = [text, *(others[kind]() for _ in range(3))]
    started = time.process_time()
    standing = representatives(texts, threshold).tolist()
    assert time.process_time() - started < 10
    assert standing == ([0, 0, 0, 0] if kind == "edited" else [0, 1, 2, 3])


def test_long_comparisons_show_their_progress(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(similarity, "_QUIET_SECONDS", -1.0)
    with caplog.at_level(logging.WARNING):
        representatives(["abc", "xyzxyz"], 0.5)
    assert "1 of 2 different observations of a task compared; they have up to 6 characters" in caplog.text
