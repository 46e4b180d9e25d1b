"""Products, and functions that read them from catalogue files: the official ones and those of other collections.

Large JSON files are read record by record. Errors name the file and the record. Numbers are read as text; null and NaN
(which pandas writes) count as missing.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite, isnan
from pathlib import Path
from sys import float_info
from typing import Any, TextIO

_CHUNK = 1 << 22  # characters
_LARGEST_RECORD = 1 << 26


def read_mapping(path: Path) -> Mapping[str, Any]:
    """Read a JSON object with one entry, an object or a list, per product id; null entries are left out.

    A list of records, or one record per line, is grouped by the records' `asin`; several records of one id become a
    list. `ValueError` for anything else.
    """
    content: Any
    try:
        with _opened(path) as file:
            content = json.load(file)
    except json.JSONDecodeError:  # one record per line, or an error that `iterate_records` names
        content = list(iterate_records(path))
    except _UNREADABLE as error:
        raise ValueError(f"{path}: not valid JSON ({error})") from error
    if isinstance(content, list) or (isinstance(content, dict) and isinstance(content.get("asin"), str)):
        return _by_id(path, content if isinstance(content, list) else [content])
    if not isinstance(content, dict):
        raise ValueError(f"{path}: holds a {type(content).__name__}, expected an object with one entry per product")
    for key, value in content.items():
        if not isinstance(value, dict | list | None):
            raise ValueError(f"{path}: the entry of {key!r} is {type(value).__name__}, expected an object or a list")
    return {key: value for key, value in content.items() if value is not None}


def _by_id(path: Path, records: list[Any]) -> Mapping[str, Any]:
    found: dict[str, list[Any]] = {}
    for number, record in enumerate(records):
        if not isinstance(record, dict) or given(record, "asin") is None:
            raise ValueError(f"{path}, element {number}: expected an object with the id of its product, 'asin'")
        found.setdefault(as_text(record["asin"], f"{path}, element {number}: asin"), []).append(record)
    return {asin: several[0] if len(several) == 1 else several for asin, several in found.items()}


def read_attributes(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """The file of attributes: per product id an object with `attributes` and perhaps an instruction.

    `ValueError` names the file and the product.
    """
    facts = read_mapping(path)
    for asin, entry in facts.items():
        where = f"{path}: attributes of {asin}"
        if not isinstance(entry, Mapping):
            raise ValueError(f"{where}: expected an object, not a list; a file of human-written goals is human_goals")
        if given(entry, "attributes") is not None:
            texts(entry["attributes"], where)
    return facts


def iterate_records(path: Path) -> Iterator[Any]:
    """The elements of a JSON list, or the objects of a file with one per line, with the memory of a few elements.

    The file may be compressed by gzip. `ValueError` for invalid content, with the number of the element.
    """
    number = 0
    try:
        with _opened(path) as file:
            reader = _Reader(file)
            listed = reader.next_character() != "{"
            if listed:
                reader.take("[", "a list of products, or one product per line")
            while reader.next_character() != ("]" if listed else ""):
                if listed and number:
                    reader.take(",", "a comma or the end of the list")
                yield reader.value()
                number += 1
    except (json.JSONDecodeError, _NotAList, *_UNREADABLE) as error:
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
    with path.open("rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rt", encoding="utf-8-sig") if compressed else path.open(encoding="utf-8-sig")


_UNREADABLE = (UnicodeDecodeError, RecursionError, EOFError, gzip.BadGzipFile, zlib.error)

MAX_ID_LENGTH = 10
UNKNOWN_PRICE = 100.0
"""The official simulator's price for a product without a price."""
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
        return " ".join([self.title, self.description, *self.bullet_points[:1], options]).lower()


def read_products(
    records: Iterable[Any], attributes: Mapping[str, Any], *, source: str, left_out: Counter[str]
) -> Iterator[Product]:
    """The official file's records as products, without repeated ids and records that have no usable id.

    `attributes` maps ids to `{"attributes": [...]}`. A malformed record is a `ValueError` that names `source`, the
    record's number and the problem. `left_out` counts the records left out, by reason.
    """
    seen: set[str] = set()
    for number, record in enumerate(records):
        name = f"{source}, record {number}"
        try:
            asin = _text(record, "asin")
            if asin == "nan" or not asin or len(asin) > MAX_ID_LENGTH:
                left_out[f"products without an id of 1 to {MAX_ID_LENGTH} characters"] += 1
                continue
            if asin in seen:
                left_out["products with the id of an earlier one"] += 1
                continue
            seen.add(asin)
            name = f"{name} ({asin})"
            yield _product(asin, record, attributes.get(asin, {}))
        except (KeyError, TypeError, ValueError) as error:
            detail = f"no {error}" if isinstance(error, KeyError) else error
            raise ValueError(f"{name}: {detail}") from error


