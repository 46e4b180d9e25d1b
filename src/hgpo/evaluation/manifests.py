"""Manifests: the game, first observation, goal and price bound of each task of an evaluation set.

A manifest is a JSON file. The package's are in the folder `manifests`, `hgpo manifest build` writes others. It contains
no text of games and products, only their SHA-256 (of UTF-8, in hexadecimal digits).

An id is the suite's name of a task, which results store, too. It depends neither on the folder of the files nor on the
order in which a file system lists them:

- ALFWorld: `<split>/<task folder>/<trial>`, the path of the game below the data folder;
- WebShop: `<split>/<place>-goal<number>-<product>`, the goal's number in the official order;
- generated games and shops: `<split>/<number>-<name>`, in the order of generation.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from hgpo.envs.base import Task
from hgpo.envs.registry import make, names
from hgpo.evaluation.statistics import Amount, Count
from hgpo.plugins import BREAKS
from hgpo.runs.folder import check_schema, read_json
from hgpo.utils.files import write_text
from hgpo.utils.text import did_you_mean

FOLDER = Path(__file__).with_name("manifests")

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Name = Annotated[str, Field(min_length=1, max_length=1000)]
_FORMAT = (
    "goals: [task type, goal text]; tasks: [id, place in goals, game, first observation, price bound]; texts: SHA-256"
)
_PATHS = ("data_dir", "products", "attributes", "keep_in")
_CHANGES_NO_TASK = ("nouns", "observation_mode", "max_steps")
_WORDS = {
    "kind": "task type",
    "game": "game",
    "observation": "first observation",
    "goal": "goal",
    "price_bound": "price bound",
}


class ManifestTask(BaseModel):
    """One task.

    Attributes:
        id: see the module's docstring.
        kind: the task type.
        game: SHA-256 of the game file (if generated, of the file that `hgpo generate-games` writes) or of a generated
            shop's products. None: `Manifest.catalogue` has it, or the environment gives none.
        observation: SHA-256 of the first observation; for WebShop, of the page in the mode `text`.
        goal: SHA-256 of the text that states the goal.
        price_bound: price bound of a shopping goal; None: no bound.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Name
    kind: Name
    game: Digest | None
    observation: Digest | None
    goal: Digest
    price_bound: Amount | None


class Catalogue(BaseModel):
    """WebShop's official files: name of the file of products, number of products, and `Catalog.digest`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    products: Count
    digest: Digest


class _Head(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Name
    version: Count
    environment: Name
    split: Name
    description: str
    settings: dict[str, Any]
    catalogue: Catalogue | None


class Manifest(_Head):
    """The tasks of one evaluation set, each once, in the suite's order.

    Attributes:
        id: `<name>-<version>`.
        version: a later version has other tasks.
        environment: name of the environment.
        split: split of the environment.
        description: what the set is.
        settings: the environment's options that determine the tasks; a folder is written as `$ALFWORLD_DATA`.
        catalogue: the catalogue of WebShop's official files, else None.
        tasks: the tasks.
    """

    tasks: tuple[ManifestTask, ...] = Field(min_length=1)

    @field_validator("tasks")
    @classmethod
    def _each_once(cls, tasks: tuple[ManifestTask, ...]) -> tuple[ManifestTask, ...]:
        if len({task.id for task in tasks}) < len(tasks):
            raise ValueError("a task occurs twice")
        return tasks

    def by_id(self) -> dict[str, ManifestTask]:
        """The tasks, each with the digest of the catalogue as its game, if there is one."""
        if self.catalogue is None:
            return {task.id: task for task in self.tasks}
        return {task.id: task.model_copy(update={"game": self.catalogue.digest}) for task in self.tasks}


class _File(_Head):
    """A manifest as it is stored: a row for each task, and each goal once, since training games share many."""

    format: str
    goals: tuple[tuple[Name, Digest], ...]
    tasks: tuple[tuple[Name, Count, Digest | None, Digest | None, Amount | None], ...]


@cache
def manifests() -> dict[str, Manifest]:
    """The manifests of the package, by id; the first call reads the files."""
    return {found.id: found for found in map(read_manifest, sorted(FOLDER.glob("*.json")))}


def manifest_named(name: str) -> Manifest:
    """A manifest of the package by its id, or the manifest in a file; `ValueError` if `name` is neither."""
    if name in manifests():
        return manifests()[name]
    if Path(name).is_file():
        return read_manifest(Path(name))
    meant = did_you_mean(name, manifests()) or ";"
    raise ValueError(f"no such manifest: {name}{meant} `hgpo manifest list` lists all")


def read_manifest(path: Path) -> Manifest:
    """Read a manifest; nothing that it names is imported or opened.

    Raises:
        ValueError: the file is no JSON or no manifest; the message names the place.
        OSError: the file cannot be read.
    """
    file = check_schema(path, read_json(path), _File)
    if any(row[1] >= len(file.goals) for row in file.tasks):
        raise ValueError(f"{path} is damaged: a task names a goal that does not exist")
    fields = ("kind", "goal", "id", "game", "observation", "price_bound")
    tasks = [dict(zip(fields, (*file.goals[row[1]], row[0], *row[2:]), strict=True)) for row in file.tasks]
    return check_schema(path, {**file.model_dump(exclude={"format", "goals"}), "tasks": tasks}, Manifest)


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write the file, whole or not at all, with a line for each goal and task."""
    goals = {pair: place for place, pair in enumerate(dict.fromkeys((one.kind, one.goal) for one in manifest.tasks))}
    rows = [[one.id, goals[one.kind, one.goal], one.game, one.observation, one.price_bound] for one in manifest.tasks]
    head = json.dumps({**manifest.model_dump(exclude={"tasks"}), "format": _FORMAT}, indent=2).removesuffix("\n}")
    lists = [
        f'  "{name}": [\n' + ",\n".join(json.dumps(row, separators=(",", ":")) for row in content) + "\n  ]"
        for name, content in (("goals", goals), ("tasks", rows))
    ]
    write_text(path, ",\n".join([head, *lists]) + "\n}\n", durable=True)


