"""What generated shops sell, in words of the project's own: kinds of things, what can be said of them, their options.

No word is contained in another of its list or nearly equal to one, so that a hit of the reward's fuzzy comparison is a
hit of the word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Department:
    """A part of the shop.

    Attributes:
        kinds: what it sells -> the names of its options.
        attributes: words that fit all of them.
    """

    kinds: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]


def _department(kinds: str, attributes: str) -> Department:
    entries = (entry.partition(":") for entry in kinds.split())
    return Department(
        {kind: tuple(filter(None, names.split(","))) for kind, _, names in entries}, (*attributes.split(),)
    )


DEPARTMENTS: Mapping[str, Department] = {
    "clothing": _department(
        "scarf:color shirt:color,size jacket:color,size hat:color sock:size dress:color,size belt:size mitten:color",
        "wool cotton silk thick striped plain knitted hooded",
    ),
    "kitchen": _department(
        "mug:color kettle:color pan:size bowl:color,size knife: jar:size tray:color ladle:",
        "ceramic glass wooden enamel heavy carved matte copper",
    ),
    "home": _department(
        "lamp:color rug:color,size cushion:color,size curtain:color,size mirror:size shelf:color stool:color clock:",
        "modern rustic round soft folding oak padded narrow",
    ),
    "pantry": _department(
        "tea:pack coffee:pack honey:pack soap:pack candle:color,pack vinegar:pack rice:pack noodle:pack",
        "organic smoked raw sweet strong fresh mild golden",
    ),
}

OPTION_VALUES: Mapping[str, tuple[str, ...]] = {
    "color": ("red", "blue", "green", "black", "white", "brown", "yellow", "purple"),
    "size": ("small", "medium", "large"),
    "pack": ("single", "double", "family"),
}

PRAISE = ("made to last", "a good gift", "easy to care for", "from a small workshop", "loved by many", "new this year")
