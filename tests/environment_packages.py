"""Tests that the environment packages in plugins/ inherit, and episodes of their experts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import hgpo
from hgpo.cli.main import main
from hgpo.config import load_config
from hgpo.config.recipes import recipe_named, starters
from hgpo.envs import make
from hgpo.envs.base import SPLITS, TaskSuite
from hgpo.envs.wrappers import LimitedSuite

SMALL_TRAINING = (
    "policy.tiny.hidden_size=16",
    "policy.tiny.layers=1",
    "policy.tiny.attention_heads=2",
    "warm_start.demonstrations=20",
    "warm_start.probe_games=2",
    "warm_start.max_updates=1",
    "rollout.tasks_per_update=2",
    "rollout.group_size=2",
    "training.updates=1",
    "evaluation.games=2",
)


def solved(
    suite: TaskSuite,
    split: str,
    max_steps: int,
    noise: float = 0.0,
    others: Callable[[Sequence[str]], Sequence[str]] = list,
) -> int:
    """The number of tasks of a split that the expert solves.

    A share `noise` of its commands is replaced by commands that `others` chooses from the admissible ones.
    """
    limited, won = LimitedSuite(suite, max_steps), 0
    rng = np.random.default_rng(0)
    for task in limited.tasks(split):
        environment, expert = task.make(), limited.expert()
        assert expert is not None
        observation, info = environment.reset(seed=1)
        expert.reset(observation, info)
        ended = False
        while not ended:
            command = expert.act(observation, info)
            assert command in info["admissible_commands"]
            choices = others(info["admissible_commands"])
            if choices and rng.random() < noise:
                command = str(rng.choice(choices))
            observation, _, terminated, truncated, info = environment.step(command)
            ended = terminated or truncated
        won += info["won"]
    return won


class EnvironmentPackage:
    """Tests of an installed package whose recipes are `NAME-tiny` and `NAME-language-model`."""

    name: ClassVar[str]
    settings: ClassVar[Sequence[str]] = ()

    def test_its_recipes_are_found_and_their_options_are_the_suites(self) -> None:
        assert starters()[self.name] == (f"{self.name}-tiny", f"{self.name}-language-model")
        for recipe in starters()[self.name]:
            assert make(self.name, **load_config(recipe_named(recipe)).environment.options).splits == SPLITS

    @pytest.mark.slow
    def test_a_tiny_policy_trains(self, tmp_path: Path) -> None:
        words = [f"{self.name}-tiny", "--quiet", f"run.directory={tmp_path}", *SMALL_TRAINING, *self.settings]
        assert main(["train", *words]) == 0
        assert (tmp_path / f"{self.name}-tiny" / "summary.json").exists()


class BuiltPackage(EnvironmentPackage):
    """Tests of the wheel, in which hgpo finds environment, template and recipes by the entry points."""

    project: ClassVar[Path]
    template: ClassVar[str]
    parts: ClassVar[tuple[str, str]]  # names of the classes of environment and template
    agents: ClassVar[Mapping[str, Mapping[str, str]]]  # model -> settings of the agent in the recipe for it
    options: ClassVar[str]  # of a suite with one training task

    @pytest.fixture(scope="class")
    @classmethod
    def installed(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A folder with a copy that pip built and installed."""
        folder = tmp_path_factory.mktemp("package")
        shutil.copytree(cls.project, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--no-build-isolation", "--no-index", "--target", str(folder / "installed"), str(folder / "source")]
        subprocess.run(command, check=True)
        return folder / "installed"

    def python(self, installed: Path, *words: str) -> str:
        """What a Python process prints that finds the copy and runs in an otherwise empty folder."""
        path = os.pathsep.join([str(installed), str(Path(hgpo.__file__).parents[1])])
        variables = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=installed.parent, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @pytest.mark.slow
    @pytest.mark.parametrize("model", ["tiny", "some/model"])
    def test_env_takes_the_recipes_of_the_package(self, installed: Path, model: str) -> None:
        words = ["train", "--env", self.name, "--dry-run", f"policy.model={model}"]
        settings = tomllib.loads(self.python(installed, "-m", "hgpo", *words))
        assert settings["environment"]["name"] == self.name
        assert settings["agent"].items() >= self.agents[model].items()
        assert settings["warm_start"]["enabled"] == (model == "tiny")

    @pytest.mark.slow
    def test_its_names_are_listed_without_importing_it(self, installed: Path) -> None:
        package = f"hgpo_{self.name}"
        code = (
            "import sys; from hgpo.agents.prompts import TEMPLATES; from hgpo.envs import names; "
            "from hgpo.config.recipes import recipe_names, starters; "
            f"print(*TEMPLATES.names(), *names(), *recipe_names(), *starters(), {package!r} in sys.modules); "
            f"from hgpo.envs import make; import {package}; "
            f"[task] = make({self.name!r}, {self.options}).tasks('train'); "
            f"print(type(task.make()).__name__, type(TEMPLATES.get({self.template!r})).__name__, {package}.__file__)"
        )
        *listed, imported, environment, template, file = self.python(installed, "-c", code).split()
        assert {self.template, self.name, f"{self.name}-tiny", f"{self.name}-language-model"} <= set(listed)
        assert imported == "False"
        assert (environment, template) == self.parts
        assert Path(file).is_relative_to(installed)

    @pytest.mark.slow
    def test_a_tiny_policy_trains(self, installed: Path) -> None:  # type: ignore[override]
        words = [f"{self.name}-tiny", "--quiet", *SMALL_TRAINING, *self.settings]
        self.python(installed, "-m", "hgpo", "train", *words)
        assert (installed.parent / "runs" / f"{self.name}-tiny" / "summary.json").exists()


def few(options: Mapping[str, Any]) -> list[str]:
    """Options of an environment as words of a command."""
    return [f"environment.options.{name}={value}" for name, value in options.items()]
