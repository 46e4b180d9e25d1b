"""A shop's catalogue: products, prices, goals and the search index.

It is in memory, or a folder of memory-mapped files: JSON records in one array of bytes, the rest as arrays.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from hgpo.envs.base import Element, MadeOnAccess
from hgpo.envs.webshop import goals as goal_rules
from hgpo.envs.webshop.goals import Goal
from hgpo.envs.webshop.index import SearchIndex, TextArray, memory_map
from hgpo.envs.webshop.nouns import noun_tagger
from hgpo.envs.webshop.product import Product, iterate_records, read_attributes, read_mapping, read_products
from hgpo.utils.files import publish, scratch_folder

SCHEMA_VERSION = 1
_META = "catalog.json"
_REMEMBERED = 1 << 14


class Catalog:
    """The read-only data that all sessions of a shop share.

    `products`, `prices` (one drawn for each product) and `goals` (in the official order) are sequences; `index`
    searches products; `nouns` is the name of the noun tagger for the title score. `left_out` counts the records that
    were left out, by reason; `about` describes the origin: `load` notes the seed, and `save` adds what it is given.

    Example:
        >>> catalog = Catalog.load("items_shuffle_1000.json", "items_ins_v2_1000.json", seed=1234)  # doctest: +SKIP
        >>> catalog.goals[0].instruction, catalog.index.search("blue mug", 10)  # doctest: +SKIP
    """

    def __init__(
        self,
        products: Sequence[Product],
        prices: NDArray[np.float64],
        goals: Sequence[Goal],
        *,
        index: SearchIndex | None = None,
        nouns: str = "blank",
        left_out: Mapping[str, int] | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        if not products:
            raise ValueError("a catalogue needs at least one product")
        self.products = products
        self.prices = prices
        self.goals = goals
        self.nouns = nouns
        self.left_out = dict(left_out or {})
        self.about = dict(about or {})
        self.noun_tagger = noun_tagger(nouns)
        self.index = build_index(products) if index is None else index
        self._listings: dict[str, Mapping[str, list[int]]] = {}

    @classmethod
    def load(
        cls,
        products: str | Path,
        attributes: str | Path,
        *,
        seed: int = 0,
        nouns: str = "blank",
        human_goals: str | Path | None = None,
    ) -> Catalog:
        """Read the official JSON files; draw prices and goals as the official simulator does after `random.seed(seed)`.

        `products` is a list of products (`items_shuffle*.json`), `attributes` maps ids to attributes and
        instructions (`items_ins_v2*.json`). With `human_goals` (`items_human_ins.json`) the goals are instructions
        that people wrote; otherwise each combination of a product's options makes a goal.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: a file is malformed; the message names the file and the record.
        """
        noun_tagger(nouns)  # reject an unknown tagger before reading
        facts, left_out = read_attributes(Path(attributes)), Counter[str]()
        records = iterate_records(Path(products))
        found = tuple(read_products(records, facts, source=str(products), left_out=left_out))
        if not found:
            raise ValueError(f"{products}: no product with an id of 1 to 10 characters")
        rng = goal_rules.official_generator(seed)
        prices = goal_rules.draw_prices(found, rng)
        written = facts if human_goals is None else read_mapping(Path(human_goals))
        try:
            if human_goals is None:
                goals = goal_rules.synthetic_goals(found, prices, written, rng, left_out)
            else:
                goals = goal_rules.human_goals(found, prices, written, rng, left_out)
        except ValueError as error:
            raise ValueError(f"{human_goals or attributes}: {error}") from error
        order = tuple(goal_rules.in_official_order(goals))
        return cls(found, np.array(prices), order, nouns=nouns, left_out=left_out, about={"seed": seed})

    def save(self, folder: str | Path, *, about: Mapping[str, Any] | None = None) -> None:
        """Write everything to a new folder, atomically, with `about`, a description that `open` can check.

        An existing folder is a `FileExistsError`.
        """
        folder = Path(folder)
        if folder.exists():
            raise FileExistsError(f"{folder} exists; choose another folder, or remove it")
        with scratch_folder(folder) as temporary:
            TextArray.of(map(_encode, self.products)).save(temporary / "products")
            TextArray.of(map(_encode, self.goals)).save(temporary / "goals")
            np.save(temporary / "prices.npy", np.asarray(self.prices, np.float64), allow_pickle=False)
            self.index.save(temporary)
            described = {**self.about, **(about or {})}
            meta = {"schema_version": SCHEMA_VERSION, "about": described, "left_out": self.left_out}
            (temporary / _META).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
            publish(temporary, folder)

    @classmethod
    def open(cls, folder: str | Path, *, nouns: str = "blank", about: Mapping[str, Any] | None = None) -> Catalog:
        """Memory-map a folder that `save` wrote; processes share the memory.

        `ValueError` if the folder has no complete catalogue, or was saved with another `about`.
        """
        folder = Path(folder)
        try:
            meta = json.loads((folder / _META).read_text(encoding="utf-8"))
            if meta["schema_version"] != SCHEMA_VERSION:
                raise ValueError(f"schema_version {meta['schema_version']}, this version reads {SCHEMA_VERSION}")
            if about is not None and meta["about"] != dict(about):
                raise ValueError(f"made from {meta['about']}, not from {dict(about)}")
            products = Records(TextArray.open(folder / "products"), Product, folder / "products.npy")
            goals = Records(TextArray.open(folder / "goals"), Goal, folder / "goals.npy")
            prices = memory_map(folder / "prices.npy")
            if prices.dtype != np.float64 or prices.shape != (len(products),):
                raise ValueError(f"prices.npy holds {prices.dtype}{list(prices.shape)}, not float64[{len(products)}]")
            index = SearchIndex.open(folder, documents=len(products))
        except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{folder}: not a usable saved catalogue ({error}); remove it to rebuild it") from error
        return cls(
            products, prices, goals, index=index, nouns=nouns, left_out=meta.get("left_out"), about=meta["about"]
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the products as `save` writes them, a JSON list each, with a line end after each.

        It depends neither on the form of the files nor on the seed of prices and goals.
        """
        found = hashlib.sha256()
        for product in self.products:
            found.update(f"{_encode(product)}\n".encode("utf-8", "surrogatepass"))
        return found.hexdigest()

    def having(self, field: str, value: str) -> list[int]:
        """Positions of the products whose `field` (`category`, `query` or one of the `attributes`) is `value`."""
        if field not in self._listings:
            self._listings[field] = _listing(self.products, field)
        return list(self._listings[field].get(value, ()))

    def draw_goal(self, rng: random.Random) -> int:
        """The number of a goal, drawn by weight."""
        if not len(self.goals):
            raise ValueError("this catalogue has no goals")
        return rng.choices(range(len(self.goals)), cum_weights=self._cumulative_weights)[0]

    @cached_property
    def _cumulative_weights(self) -> list[float]:
        return list(np.cumsum([goal.weight for goal in self.goals]))


