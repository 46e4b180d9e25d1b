"""From a parsed PDDL problem to the things in a household, where they are, and the goal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from hgpo.envs.alfworld.engine.text import names_from_ids
from hgpo.envs.alfworld.game import GameObject, Goal, Receptacle
from hgpo.envs.alfworld.tw_pddl.goal_section import read_goal
from hgpo.envs.alfworld.tw_pddl.s_expressions import Expression

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

_COSTS = "="  # (= (total-cost) 0) and distances: planners read them, players never notice


class ProblemReader:
    """The sections of one problem. Every method raises `ValueError` naming what it does not understand."""

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
        self._goal = sections[":goal"]

    def things(self) -> tuple[tuple[Receptacle, ...], tuple[GameObject, ...]]:
        """Receptacles and objects about which at least one fact is stated, in the order of their declaration."""
        mentioned = {argument for facts in self._facts.values() for fact in facts for argument in fact}
        receptacles = [identifier for identifier in self._of_type("receptacle") if identifier in mentioned]
        objects = [identifier for identifier in self._of_type("object") if identifier in mentioned]
        names = names_from_ids([*receptacles, *objects])
        return self._receptacles(receptacles, names), self._objects(objects, names)

    def goal(self) -> Goal:
        """The goal, as one of the six templates."""
        return read_goal(self._goal)

    def can_contain(self) -> frozenset[tuple[str, str]]:
        """Which kinds of receptacle take which kinds of object."""
        return frozenset((_kind(receptacle), _kind(item)) for receptacle, item in self._facts["canContain"])

    def agent_location(self) -> str:
        """Where the player starts."""
        if len(self._facts["atLocation"]) != 1:
            raise ValueError(f"the agent starts at {len(self._facts['atLocation'])} places, not one")
        return self._facts["atLocation"][0][1]

    def locations(self) -> tuple[str, ...]:
        """All places one can stand at."""
        return tuple(self._of_type("location"))

    def _of_type(self, name: str) -> Iterator[str]:
        return (identifier for identifier, declared in self._types.items() if declared == name)

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
                raise ValueError(f"{_brief(fact)} has {len(arguments)} arguments, not {len(expected)}")
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
                # Two published games mention an object without its kind: it exists, but is nowhere.
                kind=_kind(kinds.get(identifier, "")),
                receptacles=receptacles.get(identifier, ()),
                location=locations.get(identifier),
                inside=next(iter(inside.get(identifier, ())), None),
                properties=frozenset(properties[identifier]),
                also_inside=inside.get(identifier, ())[1:],
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
