"""WebShop as a task suite: the official catalogue if its files are given, else generated shops.

Splits of the official catalogue are ranges of its goals in the official order. A few goals have the same text, since a
product lists an option twice; training goals with the text of a held-out goal are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, overload

from hgpo.envs.base import (
    LARGEST_SEED,
    Task,
    TasksByNumber,
    TaskSplits,
    check_counts,
    check_path,
    check_type,
    check_whole_number,
)
from hgpo.envs.webshop.env import OBSERVATION_MODES, WebShopEnv
from hgpo.envs.webshop.expert import Expert
from hgpo.envs.webshop.generator import SIZE_EXAMPLE, SIZES, ShopSize, named_size
from hgpo.envs.webshop.goals import Goal, noun_tagger
from hgpo.envs.webshop.session import PAGE_SIZE, RESULTS
from hgpo.envs.webshop.source import CatalogSource, find_files

SCHEMES: Mapping[str, Mapping[str, tuple[int, int | None]]] = {
    "official": {"train": (1500, None), "validation": (500, 1500), "test": (0, 500)},
    "verl-agent": {"train": (500, None), "validation": (0, 500)},
}


def split_names(scheme: str) -> tuple[str, ...]:
    """The splits of a scheme, the training split first; `ValueError` for an unknown scheme."""
    if scheme not in SCHEMES:
        raise ValueError(f"split_scheme={scheme!r}; choose one of {', '.join(SCHEMES)}")
    return tuple(SCHEMES[scheme])


def split_goals(goals: Sequence[Goal], scheme: str, split: str) -> tuple[int, ...]:
    """The goal numbers of one split; `ValueError` if there are none."""
    ranges = {name: _numbers(goals, *SCHEMES[scheme][name]) for name in split_names(scheme)}
    chosen = ranges[split]
    if not chosen:
        first = SCHEMES[scheme][split][0]
        raise ValueError(f"split {split!r} begins at goal {first}, but this catalogue has {len(goals)} goals")
    if split != "train":
        return tuple(chosen)
    held_out = {_content(goals[number]) for name in ranges if name != "train" for number in ranges[name]}
    return tuple(number for number in chosen if _content(goals[number]) not in held_out)


def _numbers(goals: Sequence[Goal], first: int, end: int | None) -> range:
    return range(len(goals))[first:end]


def _content(goal: Goal) -> tuple[str, str]:
    return goal.asin, goal.instruction


DEFAULT_GOALS: Mapping[str, int] = {"train": 2000, "valid_seen": 200, "valid_unseen": 200}
_UNSEEN_SHOPS = 1_000_000
"""Shops from this number are never used for training."""


class WebShopSuite(TaskSplits):
    """Tasks of one or more splits. `webshop_suite` builds it; `description` has its options."""

    def __init__(self, make: Mapping[str, Callable[[], _SplitTasks]], description: Mapping[str, Any]) -> None:
        super().__init__(make)
        self.description = dict(description)

    def expert(self) -> Expert:
        """The expert for demonstrations."""
        return Expert()


def webshop_suite(
    data_dir: str | Path | None = None,
    *,
    products: str | Path | None = None,
    attributes: str | Path | None = None,
    human_goals: bool | str | Path = False,
    keep_in: str | Path | None = None,
    split_scheme: str = "official",
    size: str | ShopSize | Mapping[str, Any] | None = None,
    goals: Mapping[str, int] | None = None,
    train_goals: int | None = None,
    valid_seen_goals: int | None = None,
    valid_unseen_goals: int | None = None,
    observation_mode: str | None = None,
    nouns: str = "blank",
    seed: int = 0,
    max_steps: int | None = None,
) -> WebShopSuite:
    """A suite of shopping tasks, in the official catalogue or in generated shops.

    **Official files.** `data_dir` holds `items_shuffle*.json` and `items_ins_v2*.json` (or name them with
    `products` and `attributes`), or is a folder that `Catalog.save` wrote. `human_goals`: the goals that people
    wrote, from `items_human_ins.json` there or from the named file. `keep_in`: a folder where the first run saves the
    catalogue; later runs map it and start at once. `split_scheme`: "official" (train,
    validation, test) or "verl-agent" (train, validation). Prices and goals are drawn by `seed`.

    **Generated shops** (none of the above): of `size` ("small" is the default), with as many goals per split as
    `goals` or the `..._goals` options say (default 2000, 200 and 200; 0 leaves a split out). `valid_seen` has
    other goals of the training shops, `valid_unseen` goals of other shops.

    The default `observation_mode` is "text" with official files and "brief" in generated shops. `nouns` is the tagger
    of the title score. Without `max_steps` only a purchase ends an episode.
    """
    named = {"train": train_goals, "valid_seen": valid_seen_goals, "valid_unseen": valid_unseen_goals}
    _check_types(
        paths={"data_dir": data_dir, "products": products, "attributes": attributes, "keep_in": keep_in},
        texts={"split_scheme": split_scheme, "observation_mode": observation_mode, "nouns": nouns},
        numbers={f"{split}_goals": count for split, count in named.items()},
    )
    check_type("human_goals", human_goals, (bool, str, Path), "true, false or a file")
    check_type("size", size, (str, ShopSize, Mapping), f"one of {', '.join(SIZES)}, or numbers as in {SIZE_EXAMPLE}")
    check_counts("goals", goals, "{ train = 100, valid_unseen = 20 }")
    check_whole_number("seed", seed, None, LARGEST_SEED)
    check_whole_number("max_steps", max_steps, 1)
    counts = {**(goals or {}), **{split: count for split, count in named.items() if count is not None}}
    if observation_mode is not None and observation_mode not in OBSERVATION_MODES:
        raise ValueError(f"observation_mode={observation_mode!r}; choose one of {', '.join(OBSERVATION_MODES)}")
    if data_dir is None and products is None and attributes is None:
        for name, value in {"human_goals": human_goals, "keep_in": keep_in}.items():
            if value:
                raise ValueError(f"{name}: only for official files; give data_dir, or products and attributes")
        return _generated_suite(size or "small", counts, observation_mode or "brief", nouns, seed, max_steps)
    if size is not None or counts:
        raise ValueError("size and numbers of goals: only for generated shops; leave them out, or the official files")
    source = find_files(data_dir, products, attributes, human_goals=human_goals, seed=seed, nouns=nouns)
    if keep_in is not None:
        source = source.kept_in(keep_in)
    return _official_suite(source, split_scheme, observation_mode or "text", max_steps)


def _check_types(paths: Mapping[str, object], texts: Mapping[str, object], numbers: Mapping[str, object]) -> None:
    for name, value in paths.items():
        check_path(name, value)
    for name, value in texts.items():
        check_type(name, value, (str,), "text")
    for name, value in numbers.items():
        check_whole_number(name, value)


def make_env(
    source: CatalogSource, goal: int, observation_mode: str, sizes: tuple[int, int], max_steps: int | None
) -> WebShopEnv:
    """Return the environment of one task; `sizes` is (most search results, results per page)."""
    results, page_size = sizes
    catalog = source.open()
    return WebShopEnv(catalog, observation_mode, goal=goal, max_steps=max_steps, results=results, page_size=page_size)


class _SplitTasks(TasksByNumber):
    """The tasks of a split, from (source, goal) pairs."""

    def __init__(
        self,
        split: str,
        pairs: Sequence[tuple[CatalogSource, int]],
        mode: str,
        sizes: tuple[int, int],
        steps: int | None,
    ) -> None:
        super().__init__(len(pairs))
        self._split, self._pairs, self._mode, self._sizes, self._steps = split, pairs, mode, sizes, steps

    def _task(self, number: int) -> Task:
        source, goal = self._pairs[number]
        catalog = source.open()
        if goal >= len(catalog.goals):
            raise ValueError(f"shop {source.shop} has only {len(catalog.goals)} different goals; give it more products")
        wanted = catalog.goals[goal]
        shop = f"shop{source.shop}-" if source.size else ""
        name = f"{self._split}/{number:04d}-{shop}goal{goal}-{wanted.asin}"
        make = partial(make_env, source, goal, self._mode, self._sizes, self._steps)
        return Task(name, catalog.products[wanted.product].category, make)


def _official_suite(source: CatalogSource, scheme: str, mode: str, max_steps: int | None) -> WebShopSuite:
    names = split_names(scheme)
    all_goals, sizes = source.open().goals, (RESULTS, PAGE_SIZE)
    splits = {
        name: partial(_SplitTasks, name, _SourceGoals(source, goals), mode, sizes, max_steps)
        for name, goals in ((name, split_goals(all_goals, scheme, name)) for name in names)
    }
    return WebShopSuite(splits, {**asdict(source), "split_scheme": scheme, "observation_mode": mode})


class _SourceGoals(Sequence[tuple[CatalogSource, int]]):
    """(source, goal) pairs of one source, made on access."""

    def __init__(self, source: CatalogSource, goals: Sequence[int]) -> None:
        self._source, self._goals = source, goals

    def __len__(self) -> int:
        return len(self._goals)

    @overload
    def __getitem__(self, index: int) -> tuple[CatalogSource, int]: ...
    @overload
    def __getitem__(self, index: slice) -> _SourceGoals: ...
    def __getitem__(self, index: int | slice) -> tuple[CatalogSource, int] | _SourceGoals:
        if isinstance(index, slice):
            return _SourceGoals(self._source, self._goals[index])
        return self._source, self._goals[index]


def _generated_suite(
    size: str | ShopSize | Mapping[str, Any],
    requested: Mapping[str, int],
    mode: str,
    nouns: str,
    seed: int,
    steps: int | None,
) -> WebShopSuite:
    noun_tagger(nouns)
    shop_size = named_size(size)
    counts = {**DEFAULT_GOALS, **requested}
    _check_counts(counts)
    in_training, kept_back = max(1, shop_size.products // 2), max(1, shop_size.products // 10)
    shops = -(-counts["train"] // in_training)
    if counts["valid_seen"] > shops * kept_back:
        raise ValueError(
            f"valid_seen: {counts['valid_seen']} goals requested, but the {shops} shops of {counts['train']} training "
            f"goals reserve only {shops * kept_back}; request fewer, or more training goals"
        )
    ranges = {
        "train": (range(shops), range(in_training)),
        "valid_seen": (range(shops), range(in_training, in_training + kept_back)),
        "valid_unseen": (count(_UNSEEN_SHOPS), range(in_training)),
    }
    splits = {}
    for split, (numbers, goals) in ranges.items():
        sources = (CatalogSource(size=shop_size, shop=number, seed=seed, nouns=nouns) for number in numbers)
        pairs = list(islice(((source, goal) for source in sources for goal in goals), counts[split]))
        if pairs:
            splits[split] = partial(_SplitTasks, split, pairs, mode, (shop_size.results, shop_size.page_size), steps)
    description = {"size": asdict(shop_size), "seed": seed, "nouns": nouns, "observation_mode": mode, "goals": counts}
    return WebShopSuite(splits, description)


def _check_counts(counts: Mapping[str, int]) -> None:
    for split in counts:
        if split not in DEFAULT_GOALS:
            raise ValueError(f"unknown split {split!r}; generated shops have {', '.join(DEFAULT_GOALS)}")
