from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hgpo.envs.webshop import Catalog
from hgpo.envs.webshop.product import iterate_records, read_mapping
from unit.envs.webshop.shop import GOAL, HUMAN_GOAL, MUG, product, small_catalog
from unit.envs.webshop.test_product import RECORD

FACTS = {"B1": {"attributes": ["blue"], "instruction": "Find me mugs", "instruction_attributes": ["blue"]}}


def write(folder: Path, products: Any, attributes: Any = FACTS) -> tuple[Path, Path]:
    files = folder / "products.json", folder / "attributes.json"
    for file, content in zip(files, (products, attributes), strict=True):
        file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return files


def test_loading(tmp_path: Path) -> None:
    catalog = Catalog.load(*write(tmp_path, [RECORD, {**RECORD, "asin": "B2"}]), seed=1)
    assert [product.asin for product in catalog.products] == ["B1", "B2"]
    assert {goal.options["color"] for goal in catalog.goals} == {"navy | red", "blue"}  # type: ignore[call-overload]
    assert catalog.index.search("mug", 1) == [0]


def test_a_catalogue_without_instructions_has_no_goals(tmp_path: Path) -> None:
    catalog = Catalog.load(*write(tmp_path, [RECORD], {}))
    assert len(catalog.goals) == 0
    with pytest.raises(ValueError, match="no goals"):
        catalog.draw_goal(random.Random(0))


