from __future__ import annotations

from dataclasses import replace

import pytest

from hgpo.envs.webshop.nouns import blank_nouns
from hgpo.envs.webshop.product import Product
from hgpo.envs.webshop.reward import RewardParts, normalise_color, score_purchase
from unit.envs.webshop.shop import GOAL, HUMAN_GOAL, LAMP, MUG, OTHER_MUG, SOAP, product


def score(bought: Product, chosen: dict[str, str], price: float = 10.0, goal: object = GOAL) -> RewardParts:
    return score_purchase(bought, MUG, goal, price, chosen, blank_nouns)  # type: ignore[arg-type]


def test_the_very_product() -> None:
    """2 attributes (one from the bullet points), 2 options, the price: (2 + 2 + 1) / 5."""
    assert score(MUG, {"color": "blue", "size": "small"}) == RewardParts(
        1.0, 1.0, True, True, 1.0, attribute_hits=2, attributes=2, option_hits=2, options=2, price_ok=True
    )


def test_wrong_options_and_price() -> None:
    parts = score(MUG, {"color": "red", "size": "small"}, price=20.01)
    assert (parts.option_hits, parts.price_ok) == (1, False)
    assert parts.reward == pytest.approx((2 + 1 + 0) / 5)


def test_a_product_of_the_same_kind() -> None:
    parts = score(OTHER_MUG, {}, price=20.0)
    assert (parts.query_match, parts.category_match, parts.r_type) == (True, True, 1.0)
    assert parts.title_score == pytest.approx(1 / 3)  # only "mug" of blue, enamel, mug
    assert parts.reward == pytest.approx(1 / 5)  # no attribute, no option, but the price


@pytest.mark.parametrize(
    ("title", "same_query", "r_type"),
    [
        ("Reading Lamp", True, 0.0),  # no common noun: nothing, whatever the query
        ("Tin Mug", False, 1.0),  # 1 / 3 > .2
        ("Tin Mug", True, 1.0),
    ],
)
def test_type_factor(title: str, same_query: bool, r_type: float) -> None:
    bought = product("X", title, query="mugs" if same_query else "tins", product_category="Tins")
    assert score(bought, {}).r_type == r_type


@pytest.mark.parametrize(("common", "query", "r_type"), [(1, "tins", 0.5), (1, "mugs", 1.0), (0, "mugs", 0.0)])
def test_type_factor_of_long_titles(common: int, query: str, r_type: float) -> None:
    wanted = replace(MUG, title="mug alpha beta gamma delta epsilon")  # 6 nouns: 1 in common is .167
    bought = product("X", "mug" if common else "tin", query=query, product_category="Tins")
    assert score_purchase(bought, wanted, GOAL, 1.0, {}, blank_nouns).r_type == r_type


def test_little_in_common_is_worth_a_tenth() -> None:
    wanted = replace(MUG, title="mug " + " ".join(f"word{letter}" for letter in "abcdefghijk"))  # 12 nouns
    assert score_purchase(MUG, wanted, GOAL, 1.0, {}, blank_nouns).r_type == 0.1


@pytest.mark.parametrize(("nouns", "r_type"), [(5, 0.5), (10, 0.5), (11, 0.1)])
def test_a_fifth_in_common_is_no_relation_and_a_tenth_is_not_little(nouns: int, r_type: float) -> None:
    wanted = replace(MUG, title="mug " + " ".join(f"word{letter}" for letter in "abcdefghij"[: nouns - 1]))
    bought = product("X", "mug", query="tins", product_category="Tins")
    assert score_purchase(bought, wanted, GOAL, 1.0, {}, blank_nouns).r_type == r_type


def test_repeated_nouns_of_the_wanted_title_count() -> None:
    wanted = replace(MUG, title="mug mug clay")
    assert score_purchase(OTHER_MUG, wanted, GOAL, 1.0, {}, blank_nouns).title_score == pytest.approx(2 / 3)


def test_a_title_without_nouns_counts_as_a_fifth() -> None:
    wanted = replace(MUG, title="8 / 10", query="x", product_category="")
    assert score_purchase(LAMP, wanted, GOAL, 1.0, {}, blank_nouns).title_score == 0.2


def test_two_common_categories_make_a_relation() -> None:
    assert score(LAMP, {}).category_match is False  # only "Home"
    assert score(OTHER_MUG, {}).category_match is True
    assert score(product("X", "Mug", product_category="Mugs ›Home"), {}).category_match is True  # without spaces
    assert score(SOAP, {}).category_match is False


def test_options_of_people_are_compared_by_their_first_colour() -> None:
    assert normalise_color("navy blue") == "blue"  # first in the rule's order, not in the text
    parts = score(MUG, {"color": "blue"}, goal=HUMAN_GOAL)
    assert (parts.option_hits, parts.reward) == (1, 1.0)


def test_a_colour_in_a_longer_word_is_compared() -> None:
    assert score(MUG, {"color": "bluish"}, goal=replace(HUMAN_GOAL, options=["blue"])).option_hits == 0
    assert score(MUG, {"color": "skyblue"}, goal=replace(HUMAN_GOAL, options=["blue"])).option_hits == 1
    assert score(MUG, {"color": "blue"}, goal=replace(HUMAN_GOAL, options=["skyblue"])).option_hits == 1


def test_phrases_must_agree_in_more_than_85_per_cent() -> None:
    """17 of 20 characters are 85 per cent, 18 are 90."""
    for common, hits in ((17, 0), (18, 1)):
        wanted, other = ("a" * common + letter * (20 - common) for letter in "bc")
        assert score(MUG, {"size": other}, goal=replace(HUMAN_GOAL, options=[wanted])).option_hits == hits
        bought = replace(MUG, attributes=(other,))
        assert score(bought, {}, goal=replace(HUMAN_GOAL, attributes=(wanted,))).attribute_hits == hits


def test_an_attribute_may_be_in_the_description() -> None:
    assert score(MUG, {}, goal=replace(HUMAN_GOAL, attributes=("tea warm",))).attribute_hits == 1


def test_synthetic_options_are_compared_as_name_and_value() -> None:
    goal = replace(GOAL, options={"color": "dark red", "size": "5'2\" x-large"})
    parts = score(MUG, {"color": "dark rose", "size": "x-large 5 2"}, goal=goal)
    assert parts.option_hits == 2  # "dark" is a colour and part of "color dark red"; the size's words are all there
    assert score(MUG, {"color": "red"}, goal=goal).option_hits == 1


def test_a_goal_without_attributes_or_options_is_about_the_price() -> None:
    assert score(MUG, {}, goal=replace(HUMAN_GOAL, attributes=(), options=[])).reward == 1.0
