"""Worked examples for a ReAct agent: whole episodes with a thought before every action.

`tools/react_examples` makes them: the environments' experts play generated tasks, and rules word the reason of each
action. Shops appear in two forms: pages and instructions as in the official catalogue, and the brief pages of generated
shops. A file in `examples/` is a JSON object:

    {"made_by": "…", "examples": [{"kind": "…", "task": "…", "turns": [
        {"observation": "…", "thought": "…", "action": "…"}, …]}, …]}

Source of the form (thought, action, observation; examples by kind of task): Yao et al. 2023, "ReAct:
Synergizing Reasoning and Acting in Language Models", arXiv 2210.03629, section 4. None of its text is used.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

_MARKS = ("[SEP]", "[button]")
"""Marks of the forms of a shop's pages: `text` has the first, `text_rich` the second, `brief` neither."""


@dataclass(frozen=True, slots=True)
class WorkedTurn:
    """One step of an example.

    Attributes:
        observation: the observation before the action.
        thought: the reason for the action, from the task and the observations so far.
        action: the command for the environment.
    """

    observation: str
    thought: str
    action: str


@dataclass(frozen=True, slots=True)
class WorkedExample:
    """A successful episode, from its first observation to its last action.

    Attributes:
        kind: the task's kind (`hgpo.envs.base.Task.kind`).
        task: the sentence that states the goal.
        turns: the steps in order; the final observation is left out.
    """

    kind: str
    task: str
    turns: tuple[WorkedTurn, ...]


def load_examples(name: str) -> tuple[WorkedExample, ...]:
    """The worked examples in `examples/NAME.json`, in the file's order: household (ALFWorld) or shop (WebShop)."""
    document = json.loads((files("hgpo.agents") / "examples" / f"{name}.json").read_text(encoding="utf-8"))
    return tuple(
        WorkedExample(entry["kind"], entry["task"], tuple(WorkedTurn(**turn) for turn in entry["turns"]))
        for entry in document["examples"]
    )


def examples_for(
    examples: Sequence[WorkedExample], kind: str, count: int, observation: str = ""
) -> tuple[WorkedExample, ...]:
    """Up to `count` examples for a task: examples of its form come first, and among these examples of its kind.

    Args:
        examples: the examples to choose from; ties keep their order.
        kind: the task's kind.
        count: number of examples, 0 or more.
        observation: any observation of the task, from which its form is read.
    """
    form = _form(observation)

    def differs(example: WorkedExample) -> tuple[bool, bool]:
        return _form(example.turns[0].observation) != form, example.kind != kind

    return tuple(sorted(examples, key=differs)[:count])


def _form(observation: str) -> tuple[bool, ...]:
    return tuple(mark in observation for mark in _MARKS)
