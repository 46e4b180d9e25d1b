"""A shop in the form of the official WebShop catalogue, with invented goods.

Its two files have the official format, so the same code reads them, words the instructions and writes the pages:
`Find me slim fit women's cardigans with deep pockets with color: navy, and size: large, and price lower than 40.00
dollars`. No content is from the official catalogue: brands and goods are invented. Only the names of the categories are
the same, because examples are chosen by category.
"""

from __future__ import annotations

import json
import random
import string
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hgpo.envs.base import Task
from hgpo.envs.webshop import Catalog, WebShopEnv

PRODUCTS_A_CATEGORY = 150
PAGE_SIZE, RESULTS = 3, 9
"""Fewer than in the published shop, where ten a page would fill the prompt; the pages are the same otherwise."""
_ID_CHARACTERS = string.ascii_uppercase + string.digits
_CENTS = ("49", "95", "99")


@dataclass(frozen=True, slots=True)
class Category:
    """What a part of the shop sells.

    Attributes:
        goods: the search phrases under which they are found, and the names of their options.
        before: attributes that stand before them in an instruction.
        after: attributes that follow them.
        options: values by name; a product has some of each.
    """

    goods: Mapping[str, tuple[str, ...]]
    before: tuple[str, ...]
    after: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]


_COLORS = ("black", "navy", "dark green", "off white", "sand")
CATEGORIES: Mapping[str, Category] = {
    "fashion": Category(
        {"women's cardigans": ("Size", "Color"), "men's raincoats": ("Color",), "men's bathrobes": ("Size", "Color")},
        ("slim fit", "hand wash", "fully lined"),
        ("soft collar", "deep pockets"),
        {"Size": ("small", "medium", "large", "x-large", "xx-large"), "Color": _COLORS},
    ),
    "garden": Category(
        {"bedside lamps": ("Color",), "storage baskets": ("Color", "Size"), "picture shelves": ("Color", "Size")},
        ("space saving", "scratch proof", "hand made"),
        ("wooden base", "brass finish"),
        {"Color": _COLORS, "Size": ("8 inch", "12 inch", "16 inch", "20 inch", "24 inch")},
    ),
    "beauty": Category(
        {"hand creams": ("Scent", "Size"), "face masks": ("Size",), "hair oils": ("Scent", "Size")},
        ("fragrance free", "travel size", "plant based"),
        ("coconut milk", "oat extract"),
        {
            "Scent": ("citrus", "lavender", "cedar", "mint", "rose"),
            "Size": ("1 ounce", "2 ounce", "4 ounce", "6 ounce", "8 ounce"),
        },
    ),
    "electronics": Category(
        {"desk speakers": ("Color", "Style"), "travel headphones": ("Color",), "reading lights": ("Color", "Style")},
        ("water resistant", "light weight", "low noise"),
        ("carrying case", "braided cable"),
        {"Color": _COLORS, "Style": ("basic", "with stand", "set of two", "with adapter", "compact")},
    ),
    "grocery": Category(
        {
            "oat cookies": ("Flavor Name", "Size"),
            "herbal teas": ("Flavor Name",),
            "trail mixes": ("Flavor Name", "Size"),
        },
        ("low sugar", "small batch", "fair trade"),
        ("dried berries", "real ginger"),
        {
            "Flavor Name": ("honey", "maple", "lemon", "cinnamon", "mint"),
            "Size": ("4 ounce", "6 ounce", "12 ounce", "16 ounce", "24 ounce"),
        },
    ),
}
_BRANDS = ("Tolmera", "Norvale", "Quillby", "Ostrand", "Pemberlo", "Haskett", "Veldora", "Mirrow")
_TITLES = (
    "{brand} {goods} with {after}, {before}",
    "{brand} {before} {goods}, {after}",
    "{before} {goods} by {brand} with {after}",
)


def official_tasks(seed: int) -> dict[str, list[Task]]:
    """The tasks of each category, in the official order of the goals."""
    catalog = _catalog(seed)
    tasks: dict[str, list[Task]] = {name: [] for name in CATEGORIES}
    for number, goal in enumerate(catalog.goals):
        category = catalog.products[goal.product].category
        make = partial(WebShopEnv, catalog, "text", goal=number, results=RESULTS, page_size=PAGE_SIZE)
        tasks[category].append(Task(f"official/{number}", category, make))
    return tasks


def _catalog(seed: int) -> Catalog:
    products, attributes = _files(random.Random(seed))
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("items_shuffle.json", "items_ins_v2.json")]
        for path, content in zip(paths, (products, attributes), strict=True):
            path.write_text(json.dumps(content), encoding="utf-8")
        return Catalog.load(*paths, seed=seed)


def _files(rng: random.Random) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The contents of the two files: products, and instructions by product id."""
    products, attributes = [], {}
    for name, category in CATEGORIES.items():
        for _ in range(PRODUCTS_A_CATEGORY):
            lists = (tuple(category.goods), category.before, category.after)
            goods, before, after = (rng.choice(words) for words in lists)
            asin = "B0" + "".join(rng.choices(_ID_CHARACTERS, k=8))
            title = rng.choice(_TITLES).format(brand=rng.choice(_BRANDS), goods=goods, before=before, after=after)
            products.append(
                {
                    "asin": asin,
                    "name": string.capwords(title),
                    "full_description": "",
                    "small_description": [string.capwords(f"{before} and {after}")],
                    "customization_options": {
                        option: _some(category.options[option], rng) for option in category.goods[goods]
                    },
                    "category": name,
                    "query": goods,
                    "product_category": f"{string.capwords(name)} › {string.capwords(goods)}",
                    "pricing": f"${rng.randint(4, 79)}.{rng.choice(_CENTS)}",
                }
            )
            attributes[asin] = {
                "attributes": [before, after],
                "instruction": f"Find me {before} {goods} with {after}",
                "instruction_attributes": [before, after],
            }
    return products, attributes


def _some(values: tuple[str, ...], rng: random.Random) -> list[dict[str, str]]:
    """Three of the values, in their order."""
    chosen = set(rng.sample(values, 3))
    return [{"value": value} for value in values if value in chosen]
