"""Explains the actions of the household games' expert in plain English.

The explanations use only the expert's knowledge: task sentence, observations, and the usual places of objects.
"""

from __future__ import annotations

from playing import NoWords
from wording import Wording, with_article

from hgpo.envs.alfworld.expert import APPLIANCE_OF, PLACES_OF, Sightings, kind_of, parse_task
from hgpo.envs.alfworld.generation.household import OPENABLE_KINDS
from hgpo.envs.base import Info

_LIKELY = 10  # per cent: from here on a place is called a likely one
_HOLLOW = frozenset(kind.lower() for kind in OPENABLE_KINDS) | {"sinkbasin", "bathtubbasin", "garbagecan"}
_STATES = {"clean": "clean", "heat": "hot", "cool": "cool"}

_PLANS = {
    "": (
        "I need to find {thing}, {verb} it with {appliance}, and then bring it to {target}.",
        "There are three things to do: find {thing}, {verb} it with {appliance}, and carry it to {target}.",
    ),
    "pick_and_place_simple": (
        "I need to find {thing} and bring it to {target}.",
        "First I have to find {thing}, then I carry it to {target}.",
    ),
    "look_at_obj_in_light": (
        "I need to find {thing}, carry it to a desklamp and turn the lamp on.",
        "First I look for {thing}, then for a desklamp to see it by.",
    ),
    "pick_two_obj_and_place": (
        "I can carry one thing at a time, so I bring one {kind} to {target} and then fetch a second.",
        "I have to find one {kind}, bring it to {target}, and then do the same with another.",
    ),
}
"""Task type -> wordings of the plan; "" stands for the types that need an appliance."""


