"""Products, and how they are read from the official catalogue files.

Large JSON files are read record by record. Errors name the file and the record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, TextIO

_CHUNK = 1 << 22  # characters
_LARGEST_RECORD = 1 << 26


def read_mapping(path: Path) -> Mapping[str, Any]:
    """A JSON object whose values are objects or lists. `ValueError` for anything else."""
    with _opened(path) as file:
        try:
            content = json.load(file)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: holds a {type(content).__name__}, expected an object with one entry per product")
    for key, value in content.items():
        if not isinstance(value, dict | list):
            raise ValueError(f"{path}: the entry of {key!r} is {type(value).__name__}, expected an object or a list")
    return content


def iterate_records(path: Path) -> Iterator[Any]:
    """The elements of a JSON list, one at a time, with the memory of a few elements.

    `ValueError` for an invalid list, with the number of the element.
    """
    with _opened(path) as file:
        reader = _Reader(file)
        number = 0
        try:
            reader.take("[", "a list of products")
            while reader.next_character() != "]":
                if number:
                    reader.take(",", "a comma or the end of the list")
                yield reader.value()
                number += 1
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError, _NotAList) as error:
            raise ValueError(f"{path}, element {number}: not a valid JSON list ({error})") from error


class _NotAList(Exception):
    """The file is not a JSON list."""


class _Reader:
    """Reads JSON values from a file, a chunk at a time."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._buffer = ""
        self._position = 0
        self._decoder = json.JSONDecoder()

    def next_character(self) -> str:
        """The next character after white space; empty at the end of the file."""
        while True:
            while self._position < len(self._buffer):
                if not self._buffer[self._position].isspace() and self._buffer[self._position] != "\ufeff":
                    return self._buffer[self._position]
                self._position += 1
            if not self._read_on():
                return ""

    def take(self, character: str, expected: str) -> None:
        found = self.next_character()
        if found != character:
            raise _NotAList(f"expected {expected}, found {found!r}" if found else f"expected {expected}, the file ends")
        self._position += 1

    def value(self) -> Any:
        self.next_character()
        while True:
            try:
                value, self._position = self._decoder.raw_decode(self._buffer, self._position)
            except json.JSONDecodeError:
                # The end of the chunk may cut the value.
                if len(self._buffer) - self._position > _LARGEST_RECORD or not self._read_on():
                    raise
            else:
                return value

    def _read_on(self) -> bool:
        more = self._file.read(_CHUNK)
        self._buffer, self._position = self._buffer[self._position :] + more, 0
        return bool(more)


def _opened(path: Path) -> TextIO:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; WebShop's setup script downloads its catalogue files")
    return path.open(encoding="utf-8")


MAX_ID_LENGTH = 10
UNKNOWN_PRICE = 100.0
"""The price of a product without one in the official simulator."""
NO_ATTRIBUTES = ("DUMMY_ATTR",)
_NOT_A_PRICE = re.compile(r"[^\d.]")


@dataclass(frozen=True, slots=True)
class Product:
    """One product, for pages and reward.

    Attributes:
        asin: its id.
        title: its title.
        description: its description.
        bullet_points: the list of the page "Features".
        options: option name -> its values, lower case, in the order of the page.
        prices: one price, or the two ends of a range.
        attributes: words that describe it; the reward compares them with the goal's.
        category: the department.
        query: search phrase under which the product was collected.
        product_category: its path of categories, separated by `›`.
    """

    asin: str
    title: str
    description: str
    bullet_points: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    prices: tuple[float, ...]
    attributes: tuple[str, ...]
    category: str
    query: str
    product_category: str

    @property
    def price_tag(self) -> str:
        """The price on pages: `$9.5`, or `$9.5 to $12.0`."""
        return " to ".join(f"${price}" for price in self.prices)

    @property
    def indexed_text(self) -> str:
        """The text for the search index: title, description, first bullet point and options."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join([self.title, self.description, self.bullet_points[0], options]).lower()


def read_products(
    records: Iterable[Any], attributes: Mapping[str, Any], *, source: str = "products"
) -> Iterator[Product]:
    """The official file's records as products; a second record of an id, and one without a usable id, is left out.

    `attributes` maps ids to `{"attributes": [...]}`. A record that is not as it should be is a `ValueError` that
    names `source`, the record's number and what is wrong.
    """
    seen: set[str] = set()
    for number, record in enumerate(records):
        try:
            asin = _text(record, "asin")
            if asin == "nan" or not asin or len(asin) > MAX_ID_LENGTH or asin in seen:
                continue
            seen.add(asin)
            yield _product(asin, record, attributes.get(asin, {}))
        except (KeyError, TypeError, ValueError) as error:
            detail = f"no {error}" if isinstance(error, KeyError) else error
            raise ValueError(f"{source}, record {number}: {detail}") from error


def parse_prices(text: object) -> tuple[float, ...]:
    """`"$1,234.50 to $2,000"` -> `(1234.5, 2000.0)`; nothing -> `(100.0,)`; no price in it: `ValueError`."""
    if not text:
        return (UNKNOWN_PRICE,)
    if not isinstance(text, str):
        raise ValueError(f"pricing {text!r} is {type(text).__name__}, not text; write '$12.50'")
    found = [_NOT_A_PRICE.sub("", part) for part in text.split("$")[1:]]
    try:
        prices = tuple(float(part) for part in found)[:2]
    except ValueError:
        prices = ()
    if not prices or not all(map(isfinite, prices)):
        raise ValueError(f"pricing {text!r} holds no price; write '$12.50' or '$12.50 to $20', or leave it empty")
    return prices


def _product(asin: str, record: Mapping[str, Any], facts: Mapping[str, Any]) -> Product:
    bullets = record["small_description"]
    return Product(
        asin=asin,
        title=_text(record, "name"),
        description=_text(record, "full_description"),
        bullet_points=_strings(bullets, "small_description") if isinstance(bullets, list) else (str(bullets),),
        options=_options(record["customization_options"]),
        prices=parse_prices(record.get("pricing")),
        attributes=_strings(facts["attributes"], "attributes") if "attributes" in facts else NO_ATTRIBUTES,
        category=_text(record, "category"),
        query=_text(record, "query").lower().strip(),
        product_category=_text(record, "product_category"),
    )


def _options(contents: Any) -> dict[str, tuple[str, ...]]:
    """`{"Color": [{"value": "Navy/Red"}]}` -> `{"color": ("navy | red",)}`; a name without values is left out."""
    if not contents:
        return {}
    if not isinstance(contents, Mapping):
        raise ValueError(f"customization_options is {type(contents).__name__}; it maps names to lists of values")
    return {
        name.lower(): tuple(content["value"].strip().replace("/", " | ").lower() for content in values)
        for name, values in contents.items()
        if values is not None
    }


def _text(record: Any, key: str) -> str:
    if not isinstance(record, Mapping):
        raise ValueError(f"a product is a JSON object, not {type(record).__name__}")
    value = record[key]
    if not isinstance(value, str):
        raise ValueError(f"{key} is {type(value).__name__}, not text")
    return value


def _strings(values: Any, key: str) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{key} is not a list of texts")
    return tuple(values)
