"""WebShop as a task suite: the official catalogue if its files are given, else generated shops.

Splits of the official catalogue are ranges of its goals in the official order. A few goals have the same text, since a
product lists an option twice; training goals with the text of a held-out goal are left out.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from hgpo.envs.base import LARGEST_SEED, Count, MadeOnAccess, Task, TaskSplits, expanded_path
from hgpo.envs.webshop.catalog import Catalog, is_catalog
from hgpo.envs.webshop.env import OBSERVATION_MODES, WebShopEnv
from hgpo.envs.webshop.expert import Expert
from hgpo.envs.webshop.generator import ShopSize, generate_catalog, shop_size
from hgpo.envs.webshop.goals import Goal
from hgpo.envs.webshop.nouns import noun_tagger

logger = logging.getLogger(__name__)

SCHEMES: Mapping[str, Mapping[str, tuple[int, int | None]]] = {
    "official": {"train": (1500, None), "validation": (500, 1500), "test": (0, 500)},
    "verl-agent": {"train": (500, None), "validation": (0, 500)},
}
DRAWN_SPLIT = "validation_256"
"""A further split of the scheme "verl-agent": the goals of `published_draw`."""

_DRAWN_FROM = 500

Scheme = str | Mapping[str, Count]


def split_ranges(scheme: Scheme) -> Mapping[str, tuple[int, int | None]]:
    """Split -> (first goal, end or None), the training split first; `ValueError` for an unknown scheme.

    A mapping gives the number of goals of each held-out split; these splits follow each other from goal 0.
    """
    if isinstance(scheme, Mapping):
        if not scheme or "train" in scheme:
            raise ValueError(f"split_scheme={dict(scheme)}; name held-out splits only; all later goals are `train`")
        ends = list(itertools.accumulate(scheme.values()))
        held_out = dict(zip(scheme, itertools.pairwise([0, *ends]), strict=True))
        return {"train": (ends[-1], None), **held_out}
    if scheme not in SCHEMES:
        raise ValueError(f"split_scheme={scheme!r}; choose one of {', '.join(SCHEMES)}, or {{test = 50}} and the like")
    return SCHEMES[scheme]


def split_goals(goals: Sequence[Goal], scheme: Scheme, split: str) -> tuple[int, ...]:
    """The goal numbers of one split; `ValueError` if there are none."""
    ranges = {name: range(len(goals))[slice(*ends)] for name, ends in split_ranges(scheme).items()}
    chosen = ranges[split]
    if not chosen:
        first, held_out_goals = split_ranges(scheme)[split][0], len(goals) // 5
        raise ValueError(
            f"split {split!r} begins at goal {first}, but this catalogue has {len(goals)} goals; choose another split, "
            f"or other ranges, such as split_scheme={{test = {held_out_goals}}}"
        )
    if split != "train":
        return tuple(chosen)
    held_out = {_content(goals[number]) for name in ranges if name != "train" for number in ranges[name]}
    return tuple(number for number in chosen if _content(goals[number]) not in held_out)


def published_draw() -> tuple[int, ...]:
    """Numbers of the 256 goals of the first validation in verl-agent's published training: two batches of 128 of 500.

    The goals of a batch differ; 28 are in both batches, so they are played twice. Later validations draw other goals.
    """
    draws = np.random.RandomState(1000)  # the published seed of training is 0, and validation adds 1000
    return tuple(int(number) for _ in range(2) for number in draws.choice(_DRAWN_FROM, size=128, replace=False))


def _content(goal: Goal) -> tuple[str, str]:
    return goal.asin, goal.instruction


PRODUCT_FILES = ("items_shuffle.json", "items_shuffle_1000.json", "items_shuffle*.json*")
ATTRIBUTE_FILES = ("items_ins_v2.json", "items_ins_v2_1000.json", "items_ins*.json*")
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
        """The same catalogue in a saved folder, which is written on first use.

        `ValueError` if the folder was saved from files of other names or sizes, or with another seed.
        """
        folder = expanded_path(folder)
        if self.folder:
            raise ValueError(f"keep_in={folder}: data_dir={self.folder} is a saved catalogue already")
        files = [Path(name) for name in (self.products, self.attributes, self.human_goals) if name]
        about = {"files": {file.name: file.stat().st_size for file in files}, "seed": self.seed}
        if not folder.exists():
            with contextlib.suppress(FileExistsError):  # another process has saved it meanwhile
                self.open().save(folder, about=about)
        Catalog.open(folder, about=about)
        return replace(self, folder=str(folder))


def find_files(
    data_dir: str | Path | None,
    products: str | Path | None = None,
    attributes: str | Path | None = None,
    *,
    human_goals: bool | str | Path = False,
    seed: int | None = None,
    nouns: str = "blank",
) -> CatalogSource:
    """The files named by the options, or those with the official names in `data_dir`."""
    folder = None if data_dir is None else expanded_path(data_dir)
    if folder is not None and is_catalog(folder):
        if products or attributes or human_goals:
            raise ValueError(
                f"{folder} is a saved catalogue with its goals; leave out products, attributes, human_goals"
            )
        source = CatalogSource(folder=str(folder), nouns=nouns)
        saved = source.open().about.get("seed", "unknown")
        if seed not in (None, saved):
            raise ValueError(f"seed={seed}, but the seed of the saved catalogue {folder} is {saved}; leave seed out")
        return source
    human = None if human_goals is True else human_goals or None
    return CatalogSource(
        products=_choose(folder, products, PRODUCT_FILES, "products"),
        attributes=_choose(folder, attributes, ATTRIBUTE_FILES, "attributes"),
        human_goals=_choose(folder, human, (HUMAN_FILE, "items_human*.json*"), "human_goals") if human_goals else "",
        seed=seed or 0,
        nouns=nouns,
    )


def _choose(folder: Path | None, named: str | Path | None, usual: Sequence[str], option: str) -> str:
    """The file named by an option, also relative to the folder, or the first official one that exists.

    The last of `usual` is a pattern; a folder with several such files is a `ValueError`.
    """
    tried = [] if named is None else [expanded_path(named)]
    if folder is not None:
        tried += [folder / name for name in (usual[:-1] if named is None else (named,))]
    for path in tried:
        if path.is_file():
            return str(path)
    found = sorted(folder.glob(usual[-1])) if folder is not None and named is None else []
    if len(found) > 1:
        raise ValueError(f"{option}: {folder} has {', '.join(path.name for path in found)}; name one with {option}=")
    if found:
        return str(found[0])
    raise FileNotFoundError(
        f"{option}: no such file: {', '.join(map(str, tried)) or 'none named'}. The official files come with WebShop's "
        f"setup script; name others with {option}=; without any, shops are generated"
    )


@lru_cache(maxsize=1024)
def _open(source: CatalogSource) -> Catalog:
    if source.size is not None:
        return generate_catalog(source.size, source.seed, source.shop, nouns=source.nouns)
    if source.folder:
        return Catalog.open(source.folder, nouns=source.nouns)
    return Catalog.load(
        source.products, source.attributes, seed=source.seed, nouns=source.nouns, human_goals=source.human_goals or None
    )


DEFAULT_GOALS: Mapping[str, int] = {"train": 2000, "valid_seen": 200, "valid_unseen": 200}
_UNSEEN_SHOPS = 1_000_000
"""Shops with this number or a larger one are never used for training."""


def webshop_suite(
    data_dir: str | Path | None = None,
    *,
    products: str | Path | None = None,
    attributes: str | Path | None = None,
    human_goals: bool | str | Path = False,
    keep_in: str | Path | None = None,
    split_scheme: Scheme = "official",
    size: str | Mapping[str, Any] | ShopSize | None = None,
    train_goals: Count | None = None,
    valid_seen_goals: Count | None = None,
    valid_unseen_goals: Count | None = None,
    observation_mode: str | None = None,
    nouns: str = "blank",
    seed: Annotated[int, Field(le=LARGEST_SEED)] | None = None,
    max_steps: Annotated[int, Field(ge=1)] | None = None,
) -> TaskSplits:
    """A suite of shopping tasks, in the official catalogue or in generated shops.

    **Official files.** `data_dir` holds `items_shuffle*.json` and `items_ins_v2*.json` (or name them with
    `products` and `attributes`), or is a folder that `Catalog.save` wrote. Files may have one record per line and be
    compressed by gzip. `human_goals`: use the goals that people wrote, from `items_human_ins.json` there or from the
    named file. `keep_in`: a folder where the first run saves the catalogue; later runs map it and start at once.
    `split_scheme`: "official" (train, validation, test), "verl-agent" (train, validation, and validation_256, drawn
    from validation: see `published_draw`), or, for catalogues with few goals, the numbers of goals of the held-out
    splits, such as `{"test": 50}`. Prices and goals are drawn by `seed` (default 0); a saved catalogue has its own.

    **Generated shops** (without the options above): `size` ("small" by default) is their size; the `..._goals` options
    give the number of goals per split (default 2000, 200 and 200; 0 leaves a split out). `valid_seen` has other goals
    of the training shops, `valid_unseen` goals of other shops.

    The default `observation_mode` is "text" with official files and "brief" in generated shops. `nouns` is the tagger
    of the title score. Without `max_steps` only a purchase ends an episode.
    """
    named = {"train": train_goals, "valid_seen": valid_seen_goals, "valid_unseen": valid_unseen_goals}
    requested = {split: number for split, number in named.items() if number is not None}
    if observation_mode is not None and observation_mode not in OBSERVATION_MODES:
        raise ValueError(f"observation_mode={observation_mode!r}; choose one of {', '.join(OBSERVATION_MODES)}")
    if data_dir is None and products is None and attributes is None:
        if human_goals or keep_in or split_scheme != "official":
            raise ValueError(
                "human_goals, keep_in, split_scheme: only for official files; give data_dir, or products and attributes"
            )
        goals, mode = {**DEFAULT_GOALS, **requested}, observation_mode or "brief"
        return _generated_suite(shop_size(size or "small"), goals, mode, nouns, seed or 0, max_steps)
    if size is not None or requested:
        raise ValueError(
            "size and numbers of goals: only for generated shops; leave them out, or the official files (a recipe's "
            "options are replaced with environment.options='{data_dir = \"FOLDER\"}')"
        )
    source = find_files(data_dir, products, attributes, human_goals=human_goals, seed=seed, nouns=nouns)
    if keep_in is not None:
        source = source.kept_in(keep_in)
    return _official_suite(source, split_scheme, observation_mode or "text", max_steps)


class _SplitTasks(MadeOnAccess[Task]):
    """The tasks of a split: one for each of `goals` (numbers) in the shop `source`, then in the next, up to `size`.

    Further shops are generated with the next numbers. `options` are those of `WebShopEnv`.
    """

    def __init__(
        self, split: str, size: int, source: CatalogSource, goals: Sequence[int], options: Mapping[str, Any]
    ) -> None:
        super().__init__(size)
        self._split, self._source, self._goals, self._options = split, source, goals, options

    def _element(self, number: int) -> Task:
        shop, place = divmod(number, len(self._goals))
        source, goal = replace(self._source, shop=self._source.shop + shop), self._goals[place]
        catalog = source.open()
        if goal >= len(catalog.goals):
            raise ValueError(f"shop {source.shop} has only {len(catalog.goals)} different goals; give it more products")
        wanted = catalog.goals[goal]
        prefix = f"shop{source.shop}-" if source.size else ""
        name = f"{self._split}/{number:04d}-{prefix}goal{goal}-{wanted.asin}"
        return Task(name, catalog.products[wanted.product].category, partial(_make_env, source, goal, self._options))


def _make_env(source: CatalogSource, goal: int, options: Mapping[str, Any]) -> WebShopEnv:
    return WebShopEnv(source.open(), goal=goal, **options)


def _official_suite(source: CatalogSource, scheme: Scheme, mode: str, max_steps: int | None) -> TaskSplits:
    catalog, options = source.open(), {"observation_mode": mode, "max_steps": max_steps}
    splits: dict[str, Callable[[], Sequence[Task]]] = {
        name: partial(_official_tasks, source, scheme, name, options) for name in split_ranges(scheme)
    }
    if scheme == "verl-agent" and len(catalog.goals) >= _DRAWN_FROM:
        drawn = published_draw()
        splits[DRAWN_SPLIT] = partial(_SplitTasks, DRAWN_SPLIT, len(drawn), source, drawn, options)
    saved = catalog.about  # has the seed of a saved catalogue
    description = {**asdict(source), **saved, "split_scheme": scheme, "observation_mode": mode}
    return TaskSplits(splits, expert=Expert, description=description, skipped=dict.fromkeys(splits, catalog.left_out))


def _official_tasks(source: CatalogSource, scheme: Scheme, split: str, options: Mapping[str, Any]) -> _SplitTasks:
    goals = split_goals(source.open().goals, scheme, split)
    first, end = split_ranges(scheme)[split]
    if end is not None and len(goals) < end - first:
        logger.warning("split %r has %d goals, not %d: the catalogue has no more", split, len(goals), end - first)
    return _SplitTasks(split, len(goals), source, goals, options)


def _generated_suite(
    size: ShopSize, counts: Mapping[str, int], mode: str, nouns: str, seed: int, max_steps: int | None
) -> TaskSplits:
    noun_tagger(nouns)  # reject an unknown tagger at once
    in_training, reserved = max(1, size.products // 2), max(1, size.products // 10)
    shops, most = -(-counts["train"] // in_training), _UNSEEN_SHOPS * in_training
    if counts["train"] > most:
        raise ValueError(
            f"train: {counts['train']} goals requested; give at most {most}: later shops belong to valid_unseen"
        )
    if counts["valid_seen"] > shops * reserved:
        raise ValueError(
            f"valid_seen: {counts['valid_seen']} goals requested, but the {shops} shops of {counts['train']} training "
            f"goals reserve only {shops * reserved}; request fewer, or more training goals"
        )
    options = {"observation_mode": mode, "max_steps": max_steps, "results": size.results, "page_size": size.page_size}
    first = CatalogSource(size=size, seed=seed, nouns=nouns)
    places = {
        "train": (first, range(in_training)),
        "valid_seen": (first, range(in_training, in_training + reserved)),
        "valid_unseen": (replace(first, shop=_UNSEEN_SHOPS), range(in_training)),
    }
    splits = {
        split: partial(_SplitTasks, split, counts[split], source, goals, options)
        for split, (source, goals) in places.items()
        if counts[split]
    }
    description = {"size": asdict(size), "seed": seed, "nouns": nouns, "observation_mode": mode, "goals": counts}
    return TaskSplits(splits, expert=Expert, description=description)
