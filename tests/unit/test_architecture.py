"""The layers in docs/architecture.md and the allowed imports, compared with the import contracts and the code."""

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
LAYERS = [  # from the top: packages of one layer, such as "grouping | returns"
    layer.replace("hgpo.", "") for contract in CONTRACTS if contract["type"] == "layers" for layer in contract["layers"]
]
ROW = re.compile(r"^\| (\d+) \| `(\w+)` \|.*\| ((?:`\w+`(?:, )?)*) ?\|$", re.MULTILINE)


@dataclass(frozen=True)
class Packages:
    """Where the packages lie, and what each may import.

    Attributes:
        layer_of: package -> its layer, 0 the lowest.
        allowed: package -> the packages it may import.

    Example: `Packages({"steps": 1, "files": 0}, {"steps": {"files"}, "files": set()})`.
    """

    layer_of: dict[str, int]
    allowed: dict[str, set[str]]


def below(package: str, layer_of: dict[str, int]) -> set[str]:
    return {other for other, layer in layer_of.items() if layer < layer_of[package]}


def documented(page: str) -> Packages:
    """What the page's table says."""
    rows = ROW.findall(page)
    layer_of = {package: int(layer) for layer, package, _ in rows}
    allowed = {package: below(package, layer_of) - set(re.findall(r"`(\w+)`", cell)) for _, package, cell in rows}
    return Packages(layer_of, allowed)


def enforced(packages: set[str]) -> Packages:
    """What the contracts say. A package that no layer names counts as one of the lowest layer: it may import none."""
    layers = [[package.strip() for package in layer.split("|")] for layer in reversed(LAYERS)]
    layer_of = {package: layer for layer, members in enumerate(layers) for package in members}
    layer_of.update(dict.fromkeys(packages - set(layer_of), 0))
    forbidden = {
        (source.removeprefix("hgpo."), target.removeprefix("hgpo."))
        for contract in CONTRACTS
        if contract["type"] == "forbidden"
        for source in contract["source_modules"]
        for target in contract["forbidden_modules"]
    }
    return Packages(
        layer_of,
        {
            package: {other for other in below(package, layer_of) if (package, other) not in forbidden}
            for package in layer_of
        },
    )


def packages_on_disk() -> set[str]:
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__"}
    return modules | {path.name for path in SOURCE.iterdir() if path.is_dir() and any(path.glob("*.py"))}


def imports_between_packages() -> dict[str, set[str]]:
    """Package -> the packages that its modules really import; `hgpo` is the package's own `__init__`."""
    graph = grimp.build_graph("hgpo", cache_dir=None)
    found: dict[str, set[str]] = {package_of(module): set() for module in graph.modules}
    for module in graph.modules:
        for target in graph.find_modules_directly_imported_by(module):
            found[package_of(module)].add(package_of(target))
    return {package: others - {package} for package, others in found.items()}


def package_of(module: str) -> str:
    """The package of a module, such as `envs` for `hgpo.envs.base`; the package itself is `hgpo`."""
    return module.split(".")[1] if "." in module else module


def problems(page: str, packages: set[str], imports: dict[str, set[str]]) -> list[str]:
    """What the page, the contracts and the code do not agree about."""
    table, law = documented(page), enforced(packages)
    found = [f"{package} is not in the table" for package in sorted(packages - set(table.layer_of))]
    found += [f"{package} is in the table and not in the code" for package in sorted(set(table.layer_of) - packages)]
    found += [f"{package} is no package: it has no __init__.py" for package in sorted(packages - set(imports))]
    for package in sorted(packages & set(table.layer_of)):
        if table.layer_of[package] != law.layer_of[package]:
            found.append(f"{package} is in layer {law.layer_of[package]}, the table says {table.layer_of[package]}")
        for other in sorted((table.allowed[package] ^ law.allowed[package]) & set(table.layer_of)):
            found.append(f"{package} -> {other}: the table and the contracts differ")
        for other in sorted(imports.get(package, set()) - table.allowed[package]):
            found.append(f"{package} imports {other}, which the table does not allow")
    return found


def test_the_page_says_what_the_contracts_allow_and_the_code_does() -> None:
    assert problems(PAGE, packages_on_disk(), imports_between_packages()) == []


def test_the_package_itself_is_above_all_packages() -> None:
    imports = imports_between_packages()
    assert imports.pop("hgpo") == {"estimators", "steps"}
    assert [package for package, others in imports.items() if "hgpo" in others] == []


def test_the_decision_shows_the_layers() -> None:
    assert re.findall(r"^    (\S.*)$", DECISION, re.MULTILINE) == LAYERS


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("| 5 | `storage` |", "| 5 | storage |", "storage is not in the table"),
        ("| 5 | `storage` |", "| 5 | `unknown` |", "unknown is in the table and not in the code"),
        ("| 5 | `storage` |", "| 4 | `storage` |", "storage is in layer 5, the table says 4"),
        ("OpenEnv | `estimators` |", "OpenEnv | |", "envs -> estimators: the table"),
    ],
)
def test_a_wrong_table_is_found(old: str, new: str, problem: str) -> None:
    assert old in PAGE
    found = problems(PAGE.replace(old, new), packages_on_disk(), imports_between_packages())
    assert any(line.startswith(problem) for line in found), found


def test_a_new_package_has_to_be_documented() -> None:
    imports = {**imports_between_packages(), "unlisted": set()}
    assert problems(PAGE, {*packages_on_disk(), "unlisted"}, imports) == ["unlisted is not in the table"]


def test_an_import_that_the_table_does_not_allow_is_found() -> None:
    imports = imports_between_packages()
    imports["envs"].add("estimators")
    assert problems(PAGE, packages_on_disk(), imports) == ["envs imports estimators, which the table does not allow"]