def best_fit(tasks: Collection[tuple[str, ...]], known: Collection[str] = ()) -> Manifest | None:
    """The manifest of the package that has most of the tasks; None if none has any.

    Of several it is the one with most of `known`, then the smallest, then the first.

    Args:
        tasks: for each played task the ids that it may have: several if tasks share the text that identifies it.
        known: digests of the played games, and ids of manifests that the log names.
    """
    best: Manifest | None = None
    most: tuple[int, ...] = ()
    for manifest in manifests().values():
        ids = {task.id for task in manifest.tasks}
        agreeing = (manifest.id in known) + sum(task.game in known for task in manifest.tasks)
        fit = (sum(not ids.isdisjoint(names) for names in tasks), agreeing, -len(ids))
        if fit[0] and fit > most:
            best, most = manifest, fit
    return best


def build_manifest(name: str, environment: str, split: str, options: Mapping[str, Any], about: str = "") -> Manifest:
    """Compute a manifest from the tasks themselves.

    Args:
        name: id of the manifest; a number after the last hyphen is its version.
        environment: name of the environment; ALFWorld without options means the games in $ALFWORLD_DATA.
        split: split of the environment.
        options: options of the environment.
        about: what the set is.

    Raises:
        ValueError, OSError: the tasks cannot be made.
    """
    options = options or ({"data_dir": "$ALFWORLD_DATA"} if environment == "alfworld" else {})
    suite = make(environment, **options)
    tasks, products = [], None
    for task in suite.tasks(split):
        described, products = _described(task)
        tasks.append(described)
    settings, catalogue = _portable(environment, options), None
    if "data_dir" in settings and products is not None:
        file = getattr(suite, "description", {}).get("products") or "a saved catalogue"
        catalogue = Catalogue(name=Path(file).name, products=products, digest=tasks[0].game or "")
        tasks = [task.model_copy(update={"game": None}) for task in tasks]
    version = re.search(r"-(\d{1,9})$", name)
    return Manifest(
        id=name,
        version=int(version[1]) if version else 1,
        environment=environment,
        split=split,
        description=about,
        settings=settings,
        catalogue=catalogue,
        tasks=tuple(tasks),
    )


