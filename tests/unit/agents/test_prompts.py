import tomllib
from pathlib import Path

import pytest

from hgpo.agents import TEMPLATES, AgentContext
from hgpo.envs import make

START = (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see a "
    "desk 1, and a shelf 1.\n\nYour task is to: put a mug in desk."
)
SITUATION = AgentContext(
    task="put a mug in desk.",
    observation="You arrive at shelf 1. On the shelf 1, you see a mug 2, and a pen 1.",
    step=1,
    history=((START, "go to shelf 1"),),
    admissible=("examine shelf 1", "go to desk 1", "help", "take mug 2 from shelf 1"),
)


def test_household_compact_says_everything_in_one_short_line():
    prompt = TEMPLATES.get("household-compact").render(SITUATION)
    assert prompt == (
        "task : put a mug in desk. places : desk 1 past : start > go to shelf 1 now : on shelf 1 mug 2 pen 1 "
        "can : take mug 2 from shelf 1"
    )


@pytest.mark.parametrize("name", ["household-reasoning", "shop-reasoning", "reasoning"])
def test_reasoning_prompts_have_the_published_parts_in_order(name):
    prompt = TEMPLATES.get(name).render(SITUATION)
    parts = [
        "put a mug in desk.",
        "taken 1 steps",
        "[Step 1] action: go to shelf 1",
        "You arrive at shelf 1",
        "take mug 2",
        "<think>",
        "<action>",
    ]
    positions = [prompt.index(part) for part in parts]
    assert positions == sorted(positions)


def test_help_is_not_offered_in_household_games():
    assert "- help" not in TEMPLATES.get("household-reasoning").render(SITUATION)
    assert "- help" in TEMPLATES.get("reasoning").render(SITUATION)


@pytest.mark.parametrize("recipe", ["language-models/webshop.toml", "verl/webshop.toml"])
def test_the_prompts_of_the_shops_recipes_show_how_to_search(recipe):
    settings = tomllib.loads((Path(__file__).parents[3] / "recipes" / recipe).read_text(encoding="utf-8"))
    template = TEMPLATES.get(settings["agent"]["template"])
    environment = make("webshop", train_goals=1, valid_seen_goals=0, valid_unseen_goals=0).tasks("train")[0].make()
    start, info = environment.reset()
    search_page = AgentContext(info["task"], start, 0, admissible=tuple(info["admissible_commands"]))
    assert "- search[<your query>]" in template.render(search_page)
    seen, *_, info = environment.step("search[red]")
    results = AgentContext(info["task"], seen, 1, admissible=tuple(info["admissible_commands"]))
    assert "- click[" in template.render(results)
    assert "- search[" not in template.render(results)


@pytest.mark.parametrize("name", TEMPLATES.names())
def test_a_demonstrated_response_parses_back_to_its_action(name):
    template = TEMPLATES.get(name)
    parsed = template.parse(template.respond("take mug 2 from shelf 1"))
    assert parsed.valid
    assert parsed.action == "take mug 2 from shelf 1"


def test_forgetting_drops_the_oldest_pair_only():
    context = AgentContext("t", "o", 2, (("o0", "a0"), ("o1", "a1")), ("look",))
    assert context.forget_oldest() == AgentContext("t", "o", 2, (("o1", "a1"),), ("look",))


def test_an_unknown_template_is_named_with_the_known_ones():
    with pytest.raises(
        ValueError,
        match=r"unknown prompt template 'x'; known: (.*, )?compact, (.*, )?household",
    ):
        TEMPLATES.get("x")
