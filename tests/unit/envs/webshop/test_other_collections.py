"""Files of shops as other collections write them: read with the right values, or rejected with file and record."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from hgpo.envs.webshop import Catalog, WebShopEnv, webshop_suite
from hgpo.envs.webshop.product import Product
from hgpo.envs.wrappers import LimitedSuite
from unit.envs.webshop.test_product import RECORD

NOTHING: Mapping[str, Any] = {"missing": ..., "null": None, "nan": float("nan")}
ANN = {"instruction": "a mug", "instruction_attributes": ["blue"], "instruction_options": []}


def load(folder: Path, products: Any, attributes: Any = None, human: Any = None) -> Catalog:
    files = {"items_shuffle.json": products, "items_ins_v2.json": attributes or {}, "items_human_ins.json": human or {}}
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    paths = [folder / name for name in files]
    return Catalog.load(paths[0], paths[1], human_goals=None if human is None else paths[2])


def product(folder: Path, **changes: Any) -> Product:
    """The product of a record with changed fields; `...` removes one."""
    record = {key: value for key, value in {**RECORD, **changes}.items() if value is not ...}
    return load(folder, [record]).products[0]


def rejected(folder: Path, *said: str, **content: Any) -> None:
    with pytest.raises(ValueError, match=r"\.json") as error:
        load(folder, content.pop("products", [RECORD]), **content)
    for words in (str(folder), *said):
        assert words in str(error.value)


@pytest.mark.parametrize("nothing", NOTHING.values(), ids=NOTHING.keys())
@pytest.mark.parametrize(
    ("field", "attribute", "value"),
    [
        ("full_description", "description", ""),
        ("small_description", "bullet_points", ()),
        ("customization_options", "options", {}),  # null: read before
        ("pricing", "prices", (100.0,)),  # missing and null: read before
        ("category", "category", ""),
        ("product_category", "product_category", ""),
    ],
)
def test_fields_without_a_value(tmp_path: Path, nothing: Any, field: str, attribute: str, value: Any) -> None:
    assert getattr(product(tmp_path, **{field: nothing}), attribute) == value


@pytest.mark.parametrize("nothing", NOTHING.values(), ids=NOTHING.keys())
@pytest.mark.parametrize("field", ["name", "query"])
def test_fields_that_the_reward_needs_are_named(tmp_path: Path, nothing: Any, field: str) -> None:
    record = {key: value for key, value in {**RECORD, field: nothing}.items() if value is not ...}
    rejected(tmp_path, "record 1 (B2)", f"no '{field}'", "'query'", products=[RECORD, {**record, "asin": "B2"}])


@pytest.mark.parametrize(
    ("written", "options"),
    [
        ({"Size": [{"value": 12}, {"value": 8.5}, {"value": 9.0}]}, {"size": ("12", "8.5", "9")}),
        ({"Size": [12, "x-large"]}, {"size": ("12", "x-large")}),
        ({"Color": "Navy/Red"}, {"color": ("navy | red",)}),
        ({"Color": {"value": "Navy"}}, {"color": ("navy",)}),
        ({"Color": []}, {"color": ()}),  # read before
        ({"Color": float("nan")}, {}),
        ([], {}),  # read before
    ],
)
def test_options_of_a_product(tmp_path: Path, written: Any, options: Mapping[str, tuple[str, ...]]) -> None:
    assert product(tmp_path, customization_options=written).options == options


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("color: navy", "customization_options is str; it must map names to lists"),
        (["navy"], "customization_options is list"),  # rejected before
        ({"color": [None]}, "customization_options, 'color': a value is NoneType"),
        ({"color": [{"value": None}]}, "customization_options, 'color': a value is NoneType"),
        ({"color": [["navy"]]}, "customization_options, 'color': a value is list"),
        ({"color": [True]}, "a value is bool"),
    ],
)
def test_options_that_are_none_are_named(tmp_path: Path, written: Any, said: str) -> None:
    rejected(tmp_path, "record 0 (B1)", said, products=[{**RECORD, "customization_options": written}])


def test_numbers_are_texts(tmp_path: Path) -> None:
    book = product(tmp_path, asin=1984, name=1984, small_description=[3, "sides"], query=7, full_description=1.5)
    assert (book.asin, book.title, book.bullet_points, book.query) == ("1984", "1984", ("3", "sides"), "7")


PAGES = {"a list": "[{0}, {1}]", "lines": "{0}\n{1}\n", "a byte order mark": "\ufeff[{0},{1}]"}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", PAGES.values(), ids=PAGES.keys())
def test_forms_of_files(tmp_path: Path, form: str, packed: bool) -> None:
    """A list that is not compressed was read before."""
    pack: Callable[[bytes], bytes] = gzip.compress if packed else bytes
    shop = [json.dumps({**RECORD, "asin": asin}) for asin in ("B1", "B2")]
    (tmp_path / "items_shuffle_5000.json").write_bytes(pack(form.format(*shop).encode()))
    facts = [json.dumps({"asin": asin, "attributes": ["blue"], **ANN}) for asin in ("B1", "B2")]
    (tmp_path / "items_ins_v3.jsonl.gz").write_bytes(pack(form.format(*facts).encode()))
    suite = webshop_suite(tmp_path)
    catalog = suite.tasks("test")[0].make().catalog  # type: ignore[attr-defined]
    assert [(item.asin, item.attributes) for item in catalog.products] == [("B1", ("blue",)), ("B2", ("blue",))]
    assert len(catalog.goals) == 4  # two colours of each


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(b"[" + b" " * 99_999)[:60], "Compressed file ended"),
        (gzip.compress(b"[]")[:-6] + b"\0" * 6, "element 0"),
        (b'{"asin": "B1", "name": "Mug"', "element 0"),
        (json.dumps(RECORD).encode() + b"\n{", "element 1"),
        (b"asin,name\nB1,Mug\n", "expected a list of products, or one product per line, found 'a'"),
    ],
    ids=["gzip cut", "gzip damaged, rejected before", "object cut, rejected before", "line cut", "CSV"],
)
def test_files_that_are_cut_or_of_another_kind_are_named(tmp_path: Path, content: bytes, said: str) -> None:
    load(tmp_path, [RECORD])
    (tmp_path / "items_shuffle.json").write_bytes(content)
    with pytest.raises(ValueError, match="items_shuffle") as error:
        webshop_suite(tmp_path)
    assert said in str(error.value)


def test_several_files_of_other_names_are_a_question(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"items_shuffle_{number}.json").write_text(json.dumps([RECORD]))
    with pytest.raises(ValueError, match=r"items_shuffle_1\.json, items_shuffle_2\.json; name one with products="):
        webshop_suite(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"attributes: no such file.*name others with attributes="):
        webshop_suite(tmp_path, products="items_shuffle_1.json")


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        (
            {"B1": {"attributes": "blue"}},
            "attributes of B1 is not a list of strings but the string 'blue'; write [\"blue\"]",
        ),
        ({"B1": {"attributes": {"color": "blue"}}}, "attributes of B1 is not a list of strings but dict"),
        ({"B1": {"attributes": [None]}}, "attributes of B1 is not a list of strings: element 0"),
        ({"B1": [ANN]}, "attributes of B1: expected an object, not a list; a file of human-written goals"),
        ({"B1": {"instruction": 1, "instruction_attributes": "blue"}}, "instruction_attributes of B1"),
        ({"B1": {"instruction": ["a"], "instruction_attributes": ["blue"]}}, "instruction of B1 is list, not text"),
        ([{"attributes": ["blue"]}], "element 0: expected an object with the id of its product, 'asin'"),
    ],
)
def test_attributes_that_are_none_are_named(tmp_path: Path, attributes: Any, said: str) -> None:
    rejected(tmp_path, "items_ins_v2.json", said, attributes=attributes)


@pytest.mark.parametrize(
    ("attributes", "found"),
    [
        ({"B1": None}, ("DUMMY_ATTR",)),
        ({"B1": {"attributes": None}}, ("DUMMY_ATTR",)),
        ({"B1": {"attributes": []}}, ()),  # read before
        ([{"asin": "B1", "attributes": ["blue"]}], ("blue",)),
    ],
)
def test_attributes_of_a_product(tmp_path: Path, attributes: Any, found: tuple[str, ...]) -> None:
    assert load(tmp_path, [RECORD], attributes).products[0].attributes == found


def bought(catalog: Catalog, *clicks: str) -> float:
    """The score of buying the goal's product with options."""
    env = WebShopEnv(catalog)
    env.reset(goal=0)
    env.step("search[mug]")
    env.step("click[b1]")
    for click in clicks:
        env.step(f"click[{click}]")
    return float(env.step("click[buy now]")[4]["score"])