def _portable(environment: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that determine the tasks, with a variable in place of paths."""
    settings = {name: value for name, value in options.items() if name not in (*_PATHS, *_CHANGES_NO_TASK)}
    if any(options.get(name) for name in _PATHS):
        settings["data_dir"] = f"${environment.upper()}_DATA"
    return settings


def check_manifest(
    manifest: Manifest, options: Mapping[str, Any] | None = None, environment: str | None = None
) -> dict[str, str]:
    """Compute the manifest again and return the differences by task; empty if there are none.

    Args:
        manifest: a manifest, which may be untrusted: its environment must be registered or equal `environment`; its
            paths are not used.
        options: options of the environment, such as `data_dir`; they replace those of the manifest.
        environment: name of the manifest's environment, whose code the caller trusts.

    Raises:
        ValueError, OSError: the manifest is of another environment, or the tasks cannot be made.
    """
    if manifest.environment not in (names() if environment is None else [environment]):
        accepted = environment or ", ".join(names())
        raise ValueError(
            f"{manifest.id} is of the environment {manifest.environment!r}; known are {accepted}. Name an environment "
            "of your own, whose code is then run, with --env"
        )
    options = {**_portable(manifest.environment, manifest.settings), **(options or {})}
    made = build_manifest(manifest.id, manifest.environment, manifest.split, options)
    known, found = manifest.by_id(), made.by_id()
    differences = {task: _difference(known.get(task), found.get(task)) for task in {**known, **found}}
    return {task: difference for task, difference in differences.items() if difference}


def _difference(known: ManifestTask | None, found: ManifestTask | None) -> str:
    """A text that says what differs from the manifest; "" if nothing does."""
    if known is None or found is None:
        return "not in the manifest" if known is None else "missing"
    differing = [word for field, word in _WORDS.items() if getattr(known, field) != getattr(found, field)]
    return f"another {', '.join(differing)}" if differing else ""


def _described(task: Task) -> tuple[ManifestTask, int | None]:
    """Make and reset the task's environment; return the task's entry, and the number of products of its shop."""
    environment: Any = task.make()
    observation, info = environment.reset(seed=0)
    inner = getattr(environment, "unwrapped", environment)
    known: Mapping[str, Any] = inner.identity() if hasattr(inner, "identity") else {}
    entry = ManifestTask(
        id=task.id,
        kind=task.kind,
        game=known.get("game"),
        observation=text_digest(known.get("observation", observation)),
        goal=text_digest(info.get("task") or ""),
        price_bound=known.get("price_bound"),
    )
    return entry, known.get("products")


def text_digest(text: str) -> str:
    """SHA-256 of a first observation or a goal, as manifests record it."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, slots=True)
class Recognised:
    """The manifest that an evaluation's tasks belong to.

    Attributes:
        id: id of a manifest of the package; None if the tasks belong to none.
        differs: ids of the tasks that are not in the manifest, or differ from it.
    """

    id: str | None = None
    differs: tuple[str, ...] = ()

    @property
    def warning(self) -> str:
        """What differs, in one line; "" if nothing does."""
        shown = ", ".join(self.differs[:3]) + (", …" if len(self.differs) > 3 else "")
        return f"tasks that differ from the manifest {self.id}: {len(self.differs)} ({shown})" if self.differs else ""


def recognise(environment: str, tasks: Sequence[Task]) -> Recognised:
    """The manifest of the package that has most of the tasks, at least half of them, and the tasks that differ from it.

    Of several with as many, since recipes have other games under the same ids, it is the one that the fewest differ
    from. Tasks are made only if a manifest has their ids, since making a task may be slow or have side effects. A task
    that cannot be made counts as different.
    """
    known = {one.id: one.by_id() for one in manifests().values() if one.environment == environment}
    common = {name: sum(task.id in by_id for task in tasks) for name, by_id in known.items()}
    most = max(common.values(), default=0)
    if most == 0 or 2 * most < len(tasks):
        return Recognised()
    fitting = sorted((name for name in known if common[name] == most), key=lambda name: len(known[name]))
    made = {task.id: _made(task) for task in tasks if any(task.id in known[name] for name in fitting)}
    found = [
        Recognised(name, tuple(task.id for task in tasks if _difference(known[name].get(task.id), made.get(task.id))))
        for name in fitting
    ]
    return min(found, key=lambda recognised: len(recognised.differs))


def _made(task: Task) -> ManifestTask | None:
    try:
        return _described(task)[0]
    except BREAKS:
        return None
