"""An expert that works back from the goal, by the listed craft commands and the inventory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_COMMAND = re.compile(r"craft (\d+) (.+?) using (.+)")
_GOAL = re.compile(r"Goal: craft (.+)\.")
_FAR = 10**6


@dataclass(frozen=True, slots=True)
class _ListedRecipe:
    """A craft command of the task: the item, its count, and (name, count) of each ingredient."""

    item: str
    count: int
    parts: tuple[tuple[str, int], ...]


class TextCraftExpert:
    """Crafts the first missing ingredient of the shallowest recipe that leads to the goal, and fetches raw items."""

    def reset(self, observation: str, info: Mapping[str, Any]) -> None:
        """Read the task, which is `info["task"]`."""
        task = str(info["task"])
        goal = _GOAL.search(task)
        assert goal is not None, f"no goal in {task!r}"
        self._goal = goal[1]
        self._recipes: dict[str, list[_ListedRecipe]] = {}
        for item, count, parts in ((match[2], match[1], match[3]) for match in _COMMAND.finditer(task)):
            taken = tuple((part.split(" ", 1)[1], int(part.split(" ", 1)[0])) for part in parts.split(", "))
            self._recipes.setdefault(item, []).append(_ListedRecipe(item, int(count), taken))
        self._groups: Mapping[str, Sequence[str]] = info["groups"]
        self._find_depths()

    def act(self, observation: str, info: Mapping[str, Any]) -> str:
        """The next command for the current inventory; earlier commands may come from another policy."""
        return next(self._crafted(self._goal, dict(info["inventory"])))

    def _crafted(self, item: str, stock: dict[str, int]) -> Iterator[str]:
        """The commands that craft an item once from `stock`; `stock` is updated."""
        recipe = min(self._recipes[item], key=self._recipe_depth)
        taken = []
        for name, count in recipe.parts:
            chosen = self._chosen(name, count, stock)
            yield from self._set_apart(chosen, count, stock)
            taken.append(f"{count} {chosen}")
        yield f"craft {recipe.count} {item} using {', '.join(taken)}"
        stock[item] = stock.get(item, 0) + recipe.count

    def _set_apart(self, item: str, count: int, stock: dict[str, int]) -> Iterator[str]:
        """The commands that bring `count` of an item into `stock`, which then loses them."""
        while stock.get(item, 0) < count:
            if item in self._recipes:
                yield from self._crafted(item, stock)
            else:
                yield f"get {count} {item}"
                stock[item] = stock.get(item, 0) + count
        stock[item] -= count

    def _chosen(self, name: str, count: int, stock: Mapping[str, int]) -> str:
        """An item of a group: one that `stock` has enough of, else the shallowest one."""
        items = self._groups.get(name) or (name,)
        enough = next((item for item in items if stock.get(item, 0) >= count), None)
        return enough or min(items, key=lambda item: self._depths.get(item, _FAR))

    def _find_depths(self) -> None:
        """Set name -> depth in crafts, 0 for raw items; names that no listed recipe leads to are missing."""
        parts = {name for recipes in self._recipes.values() for recipe in recipes for name, _ in recipe.parts}
        named = parts.union(*self._groups.values())
        self._depths = {name: 0 for name in named if name not in self._recipes and name not in self._groups}
        changed = True
        while changed:
            changed = False
            found = {item: min(map(self._recipe_depth, recipes)) for item, recipes in self._recipes.items()}
            found |= {
                group: min((self._depths.get(item, _FAR) for item in items), default=_FAR)
                for group, items in self._groups.items()
            }
            for name, depth in found.items():
                if depth < self._depths.get(name, _FAR):
                    self._depths[name], changed = depth, True

    def _recipe_depth(self, recipe: _ListedRecipe) -> int:
        return 1 + max(self._depths.get(name, _FAR) for name, _ in recipe.parts)
