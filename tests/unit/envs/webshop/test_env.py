from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.envs.webshop import Catalog, WebShopEnv, generate_catalog
from unit.envs.webshop.shop import small_catalog

HEAD = "Instruction: [SEP] find a blue mug [SEP] Back to Search"
ITEM = (
    f"{HEAD} [SEP] < Prev [SEP] color [SEP] blue [SEP] red [SEP] size [SEP] small [SEP] large [SEP] Blue Enamel Mug "
    "[SEP] Price: $10.0 [SEP] Rating: N.A. [SEP] Description [SEP] Features [SEP] Reviews [SEP] Buy Now"
)
CATALOG = generate_catalog("small")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return small_catalog()


def play(catalog: Catalog, *actions: str, mode: str = "text", goal: int = 0) -> list[str]:
    environment = WebShopEnv(catalog, mode)
    return [environment.reset(goal=goal)[0], *(environment.step(action)[0] for action in actions)]


def test_a_session_from_search_to_purchase(catalog: Catalog) -> None:
    environment = WebShopEnv(catalog)
    observation, info = environment.reset(goal=0)
    assert observation == "WebShop [SEP] Instruction: [SEP] find a blue mug [SEP] Search"
    assert info["available_actions"] == {"has_search_bar": True, "clickables": ["search"]}
    assert (info["admissible_commands"], info["task"], info["goal"]) == ([], "find a blue mug", 0)
    observation, _, _, _, info = environment.step("search[Blue mug]")
    assert observation == (
        f"{HEAD} [SEP] Page 1 (Total results: 2) [SEP] Next > [SEP] MUG1 [SEP] Blue Enamel Mug [SEP] $10.0 [SEP] MUG2 "
        "[SEP] Red Clay Mug [SEP] $20.0 to $30.0"
    )
    assert info["available_actions"]["clickables"] == ["back to search", "next >", "mug1", "mug2"]
    assert environment.step("click[MUG1]")[0] == ITEM
    for option in ("blue", "small"):
        observation, reward, terminated, truncated, info = environment.step(f"click[{option}]")
        assert (observation, reward, terminated, truncated, info["won"]) == (ITEM, 0.0, False, False, False)
    observation, reward, terminated, truncated, info = environment.step("click[Buy Now]")
    assert (reward, terminated, truncated, info["won"], info["score"]) == (1.0, True, False, True, 1.0)
    assert info["reward_parts"]["option_hits"] == 2
    assert '[SEP] options [SEP] {"color": "blue", "size": "small"} [SEP]' in observation
    assert observation.startswith("Thank you for shopping with us! [SEP] Your code: [SEP] None")


def test_info_has_the_same_keys_throughout(catalog: Catalog) -> None:
    environment = WebShopEnv(catalog)
    keys = set(environment.reset(goal=0)[1])
    for action in ("search[mug]", "click[mug1]", "click[buy now]"):
        assert set(environment.step(action)[-1]) == keys
    assert environment.reset(goal=0)[1]["nouns"] == "blank"


@pytest.mark.parametrize(
    "action",
    [
        "",
        "mug",
        "click[nothing]",
        "click[search]",
        "click[]",
        "search[]",
        "CLICK[mug1]",
        "click[mug1][x]",
        "search[a\nb]",
    ],
)
def test_other_actions_leave_the_page(catalog: Catalog, action: str) -> None:
    pages = play(catalog, "search[mug]", action)
    assert pages[1] == pages[2]
    assert play(catalog, action)[1] == play(catalog)[0]


def test_sub_pages_and_the_way_back(catalog: Catalog) -> None:
    pages = play(catalog, "search[mug]", "click[mug1]", "click[description]", "click[< prev]", "click[features]")
    assert pages[3] == f"{HEAD} [SEP] < Prev [SEP] Keeps tea warm."
    assert pages[4] == ITEM
    assert pages[5] == f"{HEAD} [SEP] < Prev [SEP] Holds 300 ml [SEP] Dishwasher safe"
    back = play(catalog, "search[mug]", "click[mug1]", "click[< prev]", "click[back to search]")
    assert back[3] == back[1]
    assert back[4] == back[0]


def test_a_search_from_any_page_and_pages_without_products(catalog: Catalog) -> None:
    pages = play(catalog, "search[mug]", "click[next >]", "click[< prev]", "click[mug1]", "search[lamp]")
    assert pages[2] == f"{HEAD} [SEP] Page 2 (Total results: 2) [SEP] < Prev [SEP] Next >"
    assert pages[3] == pages[1]
    assert "LAMP1" in pages[5]
    assert play(catalog, "search[zzz]")[1].endswith("Page 1 (Total results: 0) [SEP] Next >")


def test_the_way_back_from_a_product_leads_to_its_page(catalog: Catalog) -> None:
    environment = WebShopEnv(catalog, page_size=1, results=2)
    environment.reset(goal=0)
    second = [environment.step(action)[0] for action in ("search[blue mug]", "click[next >]")][-1]
    assert "Page 2 (Total results: 2)" in second
    assert "MUG2" in second
    assert [environment.step(action)[0] for action in ("click[mug2]", "click[< prev]")][-1] == second
    assert "(Total results: 2)" in environment.step("search[<r>]")[0]


