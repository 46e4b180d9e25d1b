"""The template for TextCraft: compact, for tiny models."""

from __future__ import annotations

import re

from hgpo.agents.prompts import AgentContext, CompactTemplate

_COMMAND = re.compile(r"^craft (.+?) using (.+)$", re.MULTILINE)
_GOAL = re.compile(r"^Goal: craft (.+)\.$", re.MULTILINE)
_NOISE = re.compile(r"minecraft:|[\[\]()]")


class CraftingCompactTemplate(CompactTemplate):
    """States the goal, the recipes and the admissible commands in one line.

    `craft 4 oak planks using 1 oak log` becomes `4 oak planks = 1 oak log`. The first observation, which the recipes
    repeat, becomes `start`. An answer with an inventory line becomes that line, `have oak log 1`. The command
    `inventory` is left out of the admissible commands.
    """

    def head(self, context: AgentContext) -> list[str]:
        """The goal, then the recipes in the task's order; the whole task if it is not TextCraft's."""
        goal = _GOAL.search(context.task)
        if goal is None:
            return super().head(context)
        recipes = " ; ".join(f"{made} = {parts}" for made, parts in _COMMAND.findall(context.task))
        return [f"goal : {goal[1]}", f"recipes : {recipes.replace(',', ' ,')}"]

    def tail(self, context: AgentContext) -> list[str]:
        """The admissible commands."""
        useful = [action for action in context.admissible if action != "inventory"]
        return [f"can : {' ; '.join(useful).replace(',', ' ,')}"] if useful else []

    def shorten(self, observation: str) -> str:
        """Lower case, without brackets and namespaces."""
        if _GOAL.search(observation):
            return "start"
        plain = _NOISE.sub("", observation.lower().rpartition("\n")[2]).replace("_", " ").replace("inventory:", "have")
        return " ".join(plain.replace("you are not carrying anything.", "nothing").split())


CRAFTING_COMPACT = CraftingCompactTemplate()
