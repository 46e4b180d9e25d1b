"""The published reward of WebShop and its parts.

    reward = r_type · (attribute hits + option hits + [price ≤ limit]) / (attributes + options + 1)

`r_type` is the factor for the product's type. The rules, with their oddities, are the published simulator's: a title
without any common noun gives 0 even if the query is the same, and an option of a synthetic goal is compared as "name
value" unless its value is a plain colour.

Phrases are compared by the token set ratio of `thefuzz`, which rounds to whole per cents and drops non-ASCII text; it
is implemented here to avoid the dependency.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

from hgpo.envs.webshop.goals import Goal
from hgpo.envs.webshop.nouns import NounTagger
from hgpo.envs.webshop.product import Product
from hgpo.utils.text import common_subsequence

_NOT_A_WORD = re.compile(r"[\W_]")


@lru_cache(maxsize=1 << 16)
def token_set_ratio(one: str, other: str) -> int:
    """Per cent, 0 to 100, of agreement between the sets of words of two phrases; 0 if one has no words.

    With I the words in both and A, B the words in one only (each sorted and joined), it is the largest ratio of
    (I, I+A), (I, I+B) and (I+A, I+B); a phrase whose words are all in the other scores 100.

    Example: `token_set_ratio("long sleeve", "sleeve, long and warm") == 100`.
    """
    words, others = set(_words(one)), set(_words(other))
    if not words or not others:
        return 0
    common = " ".join(sorted(words & others))
    if common and (words <= others or others <= words):
        return 100
    full = f"{common} {' '.join(sorted(words - others))}".strip()
    full_other = f"{common} {' '.join(sorted(others - words))}".strip()
    best = _ratio(full, full_other)
    if common:
        best = max(best, _ratio(common, full), _ratio(common, full_other))
    return round(best)


def _words(phrase: str) -> list[str]:
    return _NOT_A_WORD.sub(" ", phrase.encode("ascii", "ignore").decode()).lower().split()


def _ratio(one: str, other: str) -> float:
    """100 minus the per cent of characters to delete from both to make them equal; results ending in .5 are exact."""
    places: dict[str, int] = {}
    for position, character in enumerate(one):
        places[character] = places.get(character, 0) | 1 << position
    total = len(one) + len(other)
    return 100.0 - 100.0 * (total - 2 * common_subsequence(places, len(one), other)) / total


MATCH_ABOVE = 85
_COLORS = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo
caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal
dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather indigo ivory
ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor mushroom
mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal rust sand sapphire
seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet walnut wheat white
wine yellow
"""
COLORS = tuple(_COLORS.split())
"""The colours of the published rule, in its order: the first that a text contains represents it."""


@dataclass(frozen=True, slots=True)
class RewardParts:
    """A purchase's reward and its parts, named as in the published rule.

    Attributes:
        reward: `r_type` times the share of attributes, options and the price bound that are met, 0-1.
        r_type: factor for the type of product: 0, 0.1, 0.5 or 1.
        query_match: whether both products were collected under the same search phrase.
        category_match: whether they share at least two categories.
        title_score: share of the wanted title's nouns in the bought product's title.
        attribute_hits: number of wanted attributes that are met.
        attributes: number of wanted attributes.
        option_hits: number of wanted options that are met.
        options: number of wanted options.
        price_ok: whether the price is within the goal's bound.
    """

    reward: float
    r_type: float
    query_match: bool
    category_match: bool
    title_score: float
    attribute_hits: int
    attributes: int
    option_hits: int
    options: int
    price_ok: bool


def score_purchase(
    product: Product, wanted: Product, goal: Goal, price: float, chosen: Mapping[str, str], nouns: NounTagger
) -> RewardParts:
    """The reward of buying `product` at `price` with the options `chosen`.

    `wanted` is the goal's product. Without attributes and options in a goal, only the price and the type count.
    """
    query_match = product.query == wanted.query
    category_match = len(_categories(product) & _categories(wanted)) >= 2
    title_score = _title_score(nouns(product.title), nouns(wanted.title))
    r_type = _type_factor(query_match or category_match, title_score)
    attribute_hits = sum(_has_attribute(product, attribute) for attribute in goal.attributes)
    option_hits = _count_option_hits(chosen.values(), goal)
    price_ok = price <= goal.price_upper
    most = len(goal.attributes) + len(goal.options) + 1
    return RewardParts(
        reward=(attribute_hits + option_hits + price_ok) / most * r_type,
        r_type=r_type,
        query_match=query_match,
        category_match=category_match,
        title_score=title_score,
        attribute_hits=attribute_hits,
        attributes=len(goal.attributes),
        option_hits=option_hits,
        options=len(goal.options),
        price_ok=price_ok,
    )


def normalise_color(text: str) -> str:
    """The first of the known colours that is part of the text, or the text: `"dark red"` -> `"dark"`."""
    return next((color for color in COLORS if color in text), text)


def _categories(product: Product) -> set[str]:
    return {part.strip() for part in product.product_category.split("›")}


def _title_score(found: tuple[str, ...], wanted: tuple[str, ...]) -> float:
    """Number of different common nouns divided by the number of nouns in the wanted title; 0.2 if it has none."""
    return len(set(found) & set(wanted)) / len(wanted) if wanted else 0.2


def _type_factor(related: bool, title_score: float) -> float:
    if title_score == 0:
        return 0.0
    if title_score < 0.1:
        return 0.1
    return 1.0 if related or title_score > 0.2 else 0.5


def _has_attribute(product: Product, attribute: str) -> bool:
    if any(token_set_ratio(own, attribute) > MATCH_ABOVE for own in product.attributes):
        return True
    texts = (product.title, " ".join(product.bullet_points), product.description)
    return any(attribute in text.lower() for text in texts)


def _count_option_hits(chosen: Collection[str], goal: Goal) -> int:
    own = [normalise_color(value) for value in chosen]
    if isinstance(goal.options, Mapping):
        wanted = [_as_compared(name, value) for name, value in goal.options.items()]
    else:
        wanted = [normalise_color(value) for value in goal.options]
    return sum(any(token_set_ratio(value, other) > MATCH_ABOVE for value in own) for other in wanted)


def _as_compared(name: str, value: str) -> str:
    """The text of a wanted option for the comparison.

    The published rule searches a colour *among* (name, value), not within either, and otherwise uses the pair's Python
    notation.
    """
    return next((color for color in COLORS if color in (name, value)), repr((name, value)))
