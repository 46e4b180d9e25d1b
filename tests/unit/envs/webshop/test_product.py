from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from hgpo.envs.webshop.product import parse_prices, read_products

RECORD: dict[str, Any] = {
    "asin": "B1",
    "name": "Mug",
    "full_description": "A mug.",
    "small_description": ["Holds tea", "Blue"],
    "customization_options": {"Color": [{"value": " Navy/Red "}, {"value": "Blue", "image": "x"}], "Size": None},
    "category": "garden",
    "query": " Mugs ",
    "product_category": "Home › Mugs",
    "pricing": "$9.50",
}


def read(*records: Any, attributes: dict[str, Any] | None = None) -> list[Any]:
    return list(read_products(records, attributes or {}, source="items.json", left_out=Counter()))


def test_a_record_becomes_a_product() -> None:
    mug = read(RECORD, attributes={"B1": {"attributes": ["easy clean"]}})[0]
    assert mug.options == {"color": ("navy | red", "blue")}
    assert (mug.prices, mug.price_tag, mug.query, mug.attributes) == ((9.5,), "$9.5", "mugs", ("easy clean",))
    assert mug.indexed_text == "mug a mug. holds tea color: navy | red, blue"


def test_products_without_options_attributes_or_a_list_of_points() -> None:
    for nothing in ("", None, {}):
        plain = read({**RECORD, "customization_options": nothing, "small_description": "Just one"})[0]
        assert plain.options == {}
        assert plain.bullet_points == ("Just one",)
        assert plain.attributes == ("DUMMY_ATTR",)


def test_ids_that_are_left_out() -> None:
    records = [{**RECORD, "asin": asin} for asin in ("B1", "nan", "ELEVENCHARS", "B1", "", "B2")]
    assert [found.asin for found in read(*records)] == ["B1", "B2"]


@pytest.mark.parametrize(
    ("written", "prices"),
    [
        ("$9.99", (9.99,)),
        ("US$12.50", (12.5,)),
        (9.5, (9.5,)),
        (12, (12.0,)),
        (0, (100.0,)),  # as by the published simulator
        ("$1,234.50 to $2,000", (1234.5, 2000.0)),
        ("$5.00 - $7.5", (5.0, 7.5)),
        ("$3 - $4 - $9", (3.0, 4.0)),
        ("", (100.0,)),
        (None, (100.0,)),
    ],
)
def test_prices(written: object, prices: tuple[float, ...]) -> None:
    assert parse_prices(written) == prices


@pytest.mark.parametrize(
    "written",
    ["free", "$", "$cheap", "9,99", "12.50 EUR", "$1.2.3", "-5", -3, True, ["$3"], [9.5], {"value": 3}, float("inf")],
)
def test_what_is_no_price_is_an_error(written: object) -> None:
    with pytest.raises(ValueError, match="contains no price"):
        parse_prices(written)


def test_a_range_is_shown_with_both_ends() -> None:
    assert read({**RECORD, "pricing": "$1,234.50 to $2,000"})[0].price_tag == "$1234.5 to $2000.0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": None}, "no 'name'; every product needs"),
        ({"query": ["mugs"]}, "query is list, not text"),
        ({"query": 10**400}, "query is int, not text"),
        ({"pricing": 10**400}, "contains no price"),
        ({"pricing": "ask"}, "contains no price"),
        ({"pricing": "$" + "9" * 400}, "contains no price"),
        ({"small_description": [None]}, "small_description is not a list of strings: element 0"),
        ({"customization_options": {"color": [{"name": "red"}]}}, "no 'value'"),
    ],
)
def test_a_malformed_record_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        read({**RECORD, "asin": "B0"}, {**RECORD, **change})
    assert "items.json, record 1" in str(error.value)


def test_missing_keys_and_other_things_than_objects() -> None:
    with pytest.raises(ValueError, match=r"record 0 \(B1\): no 'name'"):
        read({key: value for key, value in RECORD.items() if key != "name"})
    with pytest.raises(ValueError, match="a product is a JSON object, not str"):
        read("mug")