@pytest.mark.parametrize(
    ("written", "options", "click", "other"),
    [
        ({"color": "navy"}, {"color": "navy"}, "navy", "white"),
        ({"color": ["navy"]}, {"color": "navy"}, "navy", "white"),
        ({"color": {"value": "navy"}}, {"color": "navy"}, "navy", "white"),
        ({"size": 12}, {"size": "12"}, "12", "14"),
        ({"size": "x-large"}, {"size": "x-large"}, "x-large", "14"),
        ([12], ["12"], "12", "14"),
        (["navy"], ["navy"], "navy", "white"),  # read before
    ],
)
def test_wanted_options_are_compared_by_value(
    tmp_path: Path, written: Any, options: Any, click: str, other: str
) -> None:
    shop = {**RECORD, "customization_options": {"color": ["navy", "white"], "size": [12, 14, "x-large"]}}
    catalog = load(tmp_path, [shop], human={"B1": [{**ANN, "instruction_options": written}]})
    assert catalog.goals[0].options == options
    catalog.save(tmp_path / "kept")
    for same in (catalog, Catalog.open(tmp_path / "kept")):
        assert bought(same, click) == 1.0
        assert bought(same, other) == pytest.approx(2 / 3)


@pytest.mark.parametrize("nothing", [..., None, [], {}, ""])
def test_goals_without_options(tmp_path: Path, nothing: Any) -> None:
    """Empty ones were read before."""
    written = {key: value for key, value in {**ANN, "instruction_options": nothing}.items() if value is not ...}
    assert load(tmp_path, [RECORD], human={"B1": [written]}).goals[0].options == []


