"""The package as a wheel."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from environment_packages import BuiltPackage, few


class TestPackage(BuiltPackage):
    name = "textcraft"
    project = Path(__file__).parents[1]
    template = "crafting-compact"
    parts = ("TextCraftEnv", "CraftingCompactTemplate")
    agents: ClassVar[dict[str, dict[str, str]]] = {
        "tiny": {"template": "crafting-compact"},
        "some/model": {"template": "reasoning"},
    }
    options = "train_goals=1, valid_seen_goals=0"
    settings = few({"train_goals": 60, "valid_seen_goals": 10, "valid_unseen_goals": 10})
