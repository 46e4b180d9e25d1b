"""What customers want: goals drawn from the products' instructions, in the official order of random draws."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hgpo.envs.webshop.product import Product

NO_PRICE_LIMIT = 1_000_000.0
SHUFFLE_SEED = 233
_PRICE_LIMITS = [10.0 * tens for tens in range(1, 100)]


def official_generator(seed: int) -> random.Random:
    """The generator in the state in which the official simulator begins to draw prices after `random.seed(seed)`.

    One word is gone by then: the simulator reports that it has read the products through `rich`, whose modules are
    imported at that moment and draw one number as they start. The recorded sessions agree with this.
    """
    rng = random.Random(seed)
    rng.getrandbits(24)
    return rng


@dataclass(frozen=True, slots=True)
class Goal:
    """One customer's wish: the words the agent reads, and what the reward compares a purchase with.

    Attributes:
        product: position of the product that the goal was made from.
        asin: its id.
        instruction: the sentence that the agent reads.
        attributes: that the product should have.
        options: name -> value for a synthetic goal, a list of values for a human one.
        price_upper: highest price.
        weight: chance to be drawn, relative to other goals.
    """

    product: int
    asin: str
    instruction: str
    attributes: tuple[str, ...]
    options: Mapping[str, str] | Sequence[str]
    price_upper: float
    weight: float = 1.0


def draw_prices(products: Iterable[Product], rng: random.Random) -> list[float]:
    """The price of each product: its own, or one drawn evenly from its range. Draws in the products' order."""
    return [
        product.prices[0] if len(product.prices) == 1 else rng.uniform(product.prices[0], product.prices[1])
        for product in products
    ]


def synthetic_goals(
    products: Sequence[Product], prices: Sequence[float], attributes: Mapping[str, Any], rng: random.Random
) -> list[Goal]:
    """One goal per combination of options of each product that `attributes` holds an instruction for.

    A goal weighs as much as its attributes are rare: the mean of 1 / (number of goals with the attribute).
    """
    goals: list[Goal] = []
    for number, product in enumerate(products):
        facts = attributes.get(product.asin, {})
        instruction = facts.get("instruction")
        if instruction is None:
            continue
        wanted = facts.get("instruction_attributes")
        if not wanted or not are_texts(wanted):
            raise ValueError(f"product {product.asin}: an instruction without a list of texts, instruction_attributes")
        price_upper, price_text = draw_price_limit(prices[number], rng)
        names = sorted(product.options)
        for values in itertools.product(*(product.options[name] for name in names)):
            options = dict(zip(names, values, strict=True))
            wanted_options = ", and ".join(f"{name}: {value}" for name, value in options.items())
            text = f"{instruction}{' with ' + wanted_options if wanted_options else ''}{price_text}"
            goals.append(Goal(number, product.asin, text, tuple(wanted), options, price_upper))
    return _weighted_by_rarity(goals)


def human_goals(
    products: Sequence[Product], prices: Sequence[float], instructions: Mapping[str, Any], rng: random.Random
) -> list[Goal]:
    """The goals that people wrote, all of the same weight; one without attributes is left out.

    `instructions` maps ids to lists of `instruction`, `instruction_attributes` and `instruction_options`.
    """
    goals: list[Goal] = []
    for number, product in enumerate(products):
        for written in instructions.get(product.asin, ()):
            try:
                wanted, options = tuple(written["instruction_attributes"]), list(written["instruction_options"])
                text = written["instruction"].strip(".")
                if not (are_texts(wanted) and are_texts(options)):
                    raise TypeError("instruction_attributes and instruction_options are lists of texts")
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"human instructions of {product.asin}: {error!r}") from error
            if not wanted:
                continue
            price_upper, price_text = draw_price_limit(prices[number], rng)
            goals.append(Goal(number, product.asin, text + price_text, wanted, options, price_upper))
    return goals


def are_texts(value: object) -> bool:
    """Whether it is a list of texts, as a file should hold."""
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)


def in_official_order(goals: Sequence[Goal]) -> list[Goal]:
    """The goals in the official order, which the splits refer to."""
    order = list(goals)
    random.Random(SHUFFLE_SEED).shuffle(order)
    return order


def draw_price_limit(price: float, rng: random.Random) -> tuple[float, str]:
    """The larger of two of the next four multiples of ten, and its words; no limit where fewer than two are left."""
    limits = [limit for limit in _PRICE_LIMITS if limit > price][:4]
    if len(limits) < 2:
        return NO_PRICE_LIMIT, ""
    upper = max(rng.sample(limits, 2))
    return upper, f", and price lower than {upper:.2f} dollars"


def _weighted_by_rarity(goals: Sequence[Goal]) -> list[Goal]:
    counts = Counter(attribute for goal in goals for attribute in goal.attributes)
    return [
        replace(goal, weight=sum(1.0 / counts[name] for name in goal.attributes) / len(goal.attributes))
        for goal in goals
    ]
