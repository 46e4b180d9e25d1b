"""What steps are compared by: the observation, with commands, or as the published G2PO code has it."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from hgpo.rollout.prompts import make_key

Place = tuple[str, tuple[str, ...]]

texts = st.sampled_from(["You arrive at desk 1.", "Nothing happens.", "You heat the mug 1.", "You turn on the lamp 1."])
places = st.tuples(texts, st.sampled_from([("look",), ("look", "go to desk 1")]))


def keys(state: str, episode: list[Place]) -> list[str]:
    key = make_key(state)
    return [key(text, {"admissible_commands": list(commands)}) for text, commands in episode]


def published(episode: list[Place]) -> list[tuple[Place | str, ...]]:
    """The published bookkeeping on pairs in place of texts: a growing list, of which the last two are looked at."""
    start, *rest = episode
    history: list[Place] = [start]
    found: list[tuple[Place | str, ...]] = [("start", start[0])]
    for place in rest:
        if not place[0].startswith("Nothing happens"):
            history.append(place)
        joined = len(history) >= 2 and history[-2][0].startswith(("You heat", "You cool", "You clean", "You turn on"))
        found.append(tuple(history[-2:]) if joined else (history[-1],))
    return found


@given(st.lists(st.lists(places, min_size=1, max_size=7), min_size=1, max_size=4))
def test_published_keys_part_the_steps_as_the_published_bookkeeping_does(episodes: list[list[Place]]) -> None:
    # A real episode starts with a description of the room and of the task.
    episodes = [[("You are in the middle of a room.", ("look",)), *episode] for episode in episodes]
    ours = [key for episode in episodes for key in keys("published_g2po", episode)]
    theirs = [key for episode in episodes for key in published(episode)]
    for (one, first), (other, second) in combinations(zip(ours, theirs, strict=True), 2):
        assert (one == other) == (first == second)


def test_a_failed_command_leaves_the_key() -> None:
    start = ("You are in a room.", ("look", "go to desk 1"))
    desk = ("You arrive at desk 1.", ("look", "take mug 1 from desk 1"))
    found = keys("published_g2po", [start, desk, ("Nothing happens.", desk[1]), desk])
    assert found[0] == start[0]
    assert found[1] == found[2] == found[3] != found[0]


def test_the_place_after_an_unseen_change_remembers_it() -> None:
    walk = ("You arrive at desk 1.", ("look",))
    heated, failed = ("You heat the mug 1.", ("look",)), ("Nothing happens.", ("look",))
    after, still, later = keys("published_g2po", [("Room.", ()), heated, walk, failed, walk])[2:]
    [plain] = keys("published_g2po", [("Room.", ()), walk])[1:]
    assert after == still
    assert after != plain
    assert "You heat" in after
    assert later == plain


def test_the_others_know_no_past() -> None:
    episode = [("Room.", ("look",)), ("Nothing happens.", ("look", "wait"))]
    assert keys("observation", episode) == ["Room.", "Nothing happens."]
    assert keys("observation_and_commands", episode) == [
        "Room.\nPossible: look",
        "Nothing happens.\nPossible: look, wait",
    ]
