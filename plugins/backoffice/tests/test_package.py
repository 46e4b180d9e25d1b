"""The package as a wheel."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from environment_packages import BuiltPackage, few


class TestPackage(BuiltPackage):
    name = "backoffice"
    project = Path(__file__).parents[1]
    template = "backoffice-compact"
    parts = ("BackofficeEnv", "BackofficeCompactTemplate")
    agents: ClassVar[dict[str, dict[str, str]]] = {"tiny": {"name": "direct"}, "some/model": {"name": "tools"}}
    options = "train_tasks=1, valid_seen_tasks=0"
    settings = few({"train_tasks": 60, "valid_seen_tasks": 10, "valid_unseen_tasks": 10})
