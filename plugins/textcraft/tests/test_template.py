"""The compact template for TextCraft."""

from __future__ import annotations

from hgpo.agents.prompts import AgentContext
from hgpo_textcraft.template import CRAFTING_COMPACT

TASK = "Crafting commands:\ncraft 4 stick using 2 oak plank\ncraft 1 torch using 1 stick, 2 coal\n\nGoal: craft torch."


def test_a_prompt_says_all_that_matters_in_a_line() -> None:
    context = AgentContext(
        task=TASK,
        observation="Got 2 coal\nInventory: [oak plank] (2) [coal] (2)",
        step=1,
        history=((TASK, "get 2 coal"),),
        admissible=("craft 4 stick using 2 oak plank", "get 2 coal", "inventory"),
    )
    assert CRAFTING_COMPACT.render(context) == (
        "goal : torch recipes : 4 stick = 2 oak plank ; 1 torch = 1 stick , 2 coal past : start > get 2 coal "
        "now : have oak plank 2 coal 2 can : craft 4 stick using 2 oak plank ; get 2 coal"
    )


def test_answers_lose_their_brackets_and_name_spaces() -> None:
    shown = CRAFTING_COMPACT.render(AgentContext(task="craft it", observation="Crafted 1 minecraft:oak_door", step=0))
    assert shown == "task : craft it now : crafted 1 oak door"
