"""The texts of ALFWorld: names of objects and the simulator's answers.

Pure functions; `engine.py` has the state. The wording is exactly that of the game files' text grammar, such as "a
apple 1" and "a keychain 3, and a watch 1".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

BANNER = "-= Welcome to TextWorld, ALFRED! =-"
TASK_PREFIX = "Your task is to: "
NOTHING_HAPPENS = "Nothing happens."

HELP = """\
Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""

COMMAND_TEMPLATES = {
    "clean": "clean {0} with {1}",
    "close": "close {0}",
    "cool": "cool {0} with {1}",
    "examine object": "examine {0}",
    "examine receptacle": "examine {0}",
    "go to": "go to {0}",
    "heat": "heat {0} with {1}",
    "help": "help",
    "inventory": "inventory",
    "look": "look",
    "move": "move {0} to {1}",
    "open": "open {0}",
    "slice": "slice {0} with {1}",
    "take": "take {0} from {1}",
    "use": "use {0}",
}

FEEDBACK_TEMPLATES = {
    "clean": "You clean the {0} using the {1}.",
    "close": "You close the {0}.",
    "cool": "You cool the {0} using the {1}.",
    "heat": "You heat the {0} using the {1}.",
    "help": HELP,
    "move": "You move the {0} to the {1}.",
    "slice": "You sliced the {0} with the {1}.",
    "take": "You pick up the {0} from the {1}.",
    "use": "You turn on the {0}.",
}
"""Answers that do not depend on the state. No command turns a lamp off."""


def names_from_ids(ids: Iterable[str]) -> dict[str, str]:
    """Name every id `Kind_bar_<position>` as `kind <number>`.

    Ids are sorted in lower case and each kind is numbered downwards, so the first id in that order carries the
    highest number. The basin of a sink or bathtub (`Sink_bar_..._bar_SinkBasin`) is a separate kind.

    Example: `names_from_ids(["Mug_bar_1", "Mug_bar_2"])` is `{"Mug_bar_1": "mug 2", "Mug_bar_2": "mug 1"}`.
    """
    by_kind: defaultdict[str, list[str]] = defaultdict(list)
    for identifier in sorted(ids, key=str.lower):
        lowered = identifier.lower()
        kind, separator, _ = lowered.partition("_bar_")
        if not separator:
            raise ValueError(f"the id {identifier!r} has no '_bar_'; write it as Kind_bar_<position>")
        by_kind[kind + "basin" if "basin" in lowered else kind].append(identifier)
    return {
        identifier: f"{kind} {len(members) - position}"
        for kind, members in by_kind.items()
        for position, identifier in enumerate(members)
    }


def enumeration(parts: Sequence[str]) -> str:
    """`"x"`, `"x, and y"`, `"x, y, and z"`; `"nothing"` when empty."""
    if not parts:
        return "nothing"
    if len(parts) == 1:
        return parts[0]
    return f"{', '.join(parts[:-1])}, and {parts[-1]}"


def enumeration_with_articles(names: Iterable[str]) -> str:
    """As `enumeration`, with "a" before every name, also before a vowel."""
    return enumeration([f"a {name}" for name in names])


def middle_of_room(receptacles: Iterable[str]) -> str:
    """Answer to `look` in the middle of the room, and the start of a first observation."""
    seen = enumeration_with_articles(receptacles)
    return f"You are in the middle of a room. Looking quickly around you, you see {seen}."


def facing(receptacles: Sequence[str], beside: Iterable[str]) -> str:
    """Answer to `look` in front of one or more receptacles."""
    return f"You are facing the {enumeration(receptacles)}. Next to it, you see {enumeration_with_articles(beside)}."


def receptacle(name: str, contents: Iterable[str], openable: bool, opened: bool) -> str:
    """The contents of a receptacle."""
    if openable and not opened:
        return f"The {name} is closed."
    seen = enumeration_with_articles(contents)
    return f"The {name} is open. In it, you see {seen}." if openable else f"On the {name}, you see {seen}."


def plain_object(name: str, states: Collection[str]) -> str:
    """Answer to `examine` for any other object; `states` are its states of clean, hot, cool, sliced and toggled."""
    clean, sliced = "clean" in states, "sliced" in states
    temperature = "hot" if "hot" in states else "cool" if "cool" in states else ""
    if temperature == "cool" and not clean and not sliced:
        return f"This is a cold {name}."
    adjective = " and ".join(word for word in (temperature, "clean" if clean else "") if word)
    if adjective:
        return f"This is a {adjective}{' sliced' if sliced else ''} {name}."
    if "toggled" in states:
        return f"This {name} is on."
    return f"This is a sliced {name}." if sliced else f"There's nothing special about {name}."
