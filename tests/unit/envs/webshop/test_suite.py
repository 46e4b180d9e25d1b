from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from generated_games import numbers
from hgpo.envs.webshop import Catalog, Expert, ShopSize, WebShopEnv, generate_catalog, webshop_suite
from hgpo.envs.webshop.expert import Instruction, Offer, parse_instruction, read_offers
from hgpo.envs.webshop.generator import DEPARTMENTS, OPTION_VALUES, SIZES, shop_size
from hgpo.envs.webshop.reward import token_set_ratio
from hgpo.envs.webshop.suite import SCHEMES, published_draw, split_goals
from hgpo.envs.wrappers import LimitedSuite
from unit.envs.webshop.shop import GOAL, small_catalog
from unit.envs.webshop.test_product import RECORD

FEW = {"train": 60, "valid_seen": 12, "valid_unseen": 30}
GOALS: dict[str, Any] = numbers(FEW, "goals")


def wishes(suite: object, split: str) -> list[tuple[str, str]]:
    """(shop, instruction) of every task."""
    return [(task.id.split("-")[1], str(task.make().reset()[1]["task"])) for task in suite.tasks(split)]  # type: ignore[attr-defined]


def test_splits_and_numbers_of_tasks() -> None:
    suite = webshop_suite(**GOALS)
    assert suite.splits == ("train", "valid_seen", "valid_unseen")
    assert {split: len(suite.tasks(split)) for split in suite.splits} == FEW
    ids = [task.id for split in suite.splits for task in suite.tasks(split)]
    assert len(set(ids)) == sum(FEW.values())
    assert {task.kind for task in suite.tasks("train")} <= set(DEPARTMENTS)
    assert len(suite.tasks("train")[3:5]) == 2


def test_what_is_held_out_is_not_trained_on() -> None:
    suite = webshop_suite(**GOALS)
    train, seen, unseen = (wishes(suite, split) for split in suite.splits)
    assert len(set(train)) == len(train)
    assert not set(train) & set(seen)
    assert {shop for shop, _ in seen} <= {shop for shop, _ in train}
    assert not {shop for shop, _ in train} & {shop for shop, _ in unseen}


def test_the_same_seed_gives_the_same_shops_and_another_one_others() -> None:
    assert wishes(webshop_suite(**GOALS), "train") == wishes(webshop_suite(**GOALS), "train")
    assert wishes(webshop_suite(**GOALS), "train") != wishes(webshop_suite(**GOALS, seed=1), "train")
    more = webshop_suite(**numbers({**FEW, "train": 80}, "goals"))
    assert wishes(more, "train")[:60] == wishes(webshop_suite(**GOALS), "train")


def test_tasks_can_be_sent_to_other_processes() -> None:
    task = webshop_suite(**GOALS).tasks("valid_unseen")[0]
    sent = pickle.dumps(task)
    assert len(sent) < 1000  # the recipe travels, not the shop
    assert pickle.loads(sent).make().reset()[0] == task.make().reset()[0]  # noqa: S301


@pytest.mark.parametrize("mode", ["brief", "text", "text_rich"])
@pytest.mark.parametrize("size", ["small", "medium"])
def test_the_expert_gets_what_is_wanted(size: str, mode: str) -> None:
    suite = webshop_suite(size=size, **GOALS, observation_mode=mode)
    scores = [
        shop_by_rule(task.make(), suite.expert()) for split in ("train", "valid_unseen") for task in suite.tasks(split)
    ]
    assert sum(score == 1 for score in scores) >= 0.97 * len(scores)


def shop_by_rule(environment: WebShopEnv, expert: Expert, most: int = 25) -> float:
    observation, info = environment.reset()
    expert.reset(observation, info)
    for _ in range(most):
        observation, _, terminated, _, info = environment.step(expert.act(observation, info))
        if terminated:
            break
    return float(info["score"])


def test_the_expert_recovers_from_what_others_did() -> None:
    environment = webshop_suite(**GOALS).tasks("train")[0].make()
    expert = Expert()
    observation, info = environment.reset()
    expert.reset(observation, info)
    expert.act(observation, info)
    for action in ("search[shop of nothing]", "click[back to search]", "search[a]"):
        observation, _, _, _, info = environment.step(action)
    for _ in range(20):
        observation, _, terminated, _, info = environment.step(expert.act(observation, info))
        if terminated:
            break
    assert info["score"] == 1


@pytest.mark.parametrize("mode", ["brief", "text", "text_rich"])
def test_the_expert_chooses_no_option_twice_although_another_policy_opens_a_sub_page(mode: str) -> None:
    environment, expert = webshop_suite(**GOALS, observation_mode=mode).tasks("train")[0].make(), Expert()
    observation, info = environment.reset()
    expert.reset(observation, info)
    actions: list[str] = []
    while not info["won"] and len(actions) < 20:
        action = expert.act(observation, info)
        if actions and actions[-1] in [f"click[{value}]" for value in parse_instruction(info["task"]).options]:
            action = "click[description]"
        actions.append(action)
        observation, *_, info = environment.step(action)
    assert info["won"]
    clicks = [action for action in actions if action not in ("click[description]", "click[< prev]")]
    assert len(set(clicks)) == len(clicks)


