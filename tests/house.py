"""Rollouts of a small house, written as this project writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]


def walk(update: int, task: str, name: str, rooms: list[str], won: bool) -> Rows:
    """One trajectory: a step per room; the prompt holds the room before."""
    last = len(rooms) - 1
    return [
        {
            "group": f"{update}/{task}",
            "trajectory": f"{update}/{task}#{name}",
            "step": step,
            "task_type": "walk",
            "observation": room,
            "prompt": f"before: {rooms[step - 1] if step else 'nothing'}\nnow: {room}",
            "response": f"<action>leave {room}</action>",
            "action": f"leave {room}",
            "reward": 1.0 if won and step == last else 0.0,
            "won": won and step == last,
            "terminated": won and step == last,
            "truncated": not won and step == last,
        }
        for step, room in enumerate(rooms)
    ]


def house(update: int) -> Rows:
    """Task a: the kitchen is reached from the hall (won, lost) and from the garden (won). Task b: one of two won."""
    return [
        *walk(update, "a", "0", ["hall", "kitchen"], won=True),
        *walk(update, "a", "1", ["hall", "kitchen"], won=False),
        *walk(update, "a", "2", ["hall", "garden", "kitchen"], won=True),
        *walk(update, "b", "0", ["hall", "attic"], won=True),
        *walk(update, "b", "1", ["hall", "cellar"], won=False),
    ]


def trajectory_lines(rows: Rows) -> Rows:
    """The same steps, one trajectory a line."""
    lines: dict[str, dict[str, Any]] = {}
    for row in rows:
        whose = {name: row[name] for name in ("group", "trajectory")}
        line = lines.setdefault(row["trajectory"], {**whose, "steps": []})
        line["steps"].append({name: row[name] for name in ("observation", "prompt", "response", "action", "reward")})
    return list(lines.values())


def write_rows(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