def build_index(products: Sequence[Product]) -> SearchIndex:
    """The search index of some products, in their order."""
    return SearchIndex.build([product.asin for product in products], (product.indexed_text for product in products))


def _listing(products: Iterable[Product], field: str) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for number, product in enumerate(products):
        value = getattr(product, field)
        for key in dict.fromkeys(value if isinstance(value, tuple) else (value,)):
            numbers.setdefault(key, []).append(number)
    return numbers


class Records(MadeOnAccess[Element]):
    """A sequence of dataclasses whose elements are decoded on access, with a cache.

    Args:
        texts: per record, a JSON list of the values of its fields.
        kind: the dataclass.
        path: file of the texts, for error messages.
    """

    def __init__(self, texts: TextArray, kind: type[Element], path: Path) -> None:
        super().__init__(len(texts))
        self._texts, self._kind, self._path = texts, kind, path
        self._adapter: TypeAdapter[Element] = TypeAdapter(kind)
        self._names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._decoded)

    def _element(self, number: int) -> Element:
        return self._remembered(number)

    def __reduce__(self) -> tuple[object, ...]:
        return Records, (self._texts, self._kind, self._path)

    def _decoded(self, number: int) -> Element:
        try:
            values = dict(zip(self._names, json.loads(self._texts[number]), strict=True))
            return self._adapter.validate_python(values)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"{self._path}, record {number}: damaged ({error}); remove {self._path.parent} to rebuild it"
            ) from error


def is_catalog(folder: Path) -> bool:
    """Whether a folder holds a saved catalogue."""
    return (folder / _META).is_file()


def _encode(record: Product | Goal) -> str:
    return json.dumps([getattr(record, name) for name in record.__dataclass_fields__], ensure_ascii=False)