@pytest.mark.parametrize(
    ("products", "attributes", "message"),
    [
        ("", {}, "element 0: not a valid JSON list .*the file ends"),
        ('{"a": 1}', {}, "record 0: no 'asin'"),
        ('[{"asin": "B1"', {}, "element 0: not a valid JSON list"),
        ('[{"asin": "nan"}', {}, "expected a comma or the end of the list"),
        ('[{"asin": "nan"} {}]', {}, "element 1: .*expected a comma"),
        ('[{"asin": "nan"},]', {}, "element 1: not a valid JSON list"),
        ("[]", {}, "no product with an id"),
        ("[3]", {}, "record 0: a product is a JSON object"),
        ([RECORD], "[1, 2]", "element 0: expected an object with the id of its product"),
        ([RECORD], "{", "element 0: not a valid JSON list"),
        ([RECORD], "[" * 100_000, "not valid JSON"),
        ("[" * 100_000, {}, "not a valid JSON list"),
        ([RECORD], {"B1": 3}, "entry of 'B1' is int"),
    ],
)
def test_malformed_files_are_named(tmp_path: Path, products: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        Catalog.load(*write(tmp_path, products, attributes))
    assert str(tmp_path) in str(error.value)


def test_files_that_are_not_text_or_not_there(tmp_path: Path) -> None:
    products, attributes = write(tmp_path, [RECORD])
    with pytest.raises(FileNotFoundError, match="no such file"):
        Catalog.load(tmp_path / "none.json", attributes)
    with pytest.raises(FileNotFoundError, match="no such file"):
        Catalog.load(products, tmp_path / "none.json")
    products.write_bytes(b'[{"asin": "\xff\xfe"}]')
    with pytest.raises(ValueError, match="not a valid JSON list"):
        Catalog.load(products, attributes)
    with pytest.raises(ValueError, match="choose 'blank'"):
        Catalog.load(tmp_path / "none.json", attributes, nouns="best")


def test_records_longer_than_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hgpo.envs.webshop.product._CHUNK", 7)
    file = tmp_path / "list.json"
    content = [{"a": "x" * number, "b": [number, "]", "}", 'quo"te', "ü"]} for number in range(30)]
    file.write_text(json.dumps(content, indent=1))
    assert list(iterate_records(file)) == content
    assert read_mapping(write(tmp_path, [])[1]) == FACTS


def test_saved_and_opened(tmp_path: Path) -> None:
    catalog = small_catalog()
    catalog.save(tmp_path / "kept", about={"seed": 1})
    kept = Catalog.open(tmp_path / "kept", about={"seed": 1})
    assert list(kept.products) == list(catalog.products)
    assert list(kept.goals) == [GOAL, HUMAN_GOAL]
    assert kept.goals[-1] == HUMAN_GOAL
    assert kept.products[1:3] == list(catalog.products[1:3])
    assert list(kept.prices) == [10.0, 25.0, 10.0, 10.0]
    assert kept.index.search("blue mug", 5) == catalog.index.search("blue mug", 5)
    assert kept.having("category", "beauty") == [3]


def test_half_a_surrogate_pair_is_saved_and_opened(tmp_path: Path) -> None:
    half = product("\ud83d1", "Mug \ud83d", description="tea \ud83d")
    catalog = Catalog([half, MUG], np.array([10.0, 10.0]), [replace(GOAL, instruction="find \ud83d")])
    catalog.save(tmp_path / "kept")
    kept = Catalog.open(tmp_path / "kept")
    assert list(kept.products) == [half, MUG]
    assert list(kept.goals) == list(catalog.goals)
    assert kept.index.search("mug \ud83d", 5) == catalog.index.search("mug \ud83d", 5)
    assert kept.digest == catalog.digest


def test_the_name_of_a_saved_catalogue_survives_a_power_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[tuple[Path, bool]] = []
    kept = tmp_path / "kept"
    monkeypatch.setattr("hgpo.utils.files.flush", lambda path: flushed.append((path, kept.exists())))
    small_catalog().save(kept)
    assert flushed[-1] == (tmp_path, True)


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    small_catalog().save(tmp_path / "kept", about={"seed": 1})
    with pytest.raises(FileExistsError, match="exists; choose another folder"):
        small_catalog().save(tmp_path / "kept")
    with pytest.raises(ValueError, match=r"made from \{'seed': 1\}, not from \{'seed': 2\}"):
        Catalog.open(tmp_path / "kept", about={"seed": 2})
    with pytest.raises(ValueError, match="not a usable saved catalogue"):
        Catalog.open(tmp_path)
    (tmp_path / "kept" / "saturation.npy").unlink()
    with pytest.raises(ValueError, match="not a usable saved catalogue"):
        Catalog.open(tmp_path / "kept")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept"]  # nothing half-made stays behind


def test_truncated_and_foreign_arrays_of_a_saved_catalogue_are_named(tmp_path: Path) -> None:
    small_catalog().save(tmp_path / "whole")
    Catalog.open(tmp_path / "whole")
    np.save(tmp_path / "other.npy", np.full(3, 7, np.int64))
    for path in sorted((tmp_path / "whole").glob("*.npy")):
        kept = path.read_bytes()
        for changed in (b"", kept[:-1], kept[:40], (tmp_path / "other.npy").read_bytes()):
            path.write_bytes(changed)
            with pytest.raises(ValueError, match=rf"not a usable saved catalogue.*{path.name}"):
                Catalog.open(tmp_path / "whole")
        path.write_bytes(kept)
    Catalog.open(tmp_path / "whole")


@pytest.mark.parametrize("name", ["products", "goals"])
@pytest.mark.parametrize("changed", [b"{", b"\xff", b"["])
def test_a_damaged_record_is_named_when_it_is_read(tmp_path: Path, name: str, changed: bytes) -> None:
    small_catalog().save(tmp_path / "kept")
    path = tmp_path / "kept" / f"{name}.npy"
    path.write_bytes(path.read_bytes().replace(b"[", changed, 1) if changed != b"[" else path.read_bytes()[:-1] + b"}")
    catalog = Catalog.open(tmp_path / "kept")
    with pytest.raises(ValueError, match=rf"{name}\.npy, record \d+: damaged .*; remove .*kept to rebuild it"):
        list(getattr(catalog, name))


def test_arrays_that_hide_objects_are_refused(tmp_path: Path) -> None:
    small_catalog().save(tmp_path / "kept")
    np.save(tmp_path / "kept" / "prices.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="not a usable saved catalogue"):
        Catalog.open(tmp_path / "kept")


def test_an_empty_catalogue_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one product"):
        Catalog((), small_catalog().prices, ())
