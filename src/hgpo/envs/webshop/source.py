"""Sources of catalogues: official files, a saved folder, or the generator."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hgpo.envs.webshop.catalog import Catalog
from hgpo.envs.webshop.catalog_files import is_catalog
from hgpo.envs.webshop.generator import ShopSize, generate_catalog

PRODUCT_FILES = ("items_shuffle.json", "items_shuffle_1000.json")
ATTRIBUTE_FILES = ("items_ins_v2.json", "items_ins_v2_1000.json")
HUMAN_FILE = "items_human_ins.json"


@dataclass(frozen=True, slots=True)
class CatalogSource:
    """The source of a catalogue: files, a saved folder or a size to generate.

    Unlike the catalogue, it is small enough to send to other processes.

    Attributes:
        products: file of the official products.
        attributes: file of their attributes.
        human_goals: file of the instructions that people wrote; "" for synthetic ones.
        folder: a saved catalogue.
        size: size of a generated shop; None for files or a folder.
        shop: number of the generated shop.
        seed: seed of prices and goals, or of the generated shop.
        nouns: tagger of the title score.
    """

    products: str = ""
    attributes: str = ""
    human_goals: str = ""
    folder: str = ""
    size: ShopSize | None = None
    shop: int = 0
    seed: int = 0
    nouns: str = "blank"

    def open(self) -> Catalog:
        """The catalogue, cached in the process."""
        return _open(self)

    def kept_in(self, folder: str | Path) -> CatalogSource:
        """The same catalogue in a saved folder, which is written on first use."""
        return _saved_in(self, _expanded(folder))


def find_files(
    data_dir: str | Path | None,
    products: str | Path | None = None,
    attributes: str | Path | None = None,
    *,
    human_goals: bool | str | Path = False,
    seed: int = 0,
    nouns: str = "blank",
) -> CatalogSource:
    """The files named by the options, or those with the official names in `data_dir`."""
    folder = None if data_dir is None else _expanded(data_dir)
    if folder is not None and is_catalog(folder):
        if products or attributes or human_goals:
            raise ValueError(
                f"{folder} is a saved catalogue with its goals; leave out products, attributes, human_goals"
            )
        return CatalogSource(folder=str(folder), nouns=nouns)
    human = HUMAN_FILE if human_goals is True else human_goals or None
    return CatalogSource(
        products=_choose(folder, products, PRODUCT_FILES, "products"),
        attributes=_choose(folder, attributes, ATTRIBUTE_FILES, "attributes"),
        human_goals="" if human is None else _choose(folder, human, (HUMAN_FILE,), "human_goals"),
        seed=seed,
        nouns=nouns,
    )


def _choose(folder: Path | None, named: str | Path | None, usual: Sequence[str], option: str) -> str:
    """The file named by an option, also relative to the folder, or the first official one that exists."""
    tried = [] if named is None else [_expanded(named)]
    if folder is not None:
        tried += [folder / name for name in (usual if named is None else (named,))]
    for path in tried:
        if path.is_file():
            return str(path)
    raise FileNotFoundError(
        f"{option}: no such file: {', '.join(map(str, tried)) or 'none named'}. The official files come with WebShop's "
        "setup script; without any, shops are generated"
    )


def _saved_in(source: CatalogSource, folder: Path) -> CatalogSource:
    if source.folder:
        raise ValueError(f"keep_in={folder}: data_dir={source.folder} is a saved catalogue already")
    files = [Path(name) for name in (source.products, source.attributes, source.human_goals) if name]
    about = {"files": {file.name: file.stat().st_size for file in files}, "seed": source.seed}
    if folder.exists():
        Catalog.open(folder, about=about)  # raises a ValueError if files or seed differ
    else:
        source.open().save(folder, about=about)
    return CatalogSource(folder=str(folder), nouns=source.nouns)


def _expanded(path: str | Path) -> Path:
    text = os.path.expanduser(os.path.expandvars(str(path)))
    if "$" in text:
        raise FileNotFoundError(f"{str(path)!r}: the variable is not set")
    return Path(text)


@lru_cache(maxsize=1024)
def _open(source: CatalogSource) -> Catalog:
    if source.size is not None:
        return generate_catalog(source.size, source.seed, source.shop, nouns=source.nouns)
    if source.folder:
        return Catalog.open(source.folder, nouns=source.nouns)
    return Catalog.load(
        source.products,
        source.attributes,
        seed=source.seed,
        nouns=source.nouns,
        human_goals=source.human_goals or None,
    )