class HouseholdNarrator:
    """Explains the commands of one game after the other; `first` is the index of the first wording."""

    def __init__(self, first: int) -> None:
        self._first = first

    def reset(self, info: Info) -> None:
        """Start a game."""
        self._task = parse_task(str(info["task"]))
        self._seen = Sightings(recall=True)
        self._words = Wording(self._first)
        self._placed = 0
        self._turn = 0

    def explain(self, observation: str, info: Info, action: str) -> str:
        """The thought before `action`."""
        self._seen.read(observation, info["admissible_commands"])
        self._turn += 1
        rules = {"go to ": self._go, "open ": self._open, "take ": self._take, "move ": self._move, "use ": self._use}
        for start, rule in rules.items():
            if action.startswith(start):
                return rule(action.removeprefix(start))
        if self._task.verb and action.startswith(f"{self._task.verb} "):
            return self._treat(action)
        raise NoWords(action)

    def _go(self, place: str) -> str:
        task, held = self._task, self._seen.held
        if held is None:
            return self._opening(place) if self._turn == 1 else self._go_looking(task.object_kind, place)
        if self._is_untreated(held):
            wordings = (
                "I have {held} now. To {verb} it I go to {place}.",
                "Now that I hold {held}, I take it to {place} to {verb} it.",
            )
            return self._words.say("to appliance", wordings, held=held, verb=task.verb, place=place)
        if task.task_type == "look_at_obj_in_light":
            return self._go_looking(task.target_kind, place)
        return self._bring(held, place)

    def _opening(self, place: str) -> str:
        task = self._task
        thing = with_article(task.object_kind)
        plan = self._words.say(
            "plan",
            _PLANS["" if task.verb else task.task_type],
            kind=task.object_kind,
            thing=thing,
            verb=task.verb,
            appliance=self._any_of(APPLIANCE_OF.get(task.verb, "")),
            target=self._any_of(task.target_kind),
        )
        if self._share(task.object_kind, place) >= _LIKELY:
            wordings: tuple[str, ...] = (
                "{some_place} is a likely place for {thing}, so I start with {place}.",
                "I start with {place}, where I would expect {thing}.",
            )
        else:
            wordings = ("{place} may hold {thing}, so I start there.",)
        some_place = with_article(kind_of(place))
        return f"{plan} {self._words.say('start', wordings, thing=thing, place=place, some_place=some_place)}"

    def _go_looking(self, kind: str, place: str) -> str:
        here = [thing for thing in self._seen.contents.get(place, ()) if kind_of(thing) == kind]
        if here:
            wordings = (
                "I remember {thing} {at}, so I go back there.",
                "I saw {thing} {at} before, so I go straight to it.",
            )
            reason = self._words.say("remember", wordings, thing=here[0], at=_at(place))
        else:
            reason = self._reason_to_look(kind, place)
        return f"{self._so_far(kind)} {reason}"

    def _so_far(self, kind: str) -> str:
        """The result of the search before this move."""
        last, held = self._seen.last_visited, self._seen.held
        if last is not None and self._seen.count(kind, last):
            raise NoWords(f"leaves {last}, which has what is wanted")
        if last is not None:
            wordings: tuple[str, ...] = (
                "There is no {kind} {at}{but}.",
                "No {kind} {at}{but}.",
                "{place} has no {kind}{but}.",
            )
            return self._words.say("not here", wordings, kind=kind, place=last, at=_at(last), but=self._for_later(last))
        if held is not None:
            return self._words.say("need lamp", ("I have {held}, and now I need a {kind}.",), held=held, kind=kind)
        wordings = ("The first {kind} is in its place, and now I need another.", "One {kind} is done, one is missing.")
        return self._words.say("second", wordings, kind=kind)

    def _for_later(self, place: str) -> str:
        """A remark on a lamp that was seen during the search for the object; "" without one."""
        if self._task.task_type != "look_at_obj_in_light":
            return ""
        lamp = self._lamp_at(place)
        return f", but {lamp}, which I need later" if lamp else ""

    def _reason_to_look(self, kind: str, place: str) -> str:
        share = self._share(kind, place)
        if share >= _LIKELY:
            wordings: tuple[str, ...] = (
                "{thing} may well be {at_kind}, so I try {place} next.",
                "{place} is a likely place, so I look there next.",
                "Next I go to {place}, where I would expect {thing}.",
            )
        elif share:
            wordings = ("Next I try {place}, which may hold {thing}.", "{place} is worth a look.")
        else:
            wordings = ("I have not looked {at} yet, so I go there next.",)
        at_kind = _at(with_article(kind_of(place)))
        return self._words.say(
            f"look {share >= _LIKELY}", wordings, thing=with_article(kind), place=place, at=_at(place), at_kind=at_kind
        )

    def _bring(self, held: str, place: str) -> str:
        if self._task.verb:
            wordings = (
                "{held} is {state} now, so I bring it to {place}.",
                "That made {held} {state}. What is left is to put it {at}.",
            )
        else:
            wordings = ("I have {held}, so I bring it to {place} now.", "With {held} in my hand I go to {place}.")
        return self._words.say("bring", wordings, held=held, state=self._state(), place=place, at=_at(place))

    def _open(self, place: str) -> str:
        held = self._seen.held
        if held is None or self._task.task_type == "look_at_obj_in_light":
            wanted = self._task.object_kind if held is None else self._task.target_kind
            wordings = (
                "{place} is closed, so I open it to see whether there is {thing} inside.",
                "I cannot see into {place} while it is closed. I open it.",
            )
            return self._words.say("open", wordings, place=place, thing=with_article(wanted))
        if self._is_untreated(held):
            raise NoWords(f"opens {place} on the way")
        return self._words.say(
            "open to put", ("{place} is closed. I open it to put {held} in.",), place=place, held=held
        )

    def _take(self, thing_and_place: str) -> str:
        thing, _, place = thing_and_place.partition(" from ")
        if thing not in self._seen.contents.get(place, ()):
            raise NoWords(f"takes {thing}, which was not seen")
        wordings = (
            "I see {thing} {at}. I take it{then}.",
            "Here is {thing}, just what I need. I pick it up{then}.",
            "{thing} is {at}, so I take it{then}.",
        )
        return self._words.say("take", wordings, thing=thing, at=_at(place), then=self._then(place))

    def _then(self, place: str) -> str:
        """The next part of the task after taking, if it is easily forgotten."""
        if self._task.verb:
            return f" and will {self._task.verb} it before I put it anywhere"
        if self._task.task_type != "look_at_obj_in_light":
            return ""
        lamp = self._lamp_at(place)
        return f" and will turn on {lamp}, which is here, too" if lamp else " and will need a desklamp next"

    def _lamp_at(self, place: str) -> str | None:
        lamps = (thing for thing in self._seen.contents.get(place, ()) if kind_of(thing) == self._task.target_kind)
        return next(lamps, None)

    def _treat(self, action: str) -> str:
        thing, _, appliance = action.removeprefix(f"{self._task.verb} ").partition(" with ")
        if thing != self._seen.held:
            raise NoWords(f"treats {thing}, which is not held")
        wordings = (
            "I am at {appliance} and hold {held}, so I can {verb} it now.",
            "{appliance} is right here, and I hold {held}. I {verb} it.",
        )
        return self._words.say("treat", wordings, appliance=appliance, held=thing, verb=self._task.verb)

    def _move(self, thing_and_place: str) -> str:
        thing, _, place = thing_and_place.partition(" to ")
        if thing != self._seen.held or kind_of(place) != self._task.target_kind:
            raise NoWords(f"puts {thing} somewhere else")
        self._placed += 1
        names = {"thing": thing, "kind": self._task.object_kind, "at": _at(place), "state": self._state()}
        if self._task.task_type != "pick_two_obj_and_place":
            wordings = (
                "{thing} is {state} and I am where it should go. Putting it {at} finishes the task."
                if self._task.verb
                else "I am where {thing} should go. Putting it {at} finishes the task.",
                "All that is left is to put {thing} {at}.",
            )
            return self._words.say("put", wordings, **names)
        if self._placed == 1:
            return self._words.say("put first", ("I put {thing} {at}. Then I need a second {kind}.",), **names)
        return self._words.say(
            "put second", ("{thing} is the second {kind}. Putting it {at} finishes the task.",), **names
        )

    def _use(self, lamp: str) -> str:
        held = self._seen.held
        if held is None or not any(lamp in things for things in self._seen.contents.values()):
            raise NoWords(f"uses {lamp} with nothing to look at, or unseen")
        wordings = (
            "{lamp} is here and I hold {held}. Turning the lamp on lets me look at it in the light.",
            "I hold {held} and stand at {lamp}, so turning it on finishes the task.",
        )
        return self._words.say("use", wordings, lamp=lamp, held=held)

    def _is_untreated(self, held: str) -> bool:
        verb = self._task.verb
        return bool(verb) and verb not in self._seen.treatments.get(held, ())

    def _state(self) -> str:
        return _STATES.get(self._task.verb, "")

    def _share(self, kind: str, place: str) -> int:
        return PLACES_OF.get(kind, {}).get(kind_of(place), 0)

    def _any_of(self, kind: str) -> str:
        """`"the fridge"` where there is one, `"a drawer"` where there are several."""
        several = sum(kind_of(place) == kind for place in self._seen.places) > 1
        return with_article(kind) if several else f"the {kind}"


def _at(place: str) -> str:
    """`"on desk 1"`, `"in drawer 2"`, `"in a drawer"`."""
    return f"{'in' if not _HOLLOW.isdisjoint(place.split()) else 'on'} {place}"
