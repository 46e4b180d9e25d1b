"""The tasks of evaluation sets, as JSON files beside this module."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

FOLDER = Path(__file__).parent / "manifests"


class ManifestTask(BaseModel):
    """One task; digests are SHA-256."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    id: str
    kind: str
    game: str | None
    observation: str | None
    goal: str
    price_bound: float | None


class Catalogue(BaseModel):
    """The products of a shop."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    products: int
    digest: str


class Manifest(BaseModel):
    """The tasks of one evaluation set."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    id: str
    version: int
    environment: str
    split: str
    description: str
    settings: dict[str, Any]
    catalogue: Catalogue | None
    tasks: tuple[ManifestTask, ...]


@cache
def manifests() -> dict[str, Manifest]:
    """Those of the package, by id."""
    return {found.id: found for found in map(read_manifest, sorted(FOLDER.glob("*.json")))}


def read_manifest(path: Path) -> Manifest:
    """One file."""
    return Manifest.model_validate_json(path.read_bytes())


def best_fit(task_ids: Collection[str]) -> Manifest | None:
    """The manifest whose ids overlap most with `task_ids`; of several the one with fewest further tasks."""
    wanted = set(task_ids)
    overlap = {one.id: len(wanted & {task.id for task in one.tasks}) for one in manifests().values()}
    best = max(manifests().values(), key=lambda one: (overlap[one.id], -len(one.tasks)), default=None)
    return best if best is not None and overlap[best.id] else None
