from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from hgpo.envs.webshop.goals import (
    draw_price_limit,
    draw_prices,
    human_goals,
    in_official_order,
    official_generator,
    synthetic_goals,
)
from unit.envs.webshop.shop import LAMP, MUG, OTHER_MUG

FACTS: dict[str, Any] = {
    "MUG1": {"attributes": [], "instruction": "Find me mugs", "instruction_attributes": ["easy clean", "handmade"]},
    "MUG2": {"attributes": [], "instruction": "Find me mugs", "instruction_attributes": ["handmade"]},
    "LAMP1": {"attributes": ["bright"]},
}


def test_one_goal_per_combination_of_options() -> None:
    goals = synthetic_goals((MUG, OTHER_MUG, LAMP), (10.0, 25.0, 10.0), FACTS, random.Random(0), Counter())
    assert [dict(goal.options) for goal in goals] == [
        {"color": "blue", "size": "small"},
        {"color": "blue", "size": "large"},
        {"color": "red", "size": "small"},
        {"color": "red", "size": "large"},
        {},
    ]
    limit = goals[0].price_upper
    assert (
        goals[0].instruction
        == f"Find me mugs with color: blue, and size: small, and price lower than {limit:.2f} dollars"
    )
    assert goals[4].instruction.startswith("Find me mugs, and price lower than ")


def test_options_are_combined_in_the_order_of_their_names() -> None:
    turned = replace(MUG, options=dict(reversed(MUG.options.items())))
    first, second = (synthetic_goals((mug,), (10.0,), FACTS, random.Random(0), Counter()) for mug in (MUG, turned))
    assert [list(goal.options.items()) for goal in first] == [list(goal.options.items()) for goal in second]


def test_rare_attributes_weigh_more() -> None:
    goals = synthetic_goals((MUG, OTHER_MUG), (10.0, 25.0), FACTS, random.Random(0), Counter())
    assert goals[0].weight == pytest.approx((1 / 4 + 1 / 5) / 2)
    assert goals[4].weight == pytest.approx(1 / 5)


def test_price_limits_are_the_larger_of_two_of_the_next_four_tens() -> None:
    rng = random.Random(0)
    assert {draw_price_limit(10.0, rng)[0] for _ in range(200)} == {30.0, 40.0, 50.0}
    assert draw_price_limit(975.0, rng) == (990.0, ", and price lower than 990.00 dollars")
    assert draw_price_limit(985.0, rng) == (1_000_000.0, "")


def test_a_price_is_drawn_only_from_a_range() -> None:
    rng, same = random.Random(3), random.Random(3)
    assert draw_prices((MUG, OTHER_MUG, LAMP), rng) == [10.0, same.uniform(20.0, 30.0), 10.0]


def test_draws_touch_no_global_generator() -> None:
    random.seed(0)
    before = random.getstate()
    in_official_order(synthetic_goals((MUG,), (10.0,), FACTS, official_generator(1), Counter()))
    assert random.getstate() == before


def test_human_goals() -> None:
    written = {
        "MUG1": [
            {"instruction": "i need a mug..", "instruction_attributes": ["handmade"], "instruction_options": ["blue"]},
            {"instruction": "nothing", "instruction_attributes": [], "instruction_options": []},
        ]
    }
    goals = human_goals((MUG, OTHER_MUG), (10.0, 25.0), written, random.Random(0), Counter())
    assert len(goals) == 1
    assert goals[0].instruction.startswith("i need a mug, and price lower than ")
    assert (goals[0].options, goals[0].weight) == (["blue"], 1.0)


@pytest.mark.parametrize("attributes", ["blue", True, [[]], [None]])
def test_goals_need_a_list_of_texts(attributes: object) -> None:
    facts = {"MUG1": {"instruction": "Find", "instruction_attributes": attributes}}
    with pytest.raises(ValueError, match="instruction_attributes of MUG1 is not a list of strings"):
        synthetic_goals((MUG,), (10.0,), facts, random.Random(0), Counter())
    written = {"MUG1": [{"instruction": "a", "instruction_attributes": attributes, "instruction_options": []}]}
    with pytest.raises(ValueError, match="human instructions of MUG1, number 0: instruction_attributes is not a list"):
        human_goals((MUG,), (10.0,), written, random.Random(0), Counter())


def test_malformed_instructions_are_named() -> None:
    with pytest.raises(ValueError, match="human instructions of MUG1"):
        human_goals((MUG,), (10.0,), {"MUG1": [{"instruction": "x"}]}, random.Random(0), Counter())


def test_the_order_is_the_same_every_time() -> None:
    goals = synthetic_goals((MUG, OTHER_MUG), (10.0, 25.0), FACTS, random.Random(0), Counter())
    assert in_official_order(goals) == in_official_order(goals)
    assert sorted(map(repr, in_official_order(goals))) == sorted(map(repr, goals))
