"""`Engine` applies commands, answers them and checks whether the game is won; `AlfworldEnv` is the environment.

A command is legal exactly if `Engine.commands` has it. The legal commands of a location change only when something is
taken, put down, opened or closed, so they are cached until then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from os import PathLike
from typing import Any
from weakref import WeakValueDictionary

from hgpo.envs.alfworld import text
from hgpo.envs.alfworld.actions import Action, Layout, LegalActions, World, state_key
from hgpo.envs.alfworld.game import TASK_TYPES, Game
from hgpo.envs.alfworld.tw_pddl.reading import load_game
from hgpo.envs.base import check_action


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class PreparedGame:
    """The constant parts of a game, shared by all its engines.

    Attributes:
        game: the game itself.
        layout: its objects and receptacles by number.
        legal: the legal actions of a state.
        is_won: whether a state fulfils the goal; called after every legal command.
    """

    game: Game
    layout: Layout
    legal: LegalActions
    is_won: WinCondition


_in_use: WeakValueDictionary[int, PreparedGame] = WeakValueDictionary()


def prepare(game: Game) -> PreparedGame:
    """The constant parts of a game, cached by the game's identity.

    `ValueError` for an unknown task type, an id that does not exist, or a duplicate name or id.
    """
    prepared = _in_use.get(id(game))  # an entry keeps its game alive, so no other game can have this identity
    if prepared is None:
        layout = Layout.of(game)
        prepared = _in_use[id(game)] = PreparedGame(
            game=game,
            layout=layout,
            legal=LegalActions(layout, game.can_contain),
            is_won=win_condition(game, layout),
        )
    return prepared


WinCondition = Callable[[World], bool]

TREATMENTS = {
    "pick_clean_then_place_in_recep": ("cleanable", "clean"),
    "pick_heat_then_place_in_recep": ("heatable", "hot"),
    "pick_cool_then_place_in_recep": ("coolable", "cool"),
}


def win_condition(game: Game, layout: Layout) -> WinCondition:
    """The win condition of a game's goal; `ValueError` for an unknown task type."""
    goal = game.goal
    if goal.task_type not in TASK_TYPES:
        raise ValueError(f"{game.name}: unknown task type {goal.task_type!r}; known are {', '.join(TASK_TYPES)}")
    wanted = layout.objects_of({goal.object_kind})
    if goal.task_type == "look_at_obj_in_light":
        lamps = layout.objects_of({goal.target_kind}) & layout.with_property("toggleable")
        return _held_under_light(wanted, lamps, layout.receptacles_at)
    targets = tuple(sorted(layout.receptacles_of({goal.target_kind})))
    if goal.task_type in TREATMENTS:
        ability, state = TREATMENTS[goal.task_type]
        return _objects_placed(wanted & layout.with_property(ability), targets, state=state)
    return _objects_placed(wanted, targets, 2 if goal.task_type == "pick_two_obj_and_place" else 1)


def _objects_placed(
    wanted: frozenset[int], targets: tuple[int, ...], count: int = 1, state: str | None = None
) -> WinCondition:
    """The condition: `count` wanted objects, in a state such as `hot` if one is given, are in the same target."""

    def reached(world: World) -> bool:
        ready = wanted if state is None else wanted & world.states[state]
        return any(len(ready & world.contents[target]) >= count for target in targets)

    return reached


def _held_under_light(
    wanted: frozenset[int], lamps: frozenset[int], receptacles_at: dict[str, tuple[int, ...]]
) -> WinCondition:
    """The condition: the agent carries a wanted object at the location of a lamp that was used."""

    def reached(world: World) -> bool:
        if world.held not in wanted:
            return False
        lit = lamps & world.states["toggled"]
        here = receptacles_at.get(world.location, ())
        return any(not lit.isdisjoint(world.contents[place]) for place in here)

    return reached


_CHANGES: dict[str, tuple[str, str | None]] = {
    "clean": ("clean", None),
    "cool": ("cool", "hot"),
    "heat": ("hot", "cool"),
    "slice": ("sliced", None),
    "use": ("toggled", None),
}
"""Verb -> (state that it adds to the object, state that it removes or None)."""


