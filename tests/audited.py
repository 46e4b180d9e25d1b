"""Logs of evaluations for the tests of `hgpo audit`, in the shapes that trainers write."""

from __future__ import annotations

import hashlib
import json
import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from compared import write_run
from hgpo.evaluation.manifests import Catalogue, Manifest, ManifestTask
from hgpo.evaluation.result_files import StoredEvaluation, write_evaluation
from house import write_rows
from panels import panel

Row = dict[str, Any]
BANNER = "-= Welcome to TextWorld, ALFRED! =-\n\n"
FIRST_PROMPT = """system
You are a helpful assistant.
user

You are an expert agent operating in the ALFRED Embodied Environment.
Your current observation is: {observation}
Your admissible actions of the current situation are: ['go to drawer 1'].

Now it's your turn to take an action.
assistant
"""
LATER_PROMPT = """user

You are an expert agent operating in the ALFRED Embodied Environment. Your task is to: {goal}
Prior to this step, you have already taken {step} step(s). Below are the most recent 2 observaitons and so on
You are now at step {step} and your current observation is: Nothing happens.
Your admissible actions of the current situation are: ['go to drawer 1'].
assistant
"""


def task_ids(count: int, split: str = "valid_seen") -> list[str]:
    return [f"{split}/pick_and_place_simple-Mug-None-Shelf-{number}/trial_T{number:04d}" for number in range(count)]


def goal_of(task: str) -> str:
    return f"put a mug in shelf of {task.split('/')[1]}."


def observation_of(task: str) -> str:
    return f"{BANNER}You are in the middle of a room.\n\nYour task is to: {goal_of(task)}"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def manifest(tasks: Sequence[str], catalogue: Catalogue | None = None) -> Manifest:
    """A manifest of these tasks, as `hgpo manifest build` writes one."""
    listed = tuple(
        ManifestTask(
            id=task,
            kind="pick_and_place_simple",
            game=digest(task),
            observation=digest(observation_of(task)),
            goal=digest(goal_of(task)),
            price_bound=None,
        )
        for task in tasks
    )
    return Manifest(
        id="own-1",
        version=1,
        environment="alfworld",
        split="valid_seen",
        description="of a test",
        settings={},
        catalogue=catalogue,
        tasks=listed,
    )


def episode_rows(tasks: Sequence[str], chance: random.Random, **columns: Any) -> list[Row]:
    return [{"task_id": task, "success": chance.random() < 0.6, **columns} for task in tasks]


@dataclass(frozen=True)
class CleanLogs:
    """One log per shape, without a violation; every task is played equally often."""

    folder: Path
    chance: random.Random
    tasks: list[str]

    def rows_of_episodes(self) -> Path:
        return write_rows(self.folder / "results.jsonl", episode_rows(self.tasks, self.chance))

    def seeds_and_checkpoints(self) -> Path:
        rows = [
            row
            for step in (50, 100, 150)
            for seed in (1, 2, 3)
            for row in episode_rows(self.tasks, self.chance, seed=seed, step=step)
        ]
        self.chance.shuffle(rows)
        return write_rows(self.folder / "results.jsonl", rows)

    def a_file_per_seed(self) -> Path:
        for seed in range(3):
            write_rows(self.folder / f"log/seed_{seed}.jsonl", episode_rows(self.tasks, self.chance))
        return self.folder / "log"

    def paths_of_games(self) -> Path:
        rows = [
            {
                "gamefile": f"/data/json_2.1.1/{task}/game.tw-pddl",
                "reward": self.chance.choice([0, 1]),
                "trajectory": [{}],
            }
            for task in self.tasks
        ]
        return write_rows(self.folder / "trajectories.jsonl", rows)

    def array_with_trials(self) -> Path:
        rows = [
            {"task_id": task, "trial": trial, "reward": float(self.chance.random() < 0.5), "traj": []}
            for trial in range(4)
            for task in self.tasks
        ]
        path = self.folder / "results.json"
        path.write_text(json.dumps(rows))
        return path

    def parquet(self) -> Path:
        path = self.folder / "episodes.parquet"
        pq.write_table(pa.Table.from_pylist(episode_rows(self.tasks, self.chance, seed=7)), path)
        return path

    def rows_of_steps(self) -> Path:
        rows = []
        for number, task in enumerate(self.tasks):
            length, won = self.chance.randint(1, 5), self.chance.random() < 0.5
            rows += [
                {
                    "task_id": task,
                    "trajectory": number,
                    "step": step,
                    "action": "look",
                    "won": won and step == length - 1,
                }
                for step in range(length)
            ]
        self.chance.shuffle(rows)
        return write_rows(self.folder / "steps.jsonl", rows)

    def steps_without_trajectories(self) -> Path:
        rows = [
            {"task_id": task, "turn": turn, "observation": f"room {turn}", "reward": float(turn == 3)}
            for task in self.tasks * 2
            for turn in range(self.chance.randint(1, 4))
        ]
        return write_rows(self.folder / "steps.jsonl", rows)

    def dumps_of_verl_agent(self) -> Path:
        for step in (20, 40):
            rows: list[Row] = []
            for task in self.chance.sample(self.tasks, len(self.tasks)):
                score = 10.0 * self.chance.randint(0, 1)
                prompts = [FIRST_PROMPT.format(observation=observation_of(task))]
                prompts += [
                    LATER_PROMPT.format(goal=goal_of(task), step=n) for n in range(1, self.chance.randint(1, 4))
                ]
                rows += [{"input": prompt, "output": "look", "score": score, "step": step} for prompt in prompts]
            write_rows(self.folder / f"validation/{step}.jsonl", rows)
        return self.folder / "validation"

    def dumps_of_verl(self) -> Path:
        for step in (5, 10, 15):
            rows: list[Row] = []
            for task in self.tasks:
                uid, score = uuid.UUID(int=self.chance.getrandbits(128)), float(self.chance.randint(0, 1))
                rows += [
                    {
                        "input": f"{task} {turn}",
                        "output": "look",
                        "score": score,
                        "step": step,
                        "uid": f"{uid}_0_{turn}",
                    }
                    | {"task_id": task}
                    for turn in range(self.chance.randint(1, 3))
                ]
            self.chance.shuffle(rows)
            rows += [{"input": "", "output": "", "score": 0.0, "step": step, "uid": f"pad{'0' * 32}_0_0"}]
            write_rows(self.folder / f"validation/{step}.jsonl", rows)
        return self.folder / "validation"

    def result_file(self) -> Path:
        won = {task: float(self.chance.randint(0, 1)) for task in self.tasks}
        path = self.folder / "result.json"
        write_evaluation(path, StoredEvaluation(panel({"put": [1.0]}, tasks_won=won, seeds=(1, 2), split="valid_seen")))
        return path

    def run(self) -> Path:
        """A run with evaluations at three checkpoints, the last one twice, and one of another split."""
        other = [task.replace("valid_seen", "valid_unseen") for task in self.tasks]

        def figures(tasks: Sequence[str], split: str) -> Any:
            won = {task: float(self.chance.randint(0, 1)) for task in tasks}
            return panel({"put": [1.0]}, tasks_won=won, split=split)

        found = {
            name: figures(self.tasks, "valid_seen") for name in ("before", "update-2", "after", "valid_seen-4-t0.4-s1")
        }
        return write_run(self.folder / "run", {**found, "valid_unseen-4-t0.4-s1": figures(other, "valid_unseen")})


SHAPES: Mapping[str, Any] = {
    name: shape for name, shape in vars(CleanLogs).items() if callable(shape) and not name.startswith("_")
}
