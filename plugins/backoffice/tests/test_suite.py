"""Generated cases: the same for a seed, solved by the expert, and apart where splits have to be."""

from __future__ import annotations

import pytest

from environment_packages import solved
from hgpo.envs import make
from hgpo_backoffice.cases import SEEN, UNSEEN
from hgpo_backoffice.requests import KINDS
from hgpo_backoffice.suite import backoffice_suite

COUNTS = {"train": 300, "valid_seen": 300, "valid_unseen": 300}
SUITE = backoffice_suite(train_tasks=300, valid_seen_tasks=300, valid_unseen_tasks=300)
MOST_STEPS = 16


@pytest.mark.parametrize("split", COUNTS)
def test_the_expert_solves_every_task(split: str) -> None:
    assert solved(SUITE, split, MOST_STEPS) == COUNTS[split]


@pytest.mark.parametrize("split", COUNTS)
def test_a_random_policy_solves_next_to_none(split: str) -> None:
    assert solved(SUITE, split, MOST_STEPS, noise=1.0) <= 3


def test_the_expert_goes_on_after_calls_of_others() -> None:
    assert 100 <= solved(SUITE, "train", MOST_STEPS, noise=0.1) < 300  # most random changes cannot be undone


def test_unseen_combinations_are_others_of_the_same_requests() -> None:
    kinds = {split: {task.kind for task in SUITE.tasks(split)} for split in SUITE.splits}
    assert kinds["train"] == kinds["valid_seen"] == {"+".join(one) for one in SEEN}
    assert kinds["valid_unseen"] == {"+".join(one) for one in UNSEEN}
    assert len(SEEN) + len(UNSEEN) == len(KINDS) + 10  # all kinds and all pairs
    assert not set(SEEN) & set(UNSEEN)


def test_a_seed_gives_the_same_tasks_and_splits_share_none() -> None:
    def games(seed: int) -> list[str]:
        suite = backoffice_suite(train_tasks=33, valid_seen_tasks=33, valid_unseen_tasks=0, seed=seed)
        made = [task.make() for split in suite.splits for task in suite.tasks(split)]
        for environment in made:
            environment.reset()
        return [environment.identity()["game"] for environment in made]  # type: ignore[attr-defined]

    assert games(1) == games(1)
    assert len(set(games(1) + games(2))) == 132


def test_every_reason_and_every_tool_occurs() -> None:
    calls = [one for task in SUITE.tasks("train") for one in task.make()._case.solution]  # type: ignore[attr-defined]
    reasons = {one.arguments.get("reason") for one in calls} - {None}
    assert reasons == {"already_shipped", "not_delivered", "too_late", "out_of_stock"}
    assert {one.name for one in calls} >= {"cancel_order", "return_item", "refund", "exchange_item", "change_address"}


@pytest.mark.parametrize(
    ("options", "message"),
    [({"train_tasks": -1}, "train_tasks = -1"), ({"seed": "x"}, "seed = 'x'"), ({"size": 3}, "size")],
)
def test_wrong_options_are_refused_by_name(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make("hgpo_backoffice.suite:backoffice_suite", **options)