def test_wishes_are_read_from_both_kinds_of_instructions() -> None:
    assert parse_instruction("wool scarf , color blue , price under 30") == Instruction("wool scarf", ("blue",), 30.0)
    official = "Find me shirts with long sleeve with color: navy, and size: x-large, and price lower than 40.00 dollars"
    assert parse_instruction(official) == Instruction("shirts with long sleeve", ("navy", "x-large"), 40.0)
    assert parse_instruction("a mug") == Instruction("a mug", (), float("inf"))


def test_offers_are_read_whatever_the_titles_hold() -> None:
    page = "page 1 #MUG1 Mug #5 ; 12 pieces 10 #MUG2 Red Clay Mug 20 to 30"
    assert read_offers(page, ["back to search", "next >", "mug1", "mug2"]) == [
        Offer("mug1", "Mug #5 ; 12 pieces", 10.0, True),
        Offer("mug2", "Red Clay Mug", 20.0, True),
    ]
    assert read_offers("page 2", ["back to search", "< prev", "next >"]) == []


def test_every_goal_of_a_shop_can_be_had_in_full() -> None:
    catalog = generate_catalog("small", seed=3)
    assert len({goal.instruction for goal in catalog.goals}) == len(catalog.goals) >= 40
    for number, goal in enumerate(catalog.goals):
        environment = WebShopEnv(catalog)
        environment.reset(goal=number)
        environment.step(f"search[<q> {catalog.products[goal.product].query}]")
        while f"click[{goal.asin.lower()}]" not in environment.step("x")[-1]["admissible_commands"]:
            environment.step("click[next >]")
        environment.step(f"click[{goal.asin}]")
        for value in goal.options.values():  # type: ignore[union-attr]
            environment.step(f"click[{value}]")
        assert environment.step("click[buy now]")[1] == 1


def test_no_word_of_the_shops_is_taken_for_another() -> None:
    lists = [[*department["kinds"], *department["attributes"]] for department in DEPARTMENTS.values()]
    for words in [*lists, *OPTION_VALUES.values()]:
        alike = [(a, b) for a in words for b in words if a != b and (a in b or token_set_ratio(a, b) > 85)]
        assert not alike


def test_brief_pages_stay_short() -> None:
    """A prompt holds three of them."""
    for task in webshop_suite(**GOALS).tasks("train")[:30]:
        environment = task.make()
        observation, info = environment.reset()
        for action in (f"search[{info['task']}]", "click[next >]"):
            observation = environment.step(action)[0]
            assert len(observation.split()) <= 20


def test_ids_are_as_short_as_they_can_be() -> None:
    for products, length in ((1, 1), (26, 1), (27, 2), (260, 2), (261, 3)):
        ids = [product.asin for product in generate_catalog({"products": products}).products]
        assert {len(asin) for asin in ids} == {length}
        assert len(set(ids)) == products


def test_sizes() -> None:
    assert shop_size({"products": 7}).products == 7
    assert shop_size(SIZES["large"]) is SIZES["large"]
    assert len(generate_catalog(ShopSize(300, 32, 2, 8, 10, 50)).products) == 300
    for wrong, message in (
        ("huge", "unknown size 'huge'"),
        ({"shelves": 1}, "shelves: Unexpected keyword"),
        ({"kinds": 0}, "kinds: Input should be greater than or equal to 1"),
    ):
        with pytest.raises(ValueError, match=message):
            webshop_suite(size=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_goals": 20, "valid_seen_goals": 50}, "request fewer, or more training goals"),
        (
            {"train_goals": 20_000_001},
            "train: 20000001 goals requested; give at most 20000000: later shops belong",
        ),
        ({"observation_mode": "html"}, "choose one of text, text_rich, brief"),
        ({"nouns": "best"}, "choose 'blank'"),
        ({"human_goals": True}, "human_goals, keep_in, split_scheme: only for official files"),
        ({"split_scheme": "verl-agent"}, "split_scheme: only for official files"),
        ({"data_dir": "x", "size": "small"}, "only for generated shops"),
    ],
)
def test_wrong_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        webshop_suite(**options)  # type: ignore[arg-type]


def official_files(folder: Path) -> Path:
    records = [{**RECORD, "asin": f"B{number}"} for number in range(800)]
    facts = {
        f"B{number}": {
            "attributes": ["blue"],
            "instruction": f"Find me mug {number}",
            "instruction_attributes": ["blue"],
        }
        for number in range(800)
    }
    (folder / "items_shuffle_1000.json").write_text(json.dumps(records))
    (folder / "items_ins_v2_1000.json").write_text(json.dumps(facts))
    return folder


