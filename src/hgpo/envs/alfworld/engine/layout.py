"""The parts of a game that never change while it is played, numbered so that the engine can work on small integers.

Objects and receptacles are numbered by their ids in lower case, because that is the order in which the simulator
lists things. Listing what stands somewhere is then sorting integers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from hgpo.envs.alfworld.game import Game, GameObject, Receptacle

CLEANING_KINDS = frozenset({"Sink", "SinkBasin"})
HEATING_KINDS = frozenset({"Microwave"})
COOLING_KINDS = frozenset({"Fridge"})
KNIFE_KINDS = frozenset({"Knife", "ButterKnife"})


@dataclass(frozen=True, slots=True)
class Layout:
    """The objects and receptacles of a game by number: `objects[3]` is object number 3 in every set of numbers.

    Attributes:
        receptacles: sorted by id.
        receptacle_names: their names, by number.
        objects: sorted by id.
        object_names: their names, by number.
        receptacles_at: location -> numbers of its receptacles.
        openable: numbers of the receptacles that open.
        contents: per receptacle the numbers of the objects in it at the start.
        inside: number of an object that is a container itself -> the objects in it; no command moves them out.
    """

    receptacles: tuple[Receptacle, ...]
    receptacle_names: tuple[str, ...]
    objects: tuple[GameObject, ...]
    object_names: tuple[str, ...]
    receptacles_at: dict[str, tuple[int, ...]]
    openable: frozenset[int]
    contents: tuple[frozenset[int], ...]
    inside: dict[int, tuple[int, ...]]

    @classmethod
    def of(cls, game: Game) -> Layout:
        """Number a game. `ValueError` names an id that does not exist or a name or id that stands for two things."""
        receptacles = tuple(sorted(game.receptacles, key=_listing_key))
        objects = tuple(sorted(game.objects, key=_listing_key))
        things: list[Receptacle | GameObject] = [*receptacles, *objects]
        _check_unique(game.name, "id", [thing.id for thing in things])
        _check_unique(game.name, "name", [thing.name for thing in things])
        receptacle_number = {receptacle.id: number for number, receptacle in enumerate(receptacles)}
        object_number = {item.id: number for number, item in enumerate(objects)}
        contents: list[set[int]] = [set() for _ in receptacles]
        inside: defaultdict[int, list[int]] = defaultdict(list)
        for number, item in enumerate(objects):
            for holder in item.receptacles:
                contents[_lookup(receptacle_number, holder, item, game)].add(number)
            for holder in () if item.inside is None else (item.inside, *item.also_inside):
                inside[_lookup(object_number, holder, item, game)].append(number)
        return cls(
            receptacles=receptacles,
            receptacle_names=tuple(receptacle.name for receptacle in receptacles),
            objects=objects,
            object_names=tuple(item.name for item in objects),
            receptacles_at=_by_location(receptacles),
            openable=frozenset(number for number, receptacle in enumerate(receptacles) if receptacle.openable),
            contents=tuple(map(frozenset, contents)),
            inside={holder: tuple(numbers) for holder, numbers in inside.items()},
        )

    def with_property(self, name: str) -> frozenset[int]:
        """Numbers of the objects of which a PDDL predicate such as `"cleanable"` is true at the start."""
        return frozenset(number for number, item in enumerate(self.objects) if name in item.properties)

    def objects_of(self, kinds: Iterable[str]) -> frozenset[int]:
        """Numbers of the objects of any of these kinds."""
        return frozenset(number for number, item in enumerate(self.objects) if item.kind in kinds)

    def receptacles_of(self, kinds: Iterable[str]) -> frozenset[int]:
        """Numbers of the receptacles of any of these kinds."""
        return frozenset(number for number, place in enumerate(self.receptacles) if place.kind in kinds)


def _listing_key(thing: Receptacle | GameObject) -> str:
    return thing.id.lower()


def _by_location(receptacles: tuple[Receptacle, ...]) -> dict[str, tuple[int, ...]]:
    result: defaultdict[str, list[int]] = defaultdict(list)
    for number, receptacle in enumerate(receptacles):
        result[receptacle.location].append(number)
    return {location: tuple(numbers) for location, numbers in result.items()}


def _check_unique(game_name: str, what: str, values: list[str]) -> None:
    if len(set(values)) != len(values):
        repeated = Counter(values).most_common(1)[0][0]
        raise ValueError(f"{game_name}: the {what} {repeated!r} stands for two things; give each its own")


def _lookup(numbers: dict[str, int], identifier: str, item: GameObject, game: Game) -> int:
    if identifier not in numbers:
        raise ValueError(
            f"{game.name}: {item.id!r} is said to be in {identifier!r}, which the game does not have; "
            "add it to the game or take the object out"
        )
    return numbers[identifier]