def test_a_purchase_has_the_price_that_was_drawn(catalog: Catalog) -> None:
    """MUG2 costs 20 to 30, of which 25 was drawn; the goal's bound is 20. Neither is it won."""
    environment = WebShopEnv(catalog, max_steps=3)
    environment.reset(goal=0)
    for action in ("search[mug]", "click[mug2]", "click[buy now]"):
        _, reward, terminated, truncated, info = environment.step(action)
    assert not info["reward_parts"]["price_ok"]
    assert (terminated, truncated, info["won"]) == (True, False, False)
    assert reward == info["score"] == 0.0
    environment.reset(goal=1)
    for action in ("search[mug]", "click[mug2]", "click[buy now]"):
        _, reward, terminated, truncated, info = environment.step(action)
    assert 0 < reward < 1
    assert not info["won"]


def test_products_opened_before_the_search_page_are_no_longer_marked(catalog: Catalog) -> None:
    actions = ("search[mug]", "click[mug1]", "click[back to search]", "search[mug]")
    assert play(catalog, *actions, mode="text_rich")[-1] == play(catalog, *actions[:1], mode="text_rich")[-1]


def test_a_new_search_and_going_back_clear_the_options(catalog: Catalog) -> None:
    environment = WebShopEnv(catalog)
    environment.reset(goal=0)
    for action in ("search[mug]", "click[mug1]", "click[blue]", "click[< prev]", "click[mug1]"):
        environment.step(action)
    assert environment.step("click[buy now]")[-1]["reward_parts"]["option_hits"] == 0


def test_special_searches(catalog: Catalog) -> None:
    assert "SOAP1" in play(catalog, "search[<c> beauty]")[1]
    assert "LAMP1" in play(catalog, "search[<q> lamps]")[1]
    assert "(Total results: 4)" in play(catalog, "search[<a> handmade]")[1]
    assert "(Total results: 4)" in play(catalog, "search[<r>]")[1]
    assert "(Total results: 0)" in play(catalog, "search[<c>]")[1]


def test_rich_text_marks_what_was_clicked(catalog: Catalog) -> None:
    pages = play(catalog, "search[mug]", "click[mug1]", "click[red]", "click[< prev]", mode="text_rich")
    assert pages[0] == "WebShop\nInstruction: \nfind a blue mug\n[button] Search [button_]\n"
    assert "\n[button] MUG1 [button_]\nBlue Enamel Mug\n$10.0\n" in pages[1]
    assert "color\n  [button] blue [button_]\n  [button] red [button_]\nsize\n" in pages[2]
    assert pages[3].startswith("You have clicked red.\nInstruction:\n")
    assert "  [clicked button] red [clicked button_]\n" in pages[3]
    assert "\n[clicked button] MUG1 [clicked button_]\n" in pages[4]


def test_brief_pages(catalog: Catalog) -> None:
    actions = ("search[blue mug]", "click[mug1]", "click[red]", "click[features]", "click[< prev]")
    pages = play(catalog, *actions, mode="brief")
    assert pages[:4] == [
        "search",
        "page 1 #MUG1 Blue Enamel Mug 10 #MUG2 Red Clay Mug 20 to 30",
        "#MUG1 Blue Enamel Mug 10 ; color blue , red ; size small , large",
        "#MUG1 Blue Enamel Mug 10 ; color blue , red ; size small , large ; chosen red",
    ]
    assert pages[4] == "features of #MUG1 ; Holds 300 ml ; Dishwasher safe"
    assert pages[5] == pages[3]
    done = play(catalog, "search[mug]", "click[mug1]", "click[buy now]", mode="brief")[-1]
    assert done == "bought #MUG1 Blue Enamel Mug 10"


def test_the_end_of_an_episode(catalog: Catalog) -> None:
    environment = WebShopEnv(catalog, max_steps=2)
    with pytest.raises(RuntimeError, match="call reset"):
        environment.step("search[mug]")
    environment.reset(goal=0)
    assert environment.step("search[mug]")[2:4] == (False, False)
    assert environment.step("click[mug1]")[2:4] == (False, True)
    with pytest.raises(RuntimeError, match="call reset"):
        environment.step("click[buy now]")


def test_which_goal(catalog: Catalog) -> None:
    assert WebShopEnv(catalog, goal=1).reset()[1]["goal"] == 1
    assert WebShopEnv(catalog, goal=1).reset(goal=0)[1]["goal"] == 0
    environment = WebShopEnv(catalog)
    drawn = [environment.reset(seed=seed)[1]["goal"] for seed in range(30)]
    assert set(drawn) == {0, 1}
    assert drawn == [environment.reset(seed=seed)[1]["goal"] for seed in range(30)]
    for wrong in (-1, 2):
        with pytest.raises(ValueError, match="has goals 0 to 1"):
            environment.reset(goal=wrong)


def test_wrong_settings(catalog: Catalog) -> None:
    with pytest.raises(ValueError, match="choose one of text, text_rich, brief"):
        WebShopEnv(catalog, "html")
    with pytest.raises(ValueError, match="max_steps is 0"):
        WebShopEnv(catalog, max_steps=0)


@given(
    st.lists(st.one_of(st.text(max_size=30), st.integers(0, 30)), max_size=25), st.sampled_from(["text", "text_rich"])
)
def test_no_sequence_of_actions_breaks_a_session(choices: list[str | int], mode: str) -> None:
    """Numbers choose what can be clicked, texts are sent as they are and as searches."""
    environment = WebShopEnv(CATALOG, mode)
    _, info = environment.reset(goal=0)
    for choice in choices:
        clickables = info["available_actions"]["clickables"]
        if isinstance(choice, str):
            action = choice if "[" in choice else f"search[{choice}]"
        else:
            action = f"click[{clickables[choice % len(clickables)]}]"
        observation, reward, terminated, _, info = environment.step(action)
        assert observation
        assert 0 <= reward <= 1
        if terminated:
            return
        assert reward == 0