def test_official_files_and_their_splits(tmp_path: Path) -> None:
    suite = webshop_suite(official_files(tmp_path), max_steps=5)
    assert suite.splits == ("train", "validation", "test")
    assert [len(suite.tasks(split)) for split in suite.splits] == [100, 1000, 500]
    numbers = [{task.id.split("-")[1] for task in suite.tasks(split)} for split in suite.splits]
    assert len(set.union(*numbers)) == 1600
    environment = suite.tasks("test")[0].make()
    assert environment.reset()[0].startswith("WebShop [SEP] Instruction: [SEP] Find me mug")
    assert suite.description["nouns"] == "blank"
    limited = LimitedSuite(suite, 3)
    assert limited.expert() is not None


def test_a_kept_catalogue_is_used_again(tmp_path: Path) -> None:
    files, kept = official_files(tmp_path), tmp_path / "kept"
    first = webshop_suite(files, keep_in=kept, split_scheme="verl-agent")
    assert first.splits == ("train", "validation", "validation_256")
    again = webshop_suite(files, keep_in=kept, split_scheme="verl-agent")
    assert first.tasks("validation")[7].id == again.tasks("validation")[7].id
    assert webshop_suite(kept).tasks("test")[7].id.endswith(again.tasks("validation")[7].id.split("0007")[1])
    with pytest.raises(ValueError, match="'seed': 0"):
        webshop_suite(files, keep_in=kept, seed=1)
    with pytest.raises(ValueError, match="is a saved catalogue"):
        webshop_suite(kept, human_goals=True)
    with pytest.raises(ValueError, match=r"seed=1, but the seed of the saved catalogue .* is 0; leave seed out"):
        webshop_suite(kept, seed=1)
    webshop_suite(kept, seed=0)


def test_a_kept_catalogue_is_described_by_its_files_and_its_seed(tmp_path: Path) -> None:
    files, kept = official_files(tmp_path), tmp_path / "kept"
    first = webshop_suite(files, keep_in=kept, seed=7).description
    assert first["seed"] == webshop_suite(kept).description["seed"] == 7
    assert first["products"] == str(files / "items_shuffle_1000.json")
    assert "items_shuffle_1000.json" in webshop_suite(kept).description["files"]


def test_processes_that_save_a_catalogue_at_the_same_time_all_open_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, kept = official_files(tmp_path), tmp_path / "kept"
    load = Catalog.load

    def slow(*words: Any, **named: Any) -> Catalog:
        monkeypatch.undo()
        webshop_suite(files, keep_in=kept)  # the other process, which is faster
        return load(*words, **named)

    monkeypatch.setattr(Catalog, "load", slow)
    assert webshop_suite(files, keep_in=kept).description["folder"] == str(kept)


def test_missing_files_and_variables(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"items_shuffle\.json"):
        webshop_suite(tmp_path)
    with pytest.raises(FileNotFoundError, match="attributes: no such file: none named"):
        webshop_suite(products=official_files(tmp_path) / "items_shuffle_1000.json")
    with pytest.raises(FileNotFoundError, match="contains a variable that is not set"):
        webshop_suite("$NO_SUCH_VARIABLE_HERE")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_goal_is_in_at_most_one_split(scheme: str) -> None:
    goals = [GOAL] * 4 + [type(GOAL)(0, f"B{number}", "x", ("a",), {}, 1.0) for number in range(2000)] + [GOAL]
    found = {split: split_goals(goals, scheme, split) for split in SCHEMES[scheme]}
    every = [number for numbers in found.values() for number in numbers]
    assert len(set(every)) == len(every) == len(goals) - 1  # the last is word for word one that is held out
    assert len(goals) - 1 not in found["train"]


def test_the_256_goals_are_drawn_as_in_the_published_code(tmp_path: Path) -> None:
    """`RandomState(seed).choice(goals, size=128, replace=False)` for each of two batches, seed 1000."""
    drawn = published_draw()
    assert len(drawn) == 256
    assert drawn[:8] == (319, 207, 22, 420, 352, 491, 60, 264)
    assert [len(set(batch)) for batch in (drawn[:128], drawn[128:])] == [128, 128]
    assert len(set(drawn)) == 256 - 28
    assert set(drawn) <= set(range(500))
    suite = webshop_suite(official_files(tmp_path), split_scheme="verl-agent")
    tasks, held_out = suite.tasks("validation_256"), suite.tasks("validation")
    assert len({task.id for task in tasks}) == 256
    for task, number in zip(tasks, drawn, strict=True):
        assert task.id.rpartition("-goal")[2] == held_out[number].id.rpartition("-goal")[2]


def test_too_few_goals_to_draw_from(tmp_path: Path) -> None:
    files = official_files(tmp_path)
    products = json.loads((files / "items_shuffle_1000.json").read_text())
    (files / "items_shuffle_1000.json").write_text(json.dumps(products[:2]))
    assert webshop_suite(files, split_scheme="verl-agent").splits == ("train", "validation")


def test_an_unknown_scheme_is_named() -> None:
    with pytest.raises(ValueError, match="choose one of official, verl-agent"):
        split_goals(small_catalog().goals, "random", "train")


def test_catalogs_are_made_once() -> None:
    tasks = webshop_suite(**GOALS).tasks("train")
    assert tasks[0].make().catalog is tasks[1].make().catalog
    assert isinstance(tasks[0].make().catalog, Catalog)
