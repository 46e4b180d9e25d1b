"""A shop of four products whose every number can be worked out by hand."""

from __future__ import annotations

import numpy as np

from hgpo.envs.webshop import Catalog, Goal, Product


def product(asin: str, title: str, **changes: object) -> Product:
    facts: dict[str, object] = {
        "description": "",
        "bullet_points": ("",),
        "options": {},
        "prices": (10.0,),
        "attributes": ("handmade",),
        "category": "garden",
        "query": "mugs",
        "product_category": "Home › Kitchen › Mugs",
    }
    return Product(asin=asin, title=title, **{**facts, **changes})  # type: ignore[arg-type]


MUG = product(
    "MUG1",
    "Blue Enamel Mug",
    description="Keeps tea warm.",
    bullet_points=("Holds 300 ml", "Dishwasher safe"),
    options={"color": ("blue", "red"), "size": ("small", "large")},
    attributes=("easy clean", "handmade"),
)
OTHER_MUG = product("MUG2", "Red Clay Mug", prices=(20.0, 30.0))
LAMP = product("LAMP1", "Reading Lamp", query="lamps", product_category="Home › Light")
SOAP = product("SOAP1", "Olive Soap", query="soaps", product_category="Beauty › Bath", category="beauty")

GOAL = Goal(0, "MUG1", "find a blue mug", ("easy clean", "dishwasher safe"), {"color": "blue", "size": "small"}, 20.0)
HUMAN_GOAL = Goal(0, "MUG1", "i want a mug", ("handmade",), ["navy blue"], 1_000_000.0)


def small_catalog() -> Catalog:
    return Catalog((MUG, OTHER_MUG, LAMP, SOAP), np.array([10.0, 25.0, 10.0, 10.0]), (GOAL, HUMAN_GOAL))