def parse_prices(value: object) -> tuple[float, ...]:
    """`9.5` or `"$9.50"` -> `(9.5,)`; `"$1,234.50 to $2,000"` -> `(1234.5, 2000.0)`; missing or empty -> `(100.0,)`.

    `ValueError` for anything else.
    """
    if not value or value != value:
        return (UNKNOWN_PRICE,)
    found: list[Any] = [value] if _is_number(value) else []
    if isinstance(value, str):
        found = [_NOT_A_PRICE.sub("", part) for part in value.split("$")[1:]]
    try:
        prices = tuple(float(price) for price in found)[:2]
    except (ValueError, OverflowError):
        prices = ()
    if not prices or not all(isfinite(price) and price >= 0 for price in prices):
        raise ValueError(f"pricing {value!r} contains no price; write '$12.50' or '$12.50 to $20', or leave it empty")
    return prices


def _product(asin: str, record: Mapping[str, Any], facts: Mapping[str, Any]) -> Product:
    """Texts that only pages show may be missing and are then empty; the reward needs the name and the query."""
    bullets, attributes = given(record, "small_description"), given(facts, "attributes")
    return Product(
        asin=asin,
        title=_text(record, "name"),
        description=_text(record, "full_description", ""),
        bullet_points=texts([bullets] if not isinstance(bullets, list) else bullets, "small_description")
        if bullets is not None
        else (),
        options=_options(given(record, "customization_options")),
        prices=parse_prices(record.get("pricing")),
        attributes=NO_ATTRIBUTES if attributes is None else texts(attributes, "attributes"),
        category=_text(record, "category", ""),
        query=_text(record, "query").lower().strip(),
        product_category=_text(record, "product_category", ""),
    )


def _options(contents: Any) -> dict[str, tuple[str, ...]]:
    """`{"Color": [{"value": "Navy/Red"}]}` -> `{"color": ("navy | red",)}`; a name without values is left out."""
    if contents and not isinstance(contents, Mapping):
        raise ValueError(f"customization_options is {type(contents).__name__}; it must map names to lists of values")
    options = {}
    for name, values in (contents or {}).items():
        if values is None or values != values:
            continue
        several = values if isinstance(values, list) else [values]
        found = (option_value(value, f"customization_options, {name!r}: a value") for value in several)
        options[name.lower()] = tuple(value.strip().replace("/", " | ").lower() for value in found)
    return options


def option_value(content: Any, what: str) -> str:
    """The text of `"navy"`, `12` or `{"value": "navy"}`."""
    return as_text(content["value"] if isinstance(content, Mapping) else content, what)


def given(record: Mapping[str, Any], key: str) -> Any:
    """The value of a key; None if it is missing, null or NaN."""
    value = record.get(key)
    return None if isinstance(value, float) and isnan(value) else value


def _text(record: Any, key: str, default: str | None = None) -> str:
    if not isinstance(record, Mapping):
        raise ValueError(f"a product is a JSON object, not {type(record).__name__}")
    value = given(record, key)
    value = default if value is None else value
    if value is None:
        raise ValueError(f"no {key!r}; every product needs its 'asin', 'name' and 'query'")
    return as_text(value, key)


def as_text(value: Any, what: str) -> str:
    """A text, or the text of a number; `ValueError` for anything else, which names `what`."""
    if _is_number(value):
        return str(int(value) if isinstance(value, float) and value.is_integer() else value)
    if not isinstance(value, str):
        raise ValueError(f"{what} is {type(value).__name__}, not text")
    return value


def _is_number(value: object) -> bool:
    """Whether it is a finite number; JSON also has integers that no float can represent."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= float_info.max


def texts(values: Any, what: str) -> tuple[str, ...]:
    """A list of strings or numbers, as strings; `ValueError` for anything else, which names `what`."""
    if isinstance(values, str):
        raise ValueError(
            f"{what} is not a list of strings but the string {values[:60]!r}; write [{json.dumps(values[:60])}]"
        )
    if not isinstance(values, list | tuple):
        raise ValueError(f"{what} is not a list of strings but {type(values).__name__}")
    return tuple(
        as_text(value, f"{what} is not a list of strings: element {place}") for place, value in enumerate(values)
    )
