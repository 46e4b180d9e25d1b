"""Goals, drawn from the products' instructions as in the official simulator."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hgpo.envs.webshop.product import Product, as_text, given, option_value, texts

NO_PRICE_LIMIT = 1_000_000.0
SHUFFLE_SEED = 233
_PRICE_LIMITS = [10.0 * tens for tens in range(1, 100)]


def official_generator(seed: int) -> random.Random:
    """The generator in the state in which the official simulator draws the first price after `random.seed(seed)`.

    One number is drawn before: the simulator prints through `rich`, whose modules draw it when they are imported. The
    recorded sessions agree with this.
    """
    rng = random.Random(seed)
    rng.getrandbits(24)
    return rng


@dataclass(frozen=True, slots=True)
class Goal:
    """The instruction of a session, and the values that the reward compares a purchase with.

    Attributes:
        product: position of the goal's product.
        asin: its id.
        instruction: the sentence that the agent reads.
        attributes: attributes of the wanted product.
        options: name -> value, or, in a human goal, possibly a list of values.
        price_upper: price limit.
        weight: relative probability of being drawn.
    """

    product: int
    asin: str
    instruction: str
    attributes: tuple[str, ...]
    options: Mapping[str, str] | Sequence[str]
    price_upper: float
    weight: float = 1.0


def draw_prices(products: Iterable[Product], rng: random.Random) -> list[float]:
    """The price of each product: its own, or a uniform draw from its range, in the products' order."""
    return [
        product.prices[0] if len(product.prices) == 1 else rng.uniform(product.prices[0], product.prices[1])
        for product in products
    ]


NO_ATTRIBUTES = "goals without attributes"


def synthetic_goals(
    products: Sequence[Product],
    prices: Sequence[float],
    attributes: Mapping[str, Any],
    rng: random.Random,
    left_out: Counter[str],
) -> list[Goal]:
    """One goal per combination of options of each product with an instruction in `attributes`.

    A goal's weight is the mean of 1 / (number of goals with the attribute) over its attributes. An instruction without
    attributes is left out and counted in `left_out`.
    """
    goals: list[Goal] = []
    for number, product in enumerate(products):
        facts = attributes.get(product.asin, {})
        instruction = given(facts, "instruction")
        if instruction is None:
            continue
        wanted = texts(given(facts, "instruction_attributes") or (), f"instruction_attributes of {product.asin}")
        if not wanted:
            left_out[NO_ATTRIBUTES] += 1
            continue
        instruction = as_text(instruction, f"instruction of {product.asin}")
        price_upper, price_text = draw_price_limit(prices[number], rng)
        names = sorted(product.options)
        for values in itertools.product(*(product.options[name] for name in names)):
            options = dict(zip(names, values, strict=True))
            wanted_options = ", and ".join(f"{name}: {value}" for name, value in options.items())
            text = f"{instruction}{' with ' + wanted_options if wanted_options else ''}{price_text}"
            goals.append(Goal(number, product.asin, text, wanted, options, price_upper))
    return _weighted_by_rarity(goals)


def human_goals(
    products: Sequence[Product],
    prices: Sequence[float],
    instructions: Mapping[str, Any],
    rng: random.Random,
    left_out: Counter[str],
) -> list[Goal]:
    """The goals that people wrote, all of the same weight; one without attributes is left out and counted.

    `instructions` maps product ids to lists of objects with `instruction`, `instruction_attributes` and
    `instruction_options`: a list of values, or names with values, which the reward compares as (name, value).
    """
    goals: list[Goal] = []
    for number, product in enumerate(products):
        entry = instructions.get(product.asin, ())
        for place, written in enumerate([entry] if isinstance(entry, Mapping) else entry):
            try:
                wanted = texts(written["instruction_attributes"] or (), "instruction_attributes")
                if not wanted:
                    left_out[NO_ATTRIBUTES] += 1
                    continue
                options = _wanted_options(given(written, "instruction_options"))
                text = as_text(written["instruction"], "instruction").strip(".")
            except (KeyError, TypeError, ValueError) as error:
                detail = f"no {error}" if isinstance(error, KeyError) else error
                raise ValueError(f"human instructions of {product.asin}, number {place}: {detail}") from error
            price_upper, price_text = draw_price_limit(prices[number], rng)
            goals.append(Goal(number, product.asin, text + price_text, wanted, options, price_upper))
    return goals


def _wanted_options(contents: Any) -> Mapping[str, str] | list[str]:
    """The options of a goal: a list of values, or a mapping of names to values."""
    key = "instruction_options"
    if not contents or not isinstance(contents, Mapping):
        return list(texts(contents or (), key))
    singles = {
        name: value[0] if isinstance(value, list) and len(value) == 1 else value for name, value in contents.items()
    }
    return {name: option_value(value, f"{key}: the value of {name!r}") for name, value in singles.items()}


def in_official_order(goals: Sequence[Goal]) -> list[Goal]:
    """The goals in the official order, which the splits refer to."""
    order = list(goals)
    random.Random(SHUFFLE_SEED).shuffle(order)
    return order


def draw_price_limit(price: float, rng: random.Random) -> tuple[float, str]:
    """The larger of two of the next four multiples of ten (up to 990), and its text; no limit if fewer than two."""
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
