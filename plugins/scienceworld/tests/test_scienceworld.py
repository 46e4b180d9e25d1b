"""Episodes, splits, expert and template. The tests need Java: `make scienceworld-test`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from environment_packages import EnvironmentPackage
from hgpo.agents.prompts import AgentContext
from hgpo.envs import make
from hgpo.envs.wrappers import LimitedSuite

pytest.importorskip("scienceworld", reason="scienceworld is not installed; run `make scienceworld-test`")
suites = pytest.importorskip("hgpo_scienceworld.suite")
template = pytest.importorskip("hgpo_scienceworld.template")

COUNTS = {"train": 3, "valid_seen": 2, "valid_unseen": 2}
GAMES: dict[str, Any] = {f"{split}_variations": count for split, count in COUNTS.items()}
ALL: dict[str, Any] = {f"{split}_variations": 10_000 for split in COUNTS}


@pytest.fixture(scope="module")
def suite(java: None) -> Any:
    return suites.scienceworld_suite(**GAMES)


@pytest.fixture(scope="module")
def simulator(java: None) -> Any:
    return suites.Simulator()


def environment_of(simulator: Any, name: str, variation: int, simplifications: str = "", listed: bool = False) -> Any:
    return suites.ScienceWorldEnv(simulator, name, variation, simplifications, listed)


@pytest.mark.parametrize("kind", suites.VARIATIONS)
def test_the_expert_solves_a_task_of_each_type(suite: Any, kind: str) -> None:
    limited = LimitedSuite(suite, 300)
    [task, *_] = [one for one in limited.tasks("valid_unseen") if one.kind == kind]
    environment, expert = task.make(), limited.expert()
    assert expert is not None
    environment.unwrapped._list_commands = False
    observation, info = environment.reset(seed=1)
    expert.reset(observation, info)
    start, rewards, ended = info["score"], 0.0, False
    while not ended:
        observation, reward, terminated, cut, info = environment.step(expert.act(observation, info))
        rewards += reward
        ended = terminated or cut
        assert 0 <= info["score"] <= 1
        assert info["won"] == (info["score"] == 1)
    assert info["won"]
    assert terminated
    assert start + rewards == pytest.approx(1)


@pytest.mark.parametrize("command", ["", "\x00", "\udcff", "look at " * 2_000, "%s"])
def test_a_strange_command_is_answered(simulator: Any, command: str) -> None:
    environment = environment_of(simulator, "boil", 0)
    environment.reset()
    observation, reward, terminated, truncated, _ = environment.step(command)
    assert observation.startswith("No known action matches that input.")
    assert (reward, terminated, truncated) == (0.0, False, False)


def test_splits_are_the_packages_variations(java: None) -> None:
    from scienceworld import ScienceWorldEnv

    suite, package = suites.scienceworld_suite(**ALL), ScienceWorldEnv()
    ours = {split: {(task.kind, task.id.rsplit("-", 1)[1]) for task in suite.tasks(split)} for split in suite.splits}
    assert set(package.task_names) == set(suites.VARIATIONS)
    for kind, count in suites.VARIATIONS.items():
        package.load(kind, 0)
        assert package.get_max_variations(kind) == count
        theirs = (package.get_variations_train(), package.get_variations_dev(), package.get_variations_test())
        for split, numbers in zip(suites.SPLITS, theirs, strict=True):
            assert {number for name, number in ours[split] if name == kind} == {str(number) for number in numbers}
    package.close()


def test_tasks_have_the_task_types_in_turn_and_a_seed_gives_the_same() -> None:
    def ids(**options: Any) -> list[str]:
        suite = suites.scienceworld_suite(**GAMES, **options)
        return [task.id for split in suite.splits for task in suite.tasks(split)]

    assert ids(seed=1) == ids(seed=1) != ids(seed=2)
    assert len(ids()) == len(set(ids())) == 30 * sum(COUNTS.values())
    suite = suites.scienceworld_suite(**ALL)
    kinds = [task.kind for task in suite.tasks("valid_unseen")]
    assert kinds[:30] == list(suites.VARIATIONS)
    assert Counter(kinds)["boil"] == 30 - 3 * 7
    assert suites.scienceworld_suite(valid_seen_variations=0).splits == ("train", "valid_unseen")


def test_games_side_by_side_do_not_affect_each_other(simulator: Any) -> None:
    """Each is played alone, then all alternate; they differ in task and simplifications. Bees fly at random."""
    games = [
        ("find-animal", 3, ""),
        ("find-animal", 3, "teleportAction"),
        ("grow-fruit", 5, "selfWateringFlowerPots,openDoors"),
        ("chemistry-mix-paint-tertiary-color", 12, ""),
    ]
    solutions = [simulator.session().load(*game, solve=True) for game in games]
    commands = [[*solution[:5], "wait1", "wait1", "wait1"] for solution in solutions]
    alone = []
    for game, own in zip(games, commands, strict=True):
        environment = environment_of(simulator, *game, listed=True)
        alone.append([environment.reset(), *(environment.step(command) for command in own), environment.identity()])
    environments = [environment_of(simulator, *game, listed=True) for game in games]
    together: list[list[Any]] = [[environment.reset()] for environment in environments]
    for step in range(8):
        for steps, environment, own in zip(together, environments, commands, strict=True):
            steps.append(environment.step(own[step]))
    for steps, environment in zip(together, environments, strict=True):
        steps.append(environment.identity())
    assert together == alone
    assert [simulator.session().load(*game, solve=True) for game in games] == solutions


def test_every_reset_starts_the_same_episode(simulator: Any) -> None:
    """Bees fly at random."""
    environment = environment_of(simulator, "grow-fruit", 5, "selfWateringFlowerPots,openDoors", listed=True)
    episodes = [
        [environment.reset(), *(environment.step("wait1") for _ in range(8)), environment.identity()] for _ in range(3)
    ]
    assert episodes[0] == episodes[1] == episodes[2]


def test_a_wrong_choice_ends_the_episode_with_a_score_of_0(simulator: Any) -> None:
    environment = environment_of(simulator, "lifespan-longest-lived", 3)
    with pytest.raises(RuntimeError, match="reset"):
        environment.step("look around")
    observation, info = environment.reset()
    assert "a baby beaver" in observation
    assert "parrot egg" in observation
    assert json.loads(json.dumps(info["session"])) == {"game": ["lifespan-longest-lived", 3, ""], "commands": []}
    assert info["score"] == 0.5  # the animals are at the start
    _, reward, terminated, truncated, failed = environment.step("focus on baby beaver")
    assert (reward, terminated, truncated, failed["won"], failed["score"]) == (-0.5, True, False, False, 0)
    with pytest.raises(RuntimeError, match="reset"):
        environment.step("look around")
    assert environment.reset() == (observation, info)
    _, reward, terminated, _, info = environment.step("focus on parrot egg")
    assert (reward, terminated, info["won"], info["score"]) == (0.5, True, True, 1)


def test_listed_commands_have_one_object_at_most(simulator: Any) -> None:
    environment = environment_of(simulator, "find-animal", 3, listed=True)
    observation, info = environment.reset()
    listed = info["admissible_commands"]
    assert observation.count("In your inventory") == observation.count("You also see") == 1
    assert {"look around", "wait1", "focus on axe", "open door to kitchen", "pick up axe"} <= set(listed)
    assert not {"reset task"} & set(listed)
    assert not [command for command in listed if command.startswith(("move ", "connect "))]
    everything = [text for text, _, _ in environment.valid_commands()]
    assert {"move axe to inventory", "reset task"} <= set(everything)
    assert listed == [text for text in everything if text in listed]
    _, _, _, _, info = environment.step("PICK UP Axe")
    assert "put down axe" in info["admissible_commands"]


def test_the_identity_is_that_of_the_start(simulator: Any) -> None:
    environments = [environment_of(simulator, "find-plant", number, "openDoors") for number in (1, 1, 2)]
    for environment in environments:
        environment.reset()
    first, again, other = (environment.identity()["game"] for environment in environments)
    assert first == again != other


def test_the_expert_continues_after_commands_of_others(simulator: Any) -> None:
    expert = suites.ScienceWorldExpert(simulator)
    info: dict[str, Any] = {"session": {"game": ("lifespan-longest-lived", 3, ""), "commands": ()}}
    expert.reset("", info)
    focus, *_ = plan = simulator.session().load("lifespan-longest-lived", 3, "", solve=True)
    assert expert.act("", info) == focus
    for commands, expected in [(("wait1",), focus), (("wait1", focus), plan[1]), ((focus, "sing"), plan[1])]:
        info["session"]["commands"] = commands
        assert expert.act("", info) == expected
    info["session"]["commands"] = tuple(plan)
    assert expert.act("", info) == "wait1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task_types": ["boil", "sing"]}, "give one or more of boil"),
        ({"task_types": ["boil", "melt", "boil"]}, "each once"),
        ({"task_types": []}, "give one or more of boil"),
        ({"simplifications": ["easy"]}, "simplifications = .*Input should be 'teleportAction'"),
        ({"simplifications": ["noElectricalAction"]}, "no solution of power-component, "),
        ({"level": "GoTo"}, "no option level"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_wrong_options_are_rejected_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make("scienceworld", **options)


def test_a_prompt_leaves_out_filler_words_and_past_observations() -> None:
    context = AgentContext(
        task="Your task is to find a(n) animal. First, focus on the thing.",
        observation="You move to the kitchen.\n\nThis room is called the kitchen. In it, you see: \n\tthe agent\n"
        "\ta substance called air\n\ta table. On the table is: a glass cup (containing nothing).\nYou also see:\n"
        "\tA door to the hallway (that is open)\nIn your inventory, you see:\n\tan orange",
        step=1,
        history=(("This room …", "go to kitchen"),),
    )
    assert template.SCIENCEWORLD_COMPACT.render(context) == (
        "task : task to find animal first, focus on thing past : go to kitchen now : you move to kitchen ; kitchen ; "
        "air ; table on table glass cup ; door to hallway open ; in inventory ; orange"
    )


class TestPackage(EnvironmentPackage):
    name = "scienceworld"
    settings = ("environment.max_steps=4", "warm_start.demonstrations=6")

    @pytest.mark.usefixtures("java")
    def test_a_tiny_policy_trains(self, tmp_path: Path) -> None:
        super().test_a_tiny_policy_trains(tmp_path)
