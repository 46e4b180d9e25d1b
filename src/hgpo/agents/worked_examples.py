"""Worked examples for a ReAct agent: whole games in which every action follows a thought in plain English.

The project's own experts play its own generated games, and rules put the reason of each action into words
(`tools/react_examples`). Shops are shown in two forms: with the pages and instructions of the official catalogue's
form, and with the brief pages of generated shops. A file here is a JSON object:

    {"made_by": "…", "examples": [{"kind": "…", "task": "…", "turns": [
        {"observation": "…", "thought": "…", "action": "…"}, …]}, …]}

Source of the form (thought, action and observation in turn, examples by kind of task): Yao et al. 2023, "ReAct:
Synergizing Reasoning and Acting in Language Models", arXiv 2210.03629, section 4. None of its text is used.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

EXAMPLE_NAMES = ("household", "shop")
"""What `load_examples` knows: household games (ALFWorld), shopping (WebShop)."""

_MARKS = ("[SEP]", "[button]")
"""What tells the forms of a shop's pages apart: `text` has the first, `text_rich` the second, `brief` neither."""


@dataclass(frozen=True, slots=True)
class WorkedTurn:
    """One turn of an agent.

    Attributes:
        observation: what the environment said before it.
        thought: why this action, from what was observed so far and the task alone.
        action: the command as the environment takes it.
    """

    observation: str
    thought: str
    action: str


@dataclass(frozen=True, slots=True)
class WorkedExample:
    """An episode that is won, from its first observation to the winning action.

    Attributes:
        kind: the task's kind, as `hgpo.envs.base.Task.kind` says it.
        task: the sentence that states the goal.
        turns: the turns in order; what the environment says to the last action is left out.
    """

    kind: str
    task: str
    turns: tuple[WorkedTurn, ...]


def load_examples(name: str) -> tuple[WorkedExample, ...]:
    """The worked examples of one kind of environment, in the file's order.

    Args:
        name: one of `EXAMPLE_NAMES`.

    Raises:
        ValueError: there are none of that name; the message says which there are.
    """
    if name not in EXAMPLE_NAMES:
        raise ValueError(f"unknown worked examples {name!r}; known: {', '.join(EXAMPLE_NAMES)}")
    document = json.loads((files("hgpo.agents") / "examples" / f"{name}.json").read_text(encoding="utf-8"))
    return tuple(
        WorkedExample(entry["kind"], entry["task"], tuple(WorkedTurn(**turn) for turn in entry["turns"]))
        for entry in document["examples"]
    )


def examples_for(
    examples: Sequence[WorkedExample], kind: str, count: int, observation: str = ""
) -> tuple[WorkedExample, ...]:
    """The first `count` examples for a task: those of its form, of these those of its kind, else in the order given.

    A kind or form without examples still gets some, and `count` above their number gives them all.

    Args:
        examples: to choose from.
        kind: the task's.
        count: how many.
        observation: any of the task's, which shows in what form its environment speaks.

    Raises:
        ValueError: `count` is negative.
    """
    if count < 0:
        raise ValueError(f"count of worked examples must be 0 or more, not {count}")
    form = _form(observation)

    def differs(example: WorkedExample) -> tuple[bool, bool]:
        return _form(example.turns[0].observation) != form, example.kind != kind

    # A sort keeps the order of what is equal, and False comes first.
    return tuple(sorted(examples, key=differs)[:count])


def _form(observation: str) -> tuple[bool, ...]:
    """Which marks it has."""
    return tuple(mark in observation for mark in _MARKS)
