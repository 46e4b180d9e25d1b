"""Reads the sentence that states a household task."""

from __future__ import annotations

import re
from dataclasses import dataclass

_VERBS = {"clean": "clean", "heat": "heat", "hot": "heat", "cool": "cool", "cold": "cool"}
_PATTERNS = tuple(
    (task_type, re.compile(pattern))
    for task_type, pattern in (
        ("look_at_obj_in_light", r"look at (?:an? |the )?(?P<object>\w+) under (?:the )?(?P<target>\w+)"),
        ("look_at_obj_in_light", r"examine (?:an? |the )?(?P<object>\w+) with (?:the )?(?P<target>\w+)"),
        ("pick_two_obj_and_place", r"find two (?P<object>\w+) and put them (?:in|on) (?:the )?(?P<target>\w+)"),
        ("pick_two_obj_and_place", r"put two (?P<object>\w+) (?:in|on) (?:the )?(?P<target>\w+)"),
        ("", r"(?P<verb>clean|heat|cool) (?:some|an?) (?P<object>\w+) and put it (?:in|on) (?:the )?(?P<target>\w+)"),
        ("", r"put (?:an?|some) (?P<verb>clean|hot|cool|cold) (?P<object>\w+) (?:in|on) (?:the )?(?P<target>\w+)"),
        ("pick_and_place_simple", r"put (?:an?|some) (?P<object>\w+) (?:in|on) (?:the )?(?P<target>\w+)"),
    )
)


@dataclass(frozen=True, slots=True)
class TaskSentence:
    """What a task sentence asks for.

    Attributes:
        task_type: one of the six task types.
        object_kind: in lower case, as the sentence has it.
        target_kind: in lower case, as the sentence has it.
        verb: clean, heat or cool; "" where none applies.

    Example: "put a hot cup in shelf." is
    `TaskSentence("pick_heat_then_place_in_recep", object_kind="cup", target_kind="shelf", verb="heat")`.
    """

    task_type: str
    object_kind: str
    target_kind: str
    verb: str = ""


def parse_task(sentence: str) -> TaskSentence:
    """What a task sentence asks for; `ValueError` quotes a sentence of another form."""
    for task_type, pattern in _PATTERNS:
        match = pattern.fullmatch(sentence.strip().rstrip(".").lower())
        if match:
            verb = _VERBS[match["verb"]] if not task_type else ""
            kind = task_type or f"pick_{verb}_then_place_in_recep"
            return TaskSentence(kind, match["object"], match["target"], verb)
    raise ValueError(f"task sentence {sentence!r} has none of the known forms, such as 'put a clean apple in fridge.'")
