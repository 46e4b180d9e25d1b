"""A catalogue as a folder of memory-mapped files: JSON records in one array of bytes, the rest as arrays."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from hgpo.envs.webshop.goals import Goal
from hgpo.envs.webshop.index import SearchIndex, TextArray, memory_map
from hgpo.envs.webshop.product import Product
from hgpo.utils.files import flush_tree, scratch_folder

SCHEMA_VERSION = 1
_META = "catalog.json"
_REMEMBERED = 1 << 14
_PRODUCT_TYPES = (str, str, str, list, dict, list, list, str, str, str)
_GOAL_TYPES = (int, str, str, list, (dict, list), (int, float), (int, float))
Record = TypeVar("Record")


class Records(Sequence[Record], Generic[Record]):
    """A sequence whose elements are decoded on access, with a cache.

    Args:
        texts: one JSON text per record.
        decode: returns the record of a text; `ValueError` or `TypeError` if the text is invalid.
        path: file of the texts, for error messages.
    """

    def __init__(self, texts: TextArray, decode: Callable[[str], Record], path: Path) -> None:
        self._texts, self._decode, self._path = texts, decode, path
        self._get = lru_cache(maxsize=_REMEMBERED)(self._decoded)

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        if isinstance(index, slice):
            return [self._get(number) for number in range(*index.indices(len(self)))]
        return self._get(range(len(self))[index])

    def __reduce__(self) -> tuple[object, ...]:
        return Records, (self._texts, self._decode, self._path)

    def _decoded(self, number: int) -> Record:
        try:
            return self._decode(self._texts[number])
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{self._path}, record {number}: damaged ({error}); remove {self._path.parent} to rebuild it"
            ) from error


def save_catalog(
    folder: Path,
    products: Iterable[Product],
    prices: NDArray[np.float64],
    goals: Iterable[Goal],
    index: SearchIndex,
    about: Mapping[str, Any],
) -> None:
    """Write a catalogue to a new folder, whole or not at all."""
    if folder.exists():
        raise FileExistsError(f"{folder} exists; choose another folder, or remove it")
    with scratch_folder(folder) as temporary:
        TextArray.of(map(_encode_product, products)).save(temporary / "products")
        TextArray.of(map(_encode_goal, goals)).save(temporary / "goals")
        np.save(temporary / "prices.npy", np.asarray(prices, np.float64), allow_pickle=False)
        index.save(temporary)
        meta = {"schema_version": SCHEMA_VERSION, "about": dict(about)}
        (temporary / _META).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
        flush_tree(temporary)
        os.replace(temporary, folder)


def open_catalog(
    folder: Path, about: Mapping[str, Any] | None = None
) -> tuple[Sequence[Product], NDArray[np.float64], Sequence[Goal], SearchIndex]:
    """Memory-map a saved catalogue; `ValueError` names what is missing or differs from `about`."""
    try:
        meta = json.loads((folder / _META).read_text(encoding="utf-8"))
        if meta["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"schema_version {meta['schema_version']}, this version reads {SCHEMA_VERSION}")
        if about is not None and meta["about"] != dict(about):
            raise ValueError(f"made from {meta['about']}, not from {dict(about)}")
        products = Records(TextArray.open(folder / "products"), _decode_product, folder / "products.npy")
        goals = Records(TextArray.open(folder / "goals"), _decode_goal, folder / "goals.npy")
        prices = memory_map(folder / "prices.npy")
        if prices.dtype != np.float64 or prices.shape != (len(products),):
            raise ValueError(f"prices.npy holds {prices.dtype}{list(prices.shape)}, not float64[{len(products)}]")
        return products, prices, goals, SearchIndex.open(folder, documents=len(products))
    except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{folder}: not a usable saved catalogue ({error}); remove it to rebuild it") from error


def is_catalog(folder: Path) -> bool:
    """Whether a folder holds a saved catalogue."""
    return (folder / _META).is_file()


def _encode_product(product: Product) -> str:
    return json.dumps([getattr(product, name) for name in Product.__dataclass_fields__], ensure_ascii=False)


def _decode_product(text: str) -> Product:
    fields = _fields(text, _PRODUCT_TYPES)
    asin, title, description, bullets, options, prices, attributes, category, query, product_category = fields
    return Product(
        asin=asin,
        title=title,
        description=description,
        bullet_points=tuple(bullets),
        options={name: tuple(values) for name, values in options.items()},
        prices=tuple(prices),
        attributes=tuple(attributes),
        category=category,
        query=query,
        product_category=product_category,
    )


def _encode_goal(goal: Goal) -> str:
    return json.dumps([getattr(goal, name) for name in Goal.__dataclass_fields__], ensure_ascii=False)


def _decode_goal(text: str) -> Goal:
    product, asin, instruction, attributes, options, price_upper, weight = _fields(text, _GOAL_TYPES)
    return Goal(product, asin, instruction, tuple(attributes), options, price_upper, weight)


def _fields(text: str, types: Sequence[type | tuple[type, ...]]) -> list[Any]:
    """The values of a record: a JSON list with one value of each type."""
    values = json.loads(text)
    if not (isinstance(values, list) and len(values) == len(types) and all(map(isinstance, values, types))):
        raise ValueError("not the fields of a record")
    return values
