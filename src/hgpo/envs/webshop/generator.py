"""Generates shops of any size, reproducible by seed, with goals that their products fulfil. Tables: `shop.toml`."""

from __future__ import annotations

import itertools
import random
import string
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from hgpo.envs.base import named_size
from hgpo.envs.webshop import goals as goal_rules
from hgpo.envs.webshop.catalog import Catalog
from hgpo.envs.webshop.goals import Goal
from hgpo.envs.webshop.product import Product

_TABLES = tomllib.loads((files(__package__) / "shop.toml").read_text(encoding="utf-8"))
DEPARTMENTS: Mapping[str, Mapping[str, Any]] = _TABLES["departments"]
"""Name -> `kinds`, each with the names of its options, and `attributes`, words that describe any of its products."""
OPTION_VALUES: Mapping[str, Sequence[str]] = _TABLES["option_values"]
PRAISE: Sequence[str] = _TABLES["praise"]
_SYLLABLES = [first + vowel for first in "bdfgklmnprstvz" for vowel in "aeiou"]


@dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class ShopSize:
    """The size of a shop.

    Attributes:
        products: number of products.
        kinds: number of kinds of products.
        attributes: number of attribute words before the kind in a title.
        values: maximum number of values of an option.
        page_size: number of products on a page of results.
        results: maximum number of products that a search finds.
        attribute_words: number of words per department from which titles draw their attributes.
        description_words: number of invented words in each description, to put load on the search engine.
    """

    products: Annotated[int, Field(ge=1, le=10**9)]
    kinds: Annotated[int, Field(ge=1, le=sum(len(department["kinds"]) for department in DEPARTMENTS.values()))]
    attributes: Annotated[int, Field(ge=1)]
    values: Annotated[int, Field(ge=1, le=8)]
    page_size: Annotated[int, Field(ge=1, le=100)]
    results: Annotated[int, Field(ge=1, le=1000)]
    attribute_words: Annotated[int, Field(ge=1, le=8)] = 8
    description_words: Annotated[int, Field(ge=0, le=10_000)] = 0

    def __post_init__(self) -> None:
        if self.attributes > self.attribute_words:
            raise ValueError(f"attributes = {self.attributes}; give at most attribute_words, {self.attribute_words}")


SIZES: Mapping[str, ShopSize] = {
    "small": ShopSize(products=40, kinds=5, attributes=1, attribute_words=4, values=2, page_size=3, results=9),
    "medium": ShopSize(products=120, kinds=12, attributes=2, attribute_words=6, values=3, page_size=4, results=12),
    "large": ShopSize(products=1000, kinds=32, attributes=2, values=4, page_size=10, results=50, description_words=40),
}


def shop_size(size: str | Mapping[str, Any] | ShopSize) -> ShopSize:
    """A size by name or by its numbers; missing ones are those of "small"."""
    return named_size(size, SIZES, asdict(SIZES["small"]))


def generate_catalog(
    size: str | ShopSize | Mapping[str, Any] = "small", seed: int = 0, shop: int = 0, *, nouns: str = "blank"
) -> Catalog:
    """Shop number `shop` of a seed, with a goal for every combination of each product's options.

    Instructions such as `wool scarf , color blue , price under 30` are unique in a shop.
    """
    size = shop_size(size)
    rng = random.Random(f"{seed}/{shop}")
    products = tuple(_products(size, rng))
    prices = [product.prices[0] for product in products]
    goals = [goal for number in range(len(products)) for goal in _goals(number, products[number], rng)]
    rng.shuffle(goals)
    different = {goal.instruction: goal for goal in goals}
    return Catalog(products, np.array(prices), tuple(different.values()), nouns=nouns)


def _products(size: ShopSize, rng: random.Random) -> Iterator[Product]:
    kinds = [(name, kind) for name, department in DEPARTMENTS.items() for kind in department["kinds"]]
    sold = rng.sample(kinds, size.kinds)
    words = {name: rng.sample(sorted(DEPARTMENTS[name]["attributes"]), size.attribute_words) for name, _ in sold}
    invented = np.random.default_rng(rng.getrandbits(64))
    for asin in _ids(size.products, rng):
        name, kind = rng.choice(sold)
        attributes = tuple(rng.sample(words[name], size.attributes))
        options = {option: _values(option, size.values, rng) for option in DEPARTMENTS[name]["kinds"][kind]}
        yield Product(
            asin=asin,
            title=" ".join([*attributes, kind]),
            description=_invented_text(size.description_words, invented),
            bullet_points=(rng.choice(PRAISE),),
            options=options,
            prices=(float(rng.randint(4, 79)),),
            attributes=attributes,
            category=name,
            query=f"{kind}s",
            product_category=f"{name} › {kind}s",
        )


def _values(option: str, most: int, rng: random.Random) -> tuple[str, ...]:
    values = OPTION_VALUES[option]
    chosen = rng.sample(range(len(values)), min(most, len(values)))
    return tuple(values[number] for number in sorted(chosen))


def _goals(number: int, product: Product, rng: random.Random) -> Iterator[Goal]:
    upper, _ = goal_rules.draw_price_limit(product.prices[0], rng)
    for values in itertools.product(*product.options.values()):
        options = dict(zip(product.options, values, strict=True))
        wanted = [f"{name} {value}" for name, value in options.items()]
        instruction = " , ".join([product.title, *wanted, f"price under {upper:g}"])
        yield Goal(number, product.asin, instruction, product.attributes, options, upper)


def _ids(count: int, rng: random.Random) -> Sequence[str]:
    """Random ids: a letter, with digits if there are more than 26 products."""
    digits = 0
    while 26 * 10**digits < count:
        digits += 1
    numbers = [divmod(number, 10**digits) for number in rng.sample(range(26 * 10**digits), count)]
    return [string.ascii_uppercase[letter] + f"{rest:0{digits}}"[:digits] for letter, rest in numbers]


def _invented_text(words: int, rng: np.random.Generator) -> str:
    """Invented words with Zipf-distributed frequencies."""
    return " ".join(map(_word_of_rank, np.minimum(rng.zipf(1.2, words), 10**6).tolist()))


def _word_of_rank(rank: int) -> str:
    word = ""
    while rank:
        rank, rest = divmod(rank, len(_SYLLABLES))
        word += _SYLLABLES[rest]
    return word
