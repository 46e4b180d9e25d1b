from __future__ import annotations

import pytest

from generated_games import generate_splits
from hgpo.envs.alfworld.game import TASK_TYPES, Game
from hgpo.envs.alfworld.generation.splits import game_key, vocabulary

COUNTS = {"train": 300, "valid_seen": 90, "valid_unseen": 90}


@pytest.fixture(scope="module")
def splits() -> dict[str, tuple[Game, ...]]:
    return generate_splits(0, COUNTS)


def pairs(games: tuple[Game, ...]) -> set[tuple[str, str]]:
    return {(game.goal.object_kind, game.goal.target_kind) for game in games}


def layouts(games: tuple[Game, ...]) -> set[tuple[str, ...]]:
    return {tuple(receptacle.kind for receptacle in game.receptacles) for game in games}


def test_as_many_games_as_asked_for_and_none_twice(splits: dict[str, tuple[Game, ...]]) -> None:
    assert {split: len(games) for split, games in splits.items()} == COUNTS
    everything = [game_key(game) for games in splits.values() for game in games]
    assert len(set(everything)) == len(everything)


def test_task_types_take_turns(splits: dict[str, tuple[Game, ...]]) -> None:
    for games in splits.values():
        assert [game.goal.task_type for game in games[:12]] == [*TASK_TYPES, *TASK_TYPES]


def test_valid_seen_has_goals_and_rooms_of_train(splits: dict[str, tuple[Game, ...]]) -> None:
    assert pairs(splits["valid_seen"]) <= pairs(splits["train"])
    assert layouts(splits["valid_seen"]) <= layouts(splits["train"])
    assert {game.name for game in splits["valid_seen"]} <= {game.name for game in splits["train"]}


def test_valid_unseen_has_neither(splits: dict[str, tuple[Game, ...]]) -> None:
    assert not pairs(splits["valid_unseen"]) & pairs(splits["train"])
    assert not layouts(splits["valid_unseen"]) & layouts(splits["train"])


@pytest.mark.parametrize("train", [12, 300])
@pytest.mark.parametrize("seed", [0, 1])
def test_valid_unseen_has_no_word_that_train_has_not(train: int, seed: int) -> None:
    made = generate_splits(seed, {"train": train, "valid_unseen": 20})
    assert vocabulary(made["valid_unseen"]) <= vocabulary(made["train"])


def test_what_is_held_out_is_held_out_from_every_seed() -> None:
    trained = generate_splits(5, {"train": 400})["train"]
    held_out = generate_splits(6, {"train": 400, "valid_unseen": 60})["valid_unseen"]
    assert not pairs(trained) & pairs(held_out)
    assert not layouts(trained) & layouts(held_out)


def test_the_seed_decides(splits: dict[str, tuple[Game, ...]]) -> None:
    assert generate_splits(0, COUNTS) == splits
    assert generate_splits(1, COUNTS) != splits


def test_games_do_not_depend_on_what_else_is_asked_for(splits: dict[str, tuple[Game, ...]]) -> None:
    assert generate_splits(0, {"train": 50})["train"] == splits["train"][:50]
    assert generate_splits(0, {"train": 300, "valid_seen": 30})["valid_seen"] == splits["valid_seen"][:30]


def test_only_the_task_types_asked_for() -> None:
    made = generate_splits(0, {"train": 20, "valid_unseen": 5}, task_types=["look_at_obj_in_light"])
    assert {game.goal.task_type for games in made.values() for game in games} == {"look_at_obj_in_light"}


@pytest.mark.parametrize(
    ("counts", "task_types", "message"),
    [
        ({"test": 5}, TASK_TYPES, "unknown split 'test'"),
        ({"train": -1}, TASK_TYPES, "games in train = -1; give a whole number"),
        ({"valid_seen": 5}, TASK_TYPES, "depend on the training games"),
        ({"train": 5}, [], "task_types"),
        ({"train": 5}, ["pick_and_throw"], "pick_and_throw"),
        ({"train": 5}, [TASK_TYPES[0], TASK_TYPES[0]], "each once"),
    ],
)
def test_an_impossible_request_is_refused(counts: dict[str, int], task_types: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate_splits(0, counts, task_types=task_types)


TINY = {"receptacles": [4, 4], "objects": [1, 1], "copies": 1}


def test_more_games_than_there_are_is_an_error_that_says_so() -> None:
    with pytest.raises(ValueError, match=r"valid_seen: found only \d+ different games of 500 requested"):
        generate_splits(0, {"train": 5, "valid_seen": 500}, size=TINY, task_types=["pick_and_place_simple"])
