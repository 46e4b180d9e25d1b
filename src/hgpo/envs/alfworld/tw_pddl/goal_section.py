"""Recognising which of the six goal templates a PDDL goal is.

A goal is read as its set of conditions, whatever their order and however `and` and `exists` wrap them. It is
an instance of a template if the template's variables can be given the goal's so that both sets are equal.
"""

from __future__ import annotations

from collections.abc import Iterator

from hgpo.envs.alfworld.game import Goal
from hgpo.envs.alfworld.tw_pddl.s_expressions import Expression

_Condition = tuple[str, ...]
_Binding = dict[str, str]

MAX_CONDITIONS = 16

_PLACED = ("objectType ?item OBJECT", "receptacleType ?place TARGET", "inReceptacle ?item ?place")

_TEMPLATES: dict[str, tuple[str, ...]] = {
    "pick_and_place_simple": _PLACED,
    "pick_clean_then_place_in_recep": (*_PLACED, "cleanable ?item", "isClean ?item"),
    "pick_heat_then_place_in_recep": (*_PLACED, "heatable ?item", "isHot ?item"),
    "pick_cool_then_place_in_recep": (*_PLACED, "coolable ?item", "isCool ?item"),
    "pick_two_obj_and_place": (
        *_PLACED,
        "objectType ?other OBJECT",
        "inReceptacle ?other ?place",
        "different ?item ?other",
    ),
    "look_at_obj_in_light": (
        "objectType ?item OBJECT",
        "holds ?holder ?item",
        "objectType ?lamp TARGET",
        "toggleable ?lamp",
        "isToggled ?lamp",
        "inReceptacle ?lamp ?place",
        "receptacleAtLocation ?place ?location",
        "atLocation ?agent ?location",
    ),
}


def read_goal(section: list[Expression]) -> Goal:
    """Read the `:goal` section. `ValueError` if it is none of the six templates."""
    conditions = frozenset(_conditions(section))
    if len(conditions) <= MAX_CONDITIONS:
        for task_type, template in _TEMPLATES.items():
            binding = _unify([tuple(pattern.split()) for pattern in template], conditions, {})
            if binding is not None:
                return Goal(task_type, binding["OBJECT"].removesuffix("Type"), binding["TARGET"].removesuffix("Type"))
    predicates = sorted({condition[0] for condition in conditions})
    raise ValueError(f"the goal has none of the six known shapes; its conditions are {', '.join(predicates)[:200]}")


def _conditions(section: list[Expression]) -> Iterator[_Condition]:
    pending: list[Expression] = list(section)
    while pending:
        match pending.pop():
            case ["and", *parts]:
                pending.extend(parts)
            case ["exists", [*_], body]:
                pending.append(body)
            case ["not", ["=", str(first), str(second)]]:
                yield "different", first, second
            case [*words] if words and all(isinstance(word, str) for word in words):
                yield tuple(map(str, words))
            case other:
                raise ValueError(f"the goal has a part that no template has: {str(other)[:120]}")


def _unify(patterns: list[_Condition], conditions: frozenset[_Condition], binding: _Binding) -> _Binding | None:
    """Pair every pattern with a condition of its own, leaving none over."""
    if len(patterns) != len(conditions):
        return None
    if not patterns:
        return binding
    for condition in conditions:
        extended = _bind(patterns[0], condition, binding)
        if extended is not None:
            solution = _unify(patterns[1:], conditions - {condition}, extended)
            if solution is not None:
                return solution
    return None


def _bind(pattern: _Condition, condition: _Condition, binding: _Binding) -> _Binding | None:
    if pattern[0] != condition[0] or len(pattern) != len(condition):
        return None
    extended = dict(binding)
    for variable, value in zip(pattern[1:], condition[1:], strict=True):
        if extended.setdefault(variable, value) != value:
            return None
    return extended
