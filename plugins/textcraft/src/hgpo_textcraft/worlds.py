"""Generated worlds: recipes in layers, reproducible by seed; every item can be made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as checked_dataclass

from hgpo_textcraft.recipe_book import Ingredient, Recipe, RecipeBook, item_id


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


RAW = _words(
    "amber ash bark basalt bone cedar chalk clay coal copper cotton elm fern fleece flint fur gravel hemp horn ivy "
    "jade kelp lead lime marble moss oak peat pine quartz reed resin rubber rush salt sand shell silver slate straw "
    "tallow tin wax willow "
)
"""Names of the items that are fetched."""

MADE = _words(
    "anchor awl axle basket beam bell bellows bench blade board bolt bowl box brick broom brush bucket button cage "
    "candle cart chain chair chest chisel clamp clock cloth comb cord crate crown cup desk dial door drum fan fence "
    "flask flute frame gate gear glue hammer handle harp hinge hook horseshoe jar kite knife ladder lamp lantern "
    "latch lens lever lock loom mallet mask mast mill mirror mortar mug nail needle net oar oven paddle pan panel "
    "paper peg pipe plate plough pot press pulley rail rake ring rod roof rope rug saddle sail saw scale screw "
    "shelf shield shovel shutter sieve sign sled spade spool spring staff stool stove strap table tent tile torch "
    "tray trowel vase vat wagon wheel whistle wire "
)
"""Names of the items that are crafted."""

KINDS = _words(
    "carved cast dyed fine forged glazed heavy joined light long mended old painted plain polished rough short sturdy "
)
"""First words of crafted items whose names have two words."""


@checked_dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class WorldSize:
    """The size of a world.

    Attributes:
        raw: number of items that are fetched.
        layers: number of layers of crafted items.
        width: crafted items in each layer.
        ingredients: most kinds of items in a recipe; at least one is from the layer below.
        most: largest count of one ingredient.
        groups: number of the first layer's items that come in two interchangeable variants.
        distractors: most commands that a task lists and does not need.
        words: words in the name of a crafted item, 1 or 2.
        vocabulary: number of words that names are drawn from, the same in all worlds. A small model learns sooner from
            few words.
    """

    raw: Annotated[int, Field(ge=1, le=len(RAW))] = 6
    layers: Annotated[int, Field(ge=2, le=8)] = 2
    width: Annotated[int, Field(ge=1, le=40)] = 4
    ingredients: Annotated[int, Field(ge=1, le=6)] = 2
    most: Annotated[int, Field(ge=1, le=64)] = 3
    groups: Annotated[int, Field(ge=0)] = 0
    distractors: Annotated[int, Field(ge=0, le=100)] = 3
    words: Annotated[int, Field(ge=1, le=2)] = 1
    vocabulary: Annotated[int, Field(ge=1, le=len(MADE))] = len(MADE)

    def __post_init__(self) -> None:
        if self.groups > self.width:
            raise ValueError(f"world size: groups = {self.groups}; give at most width, {self.width}")
        crafted = self.layers * self.width + self.groups
        raw_names = min(self.vocabulary, len(RAW))
        names = self.vocabulary * (len(KINDS) if self.words == 2 else 1)
        if crafted > names or self.raw > raw_names:
            raise ValueError(
                f"world size: {self.raw} raw and {crafted} crafted items, but there are {raw_names} and {names} names; "
                "make raw, layers or width smaller, or vocabulary larger"
            )


SIZES: Mapping[str, WorldSize] = {
    "small": WorldSize(),
    "medium": WorldSize(raw=12, layers=3, width=6, most=4, groups=1, distractors=8, words=2),
    "large": WorldSize(raw=24, layers=4, width=16, ingredients=3, most=2, groups=3, distractors=10, words=2),
}


@dataclass(frozen=True, slots=True)
class World:
    """A recipe book and the goals: the items of the second layer and above, in random order."""

    book: RecipeBook
    goals: tuple[str, ...]


@lru_cache(maxsize=64)
def generate_world(size: WorldSize, seed: int, number: int) -> World:
    """World `number` of a seed; equal arguments give the same world."""
    rng = np.random.default_rng((seed, number))
    raw = [item_id(str(word)) for word in rng.choice(RAW[: size.vocabulary], size.raw, replace=False)]
    names = iter(_crafted_names(size, rng))
    recipes: list[Recipe] = []
    below = [Ingredient(item, 1) for item in raw]
    known = list(below)
    for layer in range(size.layers):
        made: list[Ingredient] = []
        for place in range(size.width):
            if layer == 0 and place < size.groups:
                made.append(_add_group(next(names), recipes, known, size, rng))
            else:
                item = next(names)
                recipes.append(_recipe(item, below, known, size, rng, yields=layer == 0))
                made.append(Ingredient(item, 1))
        below = made
        known = list({part.id: part for part in (*known, *made)}.values())  # two groups may have one name
    goals = [recipe.item for recipe in recipes[-size.width * (size.layers - 1) :]]
    book = RecipeBook(recipes, items=raw, groups={recipe.group for recipe in recipes if recipe.group is not None})
    return World(book, tuple(goals[place] for place in rng.permutation(len(goals))))


def _crafted_names(size: WorldSize, rng: np.random.Generator) -> list[str]:
    made = MADE[: size.vocabulary]
    names = made if size.words == 1 else [f"{kind} {word}" for kind, word in product(KINDS, made)]
    chosen = rng.choice(names, size.layers * size.width + size.groups, replace=False)
    return [item_id(str(name)) for name in chosen]


def _add_group(
    name: str, recipes: list[Recipe], known: list[Ingredient], size: WorldSize, rng: np.random.Generator
) -> Ingredient:
    """Two variants of one item, such as `oak plate` and `elm plate`; recipes above take either as `plates`."""
    word = name.rsplit("_", 1)[-1].removeprefix(item_id(""))
    group = item_id(f"{word}s")
    for raw in rng.choice([part.id for part in known], min(2, len(known)), replace=False):
        item = f"{raw}_{word}"
        recipes.append(Recipe(item, 1, (Ingredient(str(raw), _amount(size, rng)),), group))
    return Ingredient(group, 1, is_group=True)


def _recipe(
    item: str,
    below: list[Ingredient],
    known: list[Ingredient],
    size: WorldSize,
    rng: np.random.Generator,
    *,
    yields: bool,
) -> Recipe:
    """A recipe of one item; with `yields` one craft may make two."""
    kinds = int(rng.integers(1, min(size.ingredients, len(known)) + 1))
    first = below[int(rng.integers(len(below)))]
    others = [part for part in known if part.id != first.id]
    drawn = rng.choice(len(others), kinds - 1, replace=False)
    parts = [first, *(others[number] for number in drawn)]
    taken = tuple(Ingredient(part.id, _amount(size, rng), part.is_group) for part in parts)
    return Recipe(item, int(rng.integers(1, 3)) if yields else 1, taken)


def _amount(size: WorldSize, rng: np.random.Generator) -> int:
    return int(rng.integers(1, size.most + 1))
