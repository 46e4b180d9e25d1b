"""60 sessions through environments that share a JVM, and one after another through the package itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

scienceworld = pytest.importorskip("scienceworld", reason="scienceworld is not installed; run `make scienceworld-test`")
simulators = pytest.importorskip("hgpo_scienceworld.simulator")
suites = pytest.importorskip("hgpo_scienceworld.suite")

STEPS = 6
GAMES = {"train_variations": 1, "valid_seen_variations": 1, "valid_unseen_variations": 0}


class Recorded(suites.ScienceWorldEnv):
    """Keeps the valid commands of the last step; listing them once more would draw random numbers."""

    def valid_commands(self) -> list[tuple[str, int, int]]:
        self.valid: list[tuple[str, int, int]] = super().valid_commands()
        return self.valid


class Package(scienceworld.ScienceWorldEnv):
    """Gets the valid commands as one text; the list that py4j makes costs a call for each of thousands."""

    def get_valid_action_object_combinations(self) -> list[str]:
        return sorted(one["action"] for one in self.get_valid_action_object_combinations_with_templates())


@pytest.fixture
def package(java: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package's environment, with the JVM's hashes of `hgpo_scienceworld.simulator`."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", " ".join(simulators._OPTIONS))
    environment = Package(envStepLimit=10_000)
    yield environment
    environment.close()


def seen(observation: str, info: dict[str, Any]) -> str:
    shown = [info["look"].strip(), info["inv"].strip()]
    return f"{observation.strip()}\n\n" + "\n".join(shown[shown[0] == observation.strip() :])


def played(package: Any, game: tuple[str, int, str], solve: bool, rng: np.random.Generator) -> list[tuple[Any, ...]]:
    """A session of the package: random commands, or the first ones of its solution with a fifth of random ones."""
    solution = []
    if solve:
        package.load(*game, generateGoldPath=True)
        solution = package.get_gold_action_sequence()
    package.load(*game)
    observation, info = package.reset()
    session = [("", seen(observation, info), info["score"], False, info["taskDesc"], info["valid"])]
    for step in range(STEPS):
        others = [*info["valid"], "sing", "0"]
        random = rng.random() < 1 / 5 or step >= len(solution)
        command = others[int(rng.integers(len(others)))] if random else solution[step]
        observation, _, ended, info = package.step(command)
        session.append((command, seen(observation, info), info["score"], ended, info["taskDesc"], info["valid"]))
        if ended:
            break
    return session


def test_sixty_sessions_are_the_same_step_for_step(package: Any) -> None:
    rng = np.random.default_rng(0)
    suite = suites.scienceworld_suite(**GAMES)
    tasks = [task for split in suite.splits for task in suite.tasks(split)]
    games = [(task.kind, int(task.id.rsplit("-", 1)[1]), ("", "openDoors")[n % 2]) for n, task in enumerate(tasks)]
    sessions = [played(package, game, number in range(1, 30, 2), rng) for number, game in enumerate(games)]
    assert len(sessions) == 60
    simulator = simulators.Simulator()
    environments = [Recorded(simulator, *game, True) for game in games]
    last = [0.0] * len(games)
    for step in range(STEPS + 1):
        for number, (environment, session) in enumerate(zip(environments, sessions, strict=True)):
            if step >= len(session):
                continue
            command, observation, score, ended, described, valid = session[step]
            if step:
                mine, reward, terminated, truncated, info = environment.step(command)
                assert reward == pytest.approx(info["score"] - last[number])
                assert (terminated, truncated) == (ended, False), (games[number], step)
            else:
                mine, info = environment.reset()
            assert mine == observation, (games[number], step)
            assert info["score"] == max(score, 0) / 100
            assert info["won"] == (score == 100)
            assert f"Task Description:\n{info['task']}" == described
            assert [text for text, _, _ in environment.valid] == valid
            last[number] = info["score"]
    ends = [session[-1] for session in sessions]
    assert {end[3] for end in ends} == {True, False}
    assert {end[2] == 100 for end in ends} == {True, False}


def test_the_commands_as_one_text_are_the_packages_list(package: Any) -> None:
    package.load("find-animal", 3)
    package.reset()
    theirs = scienceworld.ScienceWorldEnv.get_valid_action_object_combinations(package)
    assert package.get_valid_action_object_combinations() == theirs
    assert len(theirs) > 500