@pytest.mark.parametrize("human", [{"B1": ANN}, [{"asin": "B1", **ANN}], json.dumps({"asin": "B1", **ANN})])
def test_a_single_goal_of_a_product(tmp_path: Path, human: Any) -> None:
    assert load(tmp_path, [RECORD], human=human).goals[0].instruction.startswith("a mug")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"instruction_options": "navy"}, "instruction_options is not a list of strings but the string 'navy'"),
        ({"instruction_options": {"color": ["navy", "white"]}}, "the value of 'color' is list, not text"),
        ({"instruction_options": {"color": None}}, "the value of 'color' is NoneType"),
        ({"instruction_options": [{"name": "color"}]}, "element 0 is dict"),
        ({"instruction_attributes": "blue"}, "the string 'blue'; write [\"blue\"]"),
        ({"instruction_attributes": {"blue": True}}, "instruction_attributes is not a list of strings but dict"),
        ({"instruction": None}, "instruction is NoneType"),
        ({"instruction": ["a"]}, "instruction is list"),
    ],
)
def test_goals_that_are_none_are_named(tmp_path: Path, changes: Any, said: str) -> None:
    human = {"B1": [ANN, {**ANN, **changes}]}
    rejected(tmp_path, "items_human_ins.json: human instructions of B1, number 1: ", said, human=human)


@pytest.mark.parametrize("empty", [[], None])
def test_goals_without_attributes_are_left_out_and_said(
    tmp_path: Path, empty: Any, caplog: pytest.LogCaptureFixture
) -> None:
    records = [RECORD, {**RECORD, "asin": "B2"}, {**RECORD, "name": "another"}, {**RECORD, "asin": "ELEVENCHARS"}]
    without = {"instruction": "a lamp", "instruction_attributes": empty}
    load(tmp_path, records, {"B1": without, "B2": ANN}, {"B1": [{**ANN, **without}, ANN]})
    reasons = {
        "products with the id of an earlier one": 1,
        "products without an id of 1 to 10 characters": 1,
        "goals without attributes": 1,
    }
    for human in (False, True):
        suite = webshop_suite(tmp_path, human_goals=human, keep_in=tmp_path / f"kept-{human}")
        assert suite.skipped("test") == reasons
        for _ in range(2):
            suite.tasks("test")
    told = [record.message for record in caplog.records if "left out" in record.message]
    assert told[1:] == [f"split 'test' has 1 task; left out: {', '.join(f'1 {reason}' for reason in reasons)}"]


def few_goals(folder: Path, number: int) -> Path:
    load(folder, [{**RECORD, "asin": f"B{n}", "customization_options": {}} for n in range(number)])
    facts = {f"B{n}": {"attributes": ["blue"], **ANN, "instruction": f"mug {n}"} for n in range(number)}
    (folder / "items_ins_v2.json").write_text(json.dumps(facts))
    return folder


@pytest.mark.parametrize(
    ("goals", "scheme", "sizes"),
    [
        (30, "official", {"test": 30}),
        (30, "verl-agent", {"validation": 30}),
        (501, "verl-agent", {"validation": 500, "validation_256": 256, "train": 1}),  # played before
        (510, "official", {"test": 500, "validation": 10}),
        (30, {"test": 5}, {"test": 5, "train": 25}),
        (30, {"test": 5, "validation": 10}, {"test": 5, "validation": 10, "train": 15}),
        (30, {"a": 0, "b": 30}, {"b": 30}),
    ],
)
def test_catalogues_with_few_goals(tmp_path: Path, goals: int, scheme: Any, sizes: Mapping[str, int]) -> None:
    suite = webshop_suite(few_goals(tmp_path, goals), split_scheme=scheme)
    played: set[str] = set()
    for split in suite.splits:
        if split in sizes:
            tasks = LimitedSuite(suite, 3).tasks(split)
            assert len(tasks) == sizes[split]
            played |= {str(task.make().reset()[1]["task"]) for task in tasks}
        else:
            with pytest.raises(
                ValueError, match=rf"split '{split}' begins at goal \d+, but this catalogue has {goals}"
            ):
                suite.tasks(split)
    assert len(played) == goals


def test_a_split_without_goals_says_which_have_some(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    suite = webshop_suite(few_goals(tmp_path, 30))
    with pytest.raises(ValueError, match=r"this catalogue has 30 goals; .*split_scheme=\{test = 6\}"):
        suite.tasks("train")
    suite.tasks("test")
    assert caplog.messages == ["split 'test' has 30 goals, not 500: the catalogue has no more"]
    for scheme in ({}, {"train": 3}):
        with pytest.raises(ValueError, match="name held-out splits only"):
            webshop_suite(tmp_path, split_scheme=scheme)
