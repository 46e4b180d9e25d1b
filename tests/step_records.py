"""Steps of episodes that nobody played."""

from __future__ import annotations

from typing import Any

from hgpo.rollout.records import StepRecord


def step_record(**changes: Any) -> StepRecord:
    """A step of a lost episode that goes on, but for the changes."""
    columns = {
        "group": "task",
        "trajectory": "a",
        "step": 0,
        "task_id": "task",
        "task_type": "kind",
        "observation": "hall",
        "prompt": "where?",
        "response": "there",
        "action": "go",
        "valid": True,
        "fault": "",
        "admissible": True,
        "reward": 0.0,
        "penalty": 0.0,
        "won": False,
        "score": 0.0,
        "terminated": False,
        "truncated": False,
        "finished": True,
        "forgotten": 0,
        "next_observation": "kitchen",
    }
    return StepRecord(**{**columns, **changes})