class Engine:
    """One running game. It can be pickled and copied at any step."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self._prepare()
        self.start()

    def _prepare(self) -> None:
        prepared = self._prepared = prepare(self.game)  # the reference keeps it in the cache
        self._layout, self._legal, self._is_won = prepared.layout, prepared.legal, prepared.is_won
        self._legal_at: dict[str, tuple[dict[str, Action], list[str]]] = {}

    def __getstate__(self) -> tuple[Game, World, bool]:
        return self.game, self._world, self.won

    def __setstate__(self, state: tuple[Game, World, bool]) -> None:
        self.game, self._world, self.won = state
        self._prepare()

    def start(self) -> str:
        """Reset the game and return the first observation."""
        self._world = World.at_start(self._layout, self.game.agent_location)
        self._legal_at.clear()
        self.won = self._is_won(self._world)
        in_front = self._world.location in self._layout.receptacles_at
        seen = (
            self._surroundings() if in_front else text.middle_of_room(place.name for place in self._layout.receptacles)
        )
        return f"{text.BANNER}\n\n{seen}\n\n{text.TASK_PREFIX}{self.game.task}"

    @property
    def commands(self) -> list[str]:
        """The legal commands, sorted. The list is cached: copy it before changing it."""
        return self._legal_here()[1]

    def state_key(self) -> str:
        """The exact state as text, see `hgpo.envs.alfworld.actions.state_key`."""
        return state_key(self._layout, self._world)

    def act(self, command: str) -> str:
        """Apply a command and return the observation; an illegal command changes nothing."""
        action = self._legal_here()[0].get(command.strip())
        if action is None:
            return text.NOTHING_HAPPENS
        feedback = _HANDLERS[action.verb](self, action)
        self.won = self._is_won(self._world)
        return feedback

    def _legal_here(self) -> tuple[dict[str, Action], list[str]]:
        legal = self._legal_at.get(self._world.location)
        if legal is None:
            actions = self._legal.find(self._world)
            legal = self._legal_at[self._world.location] = (actions, sorted(actions))
        return legal

    def _go_to(self, action: Action) -> str:
        self._world.location = self._layout.receptacles[action.item].location
        return f"You arrive at {action.names[0]}. {self._description(action.item)}"

    def _open(self, action: Action) -> str:
        self._world.opened.add(action.item)
        del self._legal_at[self._world.location]
        return f"You open the {action.names[0]}. {self._description(action.item)}"

    def _close(self, action: Action) -> str:
        self._world.opened.discard(action.item)
        del self._legal_at[self._world.location]
        return self._constant(action)

    def _take(self, action: Action) -> str:
        world, item, place = self._world, action.item, action.target
        world.contents[place].discard(item)
        world.taken_from[item].add(place)
        world.object_locations[item].discard(world.location)
        world.held = item
        self._legal_at.clear()
        return self._constant(action)

    def _move(self, action: Action) -> str:
        world, item, place = self._world, action.item, action.target
        world.contents[place].add(item)
        world.taken_from[item].discard(place)
        world.object_locations[item].add(world.location)
        world.held = None
        self._legal_at.clear()
        return self._constant(action)

    def _change_object(self, action: Action) -> str:
        added, removed = _CHANGES[action.verb]
        self._world.states[added].add(action.item)
        if removed is not None:
            self._world.states[removed].discard(action.item)
        return self._constant(action)

    def _inventory(self, action: Action) -> str:
        held = self._world.held
        carried = "not carrying anything" if held is None else f"carrying: a {self._layout.objects[held].name}"
        return f"You are {carried}."

    def _examine_object(self, action: Action) -> str:
        if "isReceptacleObject" in self._layout.objects[action.item].properties:
            inside = text.enumeration_with_articles(self._names_of(self._layout.inside.get(action.item, ())))
            return f"This is a normal {action.names[0]}. In it, you see {inside}."
        states = [state for state, objects in self._world.states.items() if action.item in objects]
        return text.plain_object(action.names[0], states)

    def _constant(self, action: Action) -> str:
        return text.FEEDBACK_TEMPLATES[action.verb].format(*action.names)

    def _description(self, place: int) -> str:
        return text.receptacle(
            self._layout.receptacles[place].name,
            self._names_of(sorted(self._world.contents[place])),
            openable=place in self._layout.openable,
            opened=place in self._world.opened,
        )

    def _surroundings(self) -> str:
        here = self._layout.receptacles_at.get(self._world.location)
        if here is None:
            return text.middle_of_room(())
        return text.facing([self._layout.receptacles[place].name for place in here], self._names_of(self._beside(here)))

    def _beside(self, here: tuple[int, ...]) -> Iterable[int]:
        """Objects here that `look` lists, each once per receptacle in `here` from which it was taken."""
        world = self._world
        for item, sources in enumerate(world.taken_from):
            if sources and world.location in world.object_locations[item]:
                yield from (item for place in here if place in sources)

    def _names_of(self, objects: Iterable[int]) -> Iterable[str]:
        return (self._layout.objects[item].name for item in objects)


_HANDLERS: dict[str, Callable[[Engine, Action], str]] = {
    "close": Engine._close,
    "examine object": Engine._examine_object,
    "examine receptacle": lambda engine, action: engine._description(action.item),
    "go to": Engine._go_to,
    "help": Engine._constant,
    "inventory": Engine._inventory,
    "look": lambda engine, _: engine._surroundings(),
    "move": Engine._move,
    "open": Engine._open,
    "take": Engine._take,
    **dict.fromkeys(_CHANGES, Engine._change_object),
}


class AlfworldEnv:
    """One ALFWorld game, from a `game.tw-pddl` file or a `Game`.

    Observations, admissible commands and success are exactly those of the original simulator. A command that is not
    admissible changes nothing; its observation is "Nothing happens.". The reward is 1 on the winning
    step and 0 otherwise; without `max_steps` an episode ends only when the game is won.

    `info` has the same keys at reset and at each step: `admissible_commands` (sorted, `help` included), `won`,
    `task` (the sentence that states the goal) and `task_type`.

    Example:
        >>> env = AlfworldEnv("game.tw-pddl", max_steps=50)  # doctest: +SKIP
        >>> observation, info = env.reset()  # doctest: +SKIP
        >>> observation, reward, terminated, truncated, info = env.step("go to desk 1")  # doctest: +SKIP
    """

    def __init__(self, game: Game | str | PathLike[str], max_steps: int | None = None) -> None:
        if max_steps is not None and max_steps < 1:
            raise ValueError(f"max_steps is {max_steps}; give a positive number, or None for no limit")
        self.game = game if isinstance(game, Game) else load_game(game)
        self.max_steps = max_steps
        self._engine = Engine(self.game)
        self._steps = 0
        self._running = False

    def reset(self, *, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Start over. The game is deterministic, so every seed gives the same start."""
        self._steps = 0
        self._running = True
        return self._engine.start(), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Apply one command; `RuntimeError` before the first reset and after the end of an episode."""
        check_action(action, self._running)
        observation = self._engine.act(action)
        self._steps += 1
        won = self._engine.won
        truncated = not won and self.max_steps is not None and self._steps >= self.max_steps
        self._running = not (won or truncated)
        return observation, 1.0 if won else 0.0, won, truncated, self._info()

    def state_key(self) -> str:
        """The exact state as text: where the agent is, and what differs from the start of the game."""
        return self._engine.state_key()

    def identity(self) -> dict[str, Any]:
        """SHA-256 of the game file; for a generated game, of the file that `export_game` would write."""
        from hgpo.envs.alfworld.tw_pddl.writing import export_game  # it imports the generator

        return {"game": self.game.digest or hashlib.sha256(export_game(self.game).encode()).hexdigest()}

    def _info(self) -> dict[str, Any]:
        return {
            "admissible_commands": self._engine.commands.copy(),
            "won": self._engine.won,
            "task": self.game.task,
            "task_type": self.game.goal.task_type,
        }
