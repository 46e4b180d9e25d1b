"""The rooms of docs/architecture.md and what each may import, held against the import contracts and the code."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grimp
import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "hgpo"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
DECISION = (ROOT / "docs" / "decisions" / "001-layout.md").read_text(encoding="utf-8")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACTS: list[dict[str, Any]] = PYPROJECT["tool"]["importlinter"]["contracts"]
LAYERS = [  # from the top: rooms of one floor, such as "grouping | returns"
    layer.replace("hgpo.", "") for contract in CONTRACTS if contract["type"] == "layers" for layer in contract["layers"]
]
ROW = re.compile(r"^\| (\d+) \| `(\w+)` \|.*\| (all below|all below but (?:`\w+`(?:, )?)+|nothing) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Rooms:
    """Where the rooms lie, and what each may import.

    Attributes:
        floors: room -> its floor, 0 the lowest.
        allowed: room -> the rooms it may import.

    Example: `Rooms({"steps": 1, "files": 0}, {"steps": {"files"}, "files": set()})`.
    """

    floors: dict[str, int]
    allowed: dict[str, set[str]]


def below(room: str, floors: dict[str, int]) -> set[str]:
    return {other for other, floor in floors.items() if floor < floors[room]}


def documented(page: str) -> Rooms:
    """What the page's table says."""
    rows = ROW.findall(page)
    floors = {room: int(floor) for floor, room, _ in rows}
    excepted = {room: set(re.findall(r"`(\w+)`", cell)) for _, room, cell in rows}
    return Rooms(
        floors, {room: set() if cell == "nothing" else below(room, floors) - excepted[room] for _, room, cell in rows}
    )


def enforced(rooms: set[str]) -> Rooms:
    """What the contracts say. A room that no layer names is held to the lowest floor: it may import none."""
    layers = [[room.strip() for room in layer.split("|")] for layer in reversed(LAYERS)]
    floors = {room: floor for floor, layer in enumerate(layers) for room in layer}
    floors.update(dict.fromkeys(rooms - set(floors), 0))
    forbidden = {
        (source.removeprefix("hgpo."), target.removeprefix("hgpo."))
        for contract in CONTRACTS
        if contract["type"] == "forbidden"
        for source in contract["source_modules"]
        for target in contract["forbidden_modules"]
    }
    return Rooms(
        floors, {room: {other for other in below(room, floors) if (room, other) not in forbidden} for room in floors}
    )


def rooms_on_disk() -> set[str]:
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    return modules | {path.name for path in SOURCE.iterdir() if path.is_dir() and any(path.glob("*.py"))}


def imports_between_rooms() -> dict[str, set[str]]:
    """Room -> the rooms that its modules really import; `hgpo` is the package's own `__init__`."""
    graph = grimp.build_graph("hgpo", cache_dir=None)
    found: dict[str, set[str]] = {room_of(module): set() for module in graph.modules}
    for module in graph.modules:
        for target in graph.find_modules_directly_imported_by(module):
            found[room_of(module)].add(room_of(target))
    return {room: others - {room} for room, others in found.items()}


def room_of(module: str) -> str:
    """The room of a module, such as `envs` for `hgpo.envs.base`; the package itself is `hgpo`."""
    return module.split(".")[1] if "." in module else module


def problems(page: str, rooms: set[str], imports: dict[str, set[str]]) -> list[str]:
    """What the page, the contracts and the code do not agree about."""
    table, law = documented(page), enforced(rooms)
    found = [f"{room} is not in the table" for room in sorted(rooms - set(table.floors))]
    found += [f"{room} is in the table and not in the code" for room in sorted(set(table.floors) - rooms)]
    found += [f"{room} is no package: it has no __init__.py" for room in sorted(rooms - set(imports))]
    for room in sorted(rooms & set(table.floors)):
        if table.floors[room] != law.floors[room]:
            found.append(f"{room} is on floor {law.floors[room]}, the table says {table.floors[room]}")
        for other in sorted((table.allowed[room] ^ law.allowed[room]) & set(table.floors)):
            found.append(f"{room} -> {other}: the table and the contracts differ")
        for other in sorted(imports.get(room, set()) - table.allowed[room]):
            found.append(f"{room} imports {other}, which the table does not allow")
    return found


def test_the_page_says_what_the_contracts_allow_and_the_code_does() -> None:
    assert problems(PAGE, rooms_on_disk(), imports_between_rooms()) == []


def test_the_package_itself_is_above_all_rooms() -> None:
    imports = imports_between_rooms()
    assert imports.pop("hgpo") == {"estimators", "steps"}
    assert [room for room, others in imports.items() if "hgpo" in others] == []


def test_the_decision_shows_the_layers() -> None:
    assert re.findall(r"^    (\S.*)$", DECISION, re.MULTILINE) == LAYERS


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("| 4 | `storage` |", "| 4 | storage |", "storage is not in the table"),
        ("| 4 | `storage` |", "| 4 | `cellar` |", "cellar is in the table and not in the code"),
        ("| 4 | `storage` |", "| 3 | `storage` |", "storage is on floor 4, the table says 3"),
        ("of servers) | all below but `estimators` |", "of servers) | all below |", "envs -> estimators: the table"),
    ],
)
def test_a_wrong_table_is_found(old: str, new: str, problem: str) -> None:
    assert old in PAGE
    found = problems(PAGE.replace(old, new), rooms_on_disk(), imports_between_rooms())
    assert any(line.startswith(problem) for line in found), found


def test_a_new_room_has_to_be_documented() -> None:
    imports = {**imports_between_rooms(), "kitchen": set()}
    assert problems(PAGE, {*rooms_on_disk(), "kitchen"}, imports) == ["kitchen is not in the table"]


def test_an_import_that_the_table_does_not_allow_is_found() -> None:
    imports = imports_between_rooms()
    imports["envs"].add("estimators")
    assert problems(PAGE, rooms_on_disk(), imports) == ["envs imports estimators, which the table does not allow"]
