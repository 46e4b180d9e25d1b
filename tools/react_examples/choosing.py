"""Selects generated games as worked examples: the first games of a suite that meet the requirements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from household_thoughts import HouseholdNarrator
from official_shop import official_tasks
from playing import PlayedGame, play
from shop_thoughts import ShopNarrator

from hgpo.agents.worked_examples import WorkedExample
from hgpo.envs.alfworld.expert import Expert as HouseholdExpert
from hgpo.envs.alfworld.expert import parse_task
from hgpo.envs.alfworld.game import TASK_TYPES
from hgpo.envs.alfworld.suite import alfworld_suite
from hgpo.envs.base import Task
from hgpo.envs.webshop.expert import Expert as ShopExpert
from hgpo.envs.webshop.expert import parse_instruction
from hgpo.envs.webshop.generator import DEPARTMENTS
from hgpo.envs.webshop.suite import webshop_suite

SEED = 2210
"""Seed of the generated games; no recipe uses it."""
HOUSEHOLD_SIZE = {"receptacles": [6, 9], "objects": [4, 7], "copies": 3}
HOUSEHOLD_GAMES = 600
SHOP_SIZE = {"products": 80, "kinds": 8, "attributes": 2, "values": 3, "page_size": 3, "attribute_words": 3}
SHOP_GOALS = 1200
FEWEST_TURNS, MOST_TURNS = 5, 11
OFFICIAL_TURNS = 6
"""Exact number of turns in the official form, whose pages repeat a long instruction."""
BACK, NEXT = "click[< prev]", "click[next >]"


def household_games() -> tuple[PlayedGame, ...]:
    """Two games of each task type: in both, one place is searched in vain; in the second, something is opened."""
    suite = alfworld_suite(
        size=HOUSEHOLD_SIZE, train_games=HOUSEHOLD_GAMES, valid_seen_games=0, valid_unseen_games=0, seed=SEED
    )
    chosen: list[PlayedGame] = []
    for kind in TASK_TYPES:
        tasks = [task for task in suite.tasks("train") if task.kind == kind]
        for opens in (False, True):
            chosen.append(_household_game(tasks, opens, [game.example for game in chosen]))
    return tuple(chosen)


def _household_game(tasks: Sequence[Task], opens: bool, earlier: Sequence[WorkedExample]) -> PlayedGame:
    for task in tasks:
        # The whole history is in the prompt, so the expert may go back to what it remembers.
        game = play(task, HouseholdExpert(recall=True), HouseholdNarrator(_first_wording(len(earlier))), MOST_TURNS)
        if game is None or len(game.example.turns) < FEWEST_TURNS or not _is_new(game.example, earlier):
            continue
        actions = [turn.action for turn in game.example.turns]
        searched = [action for action in actions[: _first_take(actions)] if action.startswith("go to ")]
        if len(searched) > 1 and (not opens or any(action.startswith("open ") for action in actions)):
            return game
    raise ValueError(f"none of {len(tasks)} games of {tasks[0].kind} shows enough; raise HOUSEHOLD_GAMES")


def _first_take(actions: Sequence[str]) -> int:
    return next(number for number, action in enumerate(actions) if action.startswith("take "))


def _is_new(example: WorkedExample, earlier: Sequence[WorkedExample]) -> bool:
    """Whether its object is new, and its wording of the task differs from earlier examples of its kind."""
    wanted = parse_task(example.task)
    if any(parse_task(other.task).object_kind == wanted.object_kind for other in earlier):
        return False
    return all(_wording(other.task) != _wording(example.task) for other in earlier if other.kind == example.kind)


def _wording(task: str) -> str:
    """The task sentence without the names of object and target."""
    wanted = parse_task(task)
    return task.replace(wanted.object_kind, "…").replace(wanted.target_kind, "…")


def shop_games() -> tuple[PlayedGame, ...]:
    """Two purchases in each category of the official form, then two in each department of the generated shops.

    Examples of the official form show its pages and its wording of instructions, the others the brief pages of the
    generated shops. In the first of two, a product lacks a wanted option; in the second, the agent turns a page.
    """
    official = official_tasks(SEED)
    suite = webshop_suite(size=SHOP_SIZE, train_goals=SHOP_GOALS, valid_seen_goals=0, valid_unseen_goals=0, seed=SEED)
    generated = {kind: [task for task in suite.tasks("train") if task.kind == kind] for kind in DEPARTMENTS}
    chosen: list[PlayedGame] = []
    for tasks in official.values():
        for detour in (BACK, NEXT):
            chosen.append(_shop_game(tasks, detour, range(OFFICIAL_TURNS, OFFICIAL_TURNS + 1), chosen))
    for tasks in generated.values():
        for detour in (BACK, NEXT):
            chosen.append(_shop_game(tasks, detour, range(FEWEST_TURNS, MOST_TURNS + 1), chosen))
    return tuple(chosen)


def _shop_game(tasks: Iterable[Task], detour: str, turns: range, earlier: Sequence[PlayedGame]) -> PlayedGame:
    nouns = {_noun(game.example.task) for game in earlier}
    for task in tasks:
        game = play(task, ShopExpert(), ShopNarrator(_first_wording(len(earlier))), turns[-1])
        if game is None or len(game.example.turns) not in turns or _noun(game.example.task) in nouns:
            continue
        actions = [turn.action for turn in game.example.turns]
        has_options = bool(parse_instruction(game.example.task).options)
        if has_options and actions.count(detour) == 1 and actions.count(BACK) <= 1:
            return game
    raise ValueError(f"no purchase has {detour} once; let there be more products")


def _noun(instruction: str) -> str:
    """What is bought: `"mug"` of "ceramic mug", `"mugs"` of "glazed mugs with handle"."""
    return parse_instruction(instruction).words.partition(" with ")[0].split()[-1]


def _first_wording(number: int) -> int:
    """Index of an example's first wording; it differs between the two examples of a kind, and from kind to kind."""
    return number // 2 + number % 2
