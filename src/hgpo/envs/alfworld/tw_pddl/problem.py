"""Reads a PDDL problem: expressions, the goal as one of six templates, and the objects of a household.

Expressions are parsed without recursion and with a limit on nesting. A goal is a set of conditions, in any
order and any nesting of `and` and `exists`; it is an instance of a template if some binding of the template's variables
makes both sets equal.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import TypeAlias

from hgpo.envs.alfworld.game import GameObject, Goal, Receptacle
from hgpo.envs.alfworld.text import names_from_ids

Expression: TypeAlias = "str | list[Expression]"

MAX_DEPTH = 64

_TOKENS = re.compile(r";[^\n]*|[()]|[^\s();]+")


class ExpressionError(ValueError):
    """Text that is not one well-formed expression within the limits."""


def parse_expression(source: str) -> list[Expression]:
    """Parse one `(...)` expression into nested lists of words; comments run from `;` to the end of the line.

    Example: `parse_expression("(and (p ?x))")` is `["and", ["p", "?x"]]`.
    """
    root: list[Expression] = []
    current = root
    open_lists: list[list[Expression]] = []
    for token in _TOKENS.findall(source):
        if token == "(":
            if len(open_lists) == MAX_DEPTH:
                raise ExpressionError(f"parentheses are nested more than {MAX_DEPTH} deep")
            inner: list[Expression] = []
            current.append(inner)
            open_lists.append(current)
            current = inner
        elif token == ")":
            if not open_lists:
                raise ExpressionError("a closing parenthesis has no opening one")
            current = open_lists.pop()
        elif token[0] != ";":
            current.append(token)
    if open_lists:
        raise ExpressionError(f"{len(open_lists)} parentheses are never closed")
    if len(root) != 1 or not isinstance(root[0], list):
        raise ExpressionError(f"expected one parenthesised expression, found {len(root)} items")
    return root[0]


_Condition = tuple[str, ...]
_Binding = dict[str, str]

MAX_CONDITIONS = 16

_PLACED = ("objectType ?item OBJECT", "receptacleType ?r TARGET", "inReceptacle ?item ?r")

GOAL_TEMPLATES: dict[str, tuple[str, ...]] = {
    "pick_and_place_simple": _PLACED,
    "pick_clean_then_place_in_recep": (*_PLACED, "cleanable ?item", "isClean ?item"),
    "pick_heat_then_place_in_recep": (*_PLACED, "heatable ?item", "isHot ?item"),
    "pick_cool_then_place_in_recep": (*_PLACED, "coolable ?item", "isCool ?item"),
    "pick_two_obj_and_place": (
        *_PLACED,
        "objectType ?other OBJECT",
        "inReceptacle ?other ?r",
        "different ?item ?other",
    ),
    "look_at_obj_in_light": (
        "objectType ?item OBJECT",
        "holds ?agent ?item",
        "objectType ?lamp TARGET",
        "toggleable ?lamp",
        "isToggled ?lamp",
        "inReceptacle ?lamp ?r",
        "receptacleAtLocation ?r ?spot",
        "atLocation ?agent ?spot",
    ),
}
"""Task type -> its conditions; `different` is a negated equality."""


def read_goal(section: list[Expression]) -> Goal:
    """The goal of the `:goal` section; `ValueError` if it fits none of the six templates."""
    conditions = frozenset(_conditions(section))
    if len(conditions) <= MAX_CONDITIONS:
        for task_type, template in GOAL_TEMPLATES.items():
            binding = _unify([tuple(pattern.split()) for pattern in template], conditions, {})
            if binding is not None:
                return Goal(task_type, binding["OBJECT"].removesuffix("Type"), binding["TARGET"].removesuffix("Type"))
    predicates = sorted({condition[0] for condition in conditions})
    raise ValueError(f"the goal fits none of the six templates; its conditions are {', '.join(predicates)[:200]}")


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
    """Bind each pattern to a different condition so that no condition is left; None if that is impossible."""
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


OBJECT_PROPERTIES = frozenset(
    {
        "cleanable",
        "coolable",
        "heatable",
        "isClean",
        "isCool",
        "isHot",
        "isOn",
        "isReceptacleObject",
        "isSliced",
        "isToggled",
        "moveable",
        "pickupable",
        "sliceable",
        "toggleable",
    }
)

_ARGUMENT_TYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(OBJECT_PROPERTIES, ("object",)),
    "atLocation": ("agent", "location"),
    "canContain": ("rtype", "otype"),
    "inReceptacle": ("object", "receptacle"),
    "inReceptacleObject": ("object", "object"),
    "objectAtLocation": ("object", "location"),
    "objectType": ("object", "otype"),
    "openable": ("receptacle",),
    "opened": ("receptacle",),
    "receptacleAtLocation": ("receptacle", "location"),
    "receptacleType": ("receptacle", "rtype"),
}

_COSTS = "="  # (= (total-cost) 0) and distances, which only planners use


class ProblemReader:
    """The content of one problem, in the words of `hgpo.envs.alfworld.game.Game`. `ValueError` for an invalid one.

    `receptacles` and `objects` are those with at least one fact, in the order of their declaration.
    """

    def __init__(self, problem: list[Expression]) -> None:
        sections = {
            section[0]: section[1:]
            for section in problem[1:]
            if isinstance(section, list) and section and isinstance(section[0], str)
        }
        missing = [name for name in (":objects", ":init", ":goal") if name not in sections]
        if problem[:1] != ["define"] or missing:
            raise ValueError(f"'pddl_problem' has no {' or '.join(missing) or 'define'} section")
        self._types = _declared_types(sections[":objects"])
        self._facts = self._read_facts(sections[":init"])
        mentioned = {argument for facts in self._facts.values() for fact in facts for argument in fact}
        receptacles = [identifier for identifier in self._of_type("receptacle") if identifier in mentioned]
        objects = [identifier for identifier in self._of_type("object") if identifier in mentioned]
        names = names_from_ids([*receptacles, *objects])
        self.receptacles, self.objects = self._receptacles(receptacles, names), self._objects(objects, names)
        self.goal = read_goal(sections[":goal"])
        self.can_contain = frozenset((_kind(place), _kind(item)) for place, item in self._facts["canContain"])
        if len(self._facts["atLocation"]) != 1:
            raise ValueError(f"the agent starts at {len(self._facts['atLocation'])} places, not one")
        self.agent_location = self._facts["atLocation"][0][1]
        self.locations = self._of_type("location")

    def _of_type(self, name: str) -> tuple[str, ...]:
        return tuple(identifier for identifier, declared in self._types.items() if declared == name)

    def _read_facts(self, facts: list[Expression]) -> defaultdict[str, list[tuple[str, ...]]]:
        result: defaultdict[str, list[tuple[str, ...]]] = defaultdict(list)
        for fact in facts:
            if not isinstance(fact, list) or not fact or not isinstance(fact[0], str):
                raise ValueError(f"the fact {_brief(fact)} has no predicate")
            predicate = fact[0]
            if predicate == _COSTS:
                continue
            expected = _ARGUMENT_TYPES.get(predicate)
            if expected is None:
                raise ValueError(f"unknown predicate {predicate!r} in {_brief(fact)}")
            arguments = fact[1:]
            if len(arguments) != len(expected):
                raise ValueError(f"{_brief(fact)} has {len(arguments)} arguments; {predicate} takes {len(expected)}")
            result[predicate].append(
                tuple(self._check(argument, kind, fact) for argument, kind in zip(arguments, expected, strict=True))
            )
        return result

    def _check(self, argument: Expression, expected: str, fact: list[Expression]) -> str:
        if not isinstance(argument, str) or self._types.get(argument) != expected:
            raise ValueError(f"{_brief(argument)} in {_brief(fact)} is not declared as {expected}")
        return argument

    def _receptacles(self, identifiers: list[str], names: dict[str, str]) -> tuple[Receptacle, ...]:
        kinds = self._one_per_thing("receptacleType")
        locations = self._one_per_thing("receptacleAtLocation")
        openable = {identifier for (identifier,) in self._facts["openable"]}
        opened = {identifier for (identifier,) in self._facts["opened"]}
        for identifier in identifiers:
            if identifier not in kinds or identifier not in locations:
                raise ValueError(f"the receptacle {identifier!r} has no kind or no location")
        return tuple(
            Receptacle(
                id=identifier,
                name=names[identifier],
                kind=_kind(kinds[identifier]),
                location=locations[identifier],
                openable=identifier in openable,
                opened=identifier in opened,
            )
            for identifier in identifiers
        )

    def _objects(self, identifiers: list[str], names: dict[str, str]) -> tuple[GameObject, ...]:
        kinds = self._one_per_thing("objectType")
        locations = self._one_per_thing("objectAtLocation")
        receptacles = self._all_per_thing("inReceptacle")
        inside = self._all_per_thing("inReceptacleObject")
        properties: defaultdict[str, set[str]] = defaultdict(set)
        for name in OBJECT_PROPERTIES:
            for (identifier,) in self._facts.get(name, ()):
                properties[identifier].add(name)
        return tuple(
            GameObject(
                id=identifier,
                name=names[identifier],
                # Two published games mention an object without a kind; it exists without a place.
                kind=_kind(kinds.get(identifier, "")),
                receptacles=receptacles.get(identifier, ()),
                location=locations.get(identifier),
                inside=inside.get(identifier, ()),
                properties=frozenset(properties[identifier]),
            )
            for identifier in identifiers
        )

    def _one_per_thing(self, predicate: str) -> dict[str, str]:
        values: dict[str, str] = {}
        for identifier, value in self._facts[predicate]:
            if values.setdefault(identifier, value) != value:
                raise ValueError(f"{identifier!r} has two values of {predicate}: {values[identifier]!r} and {value!r}")
        return values

    def _all_per_thing(self, predicate: str) -> dict[str, tuple[str, ...]]:
        values: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for identifier, value in self._facts[predicate]:
            values[identifier][value] = None
        return {identifier: tuple(distinct) for identifier, distinct in values.items()}


def _declared_types(declarations: list[Expression]) -> dict[str, str]:
    """Read `name name - type name - type` into types by name, in order."""
    types: dict[str, str] = {}
    untyped: list[str] = []
    words = iter(declarations)
    for word in words:
        if not isinstance(word, str):
            raise ValueError(f"{_brief(word)} in :objects is not a name")
        if word != "-":
            untyped.append(word)
            continue
        declared = next(words, None)
        if not isinstance(declared, str):
            raise ValueError(":objects ends without a type")
        types.update(dict.fromkeys(untyped, declared))
        untyped.clear()
    if untyped:
        raise ValueError(f"{untyped[0]!r} in :objects has no type")
    return types


def _kind(type_name: str) -> str:
    return type_name.removesuffix("Type")


def _brief(expression: Expression | None) -> str:
    words = repr(expression) if isinstance(expression, str) else " ".join(map(str, expression or ()))
    return words if isinstance(expression, str) else f"({words[:120]})"
