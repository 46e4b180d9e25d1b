"""The published recipes are what their script writes; tests/integration/test_verl_compose.py composes them."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path

FOLDER = Path(__file__).parents[4] / "recipes" / "verl"


def test_the_files_are_what_the_script_writes() -> None:
    written = runpy.run_path(str(FOLDER / "make.py"))["recipes"]()
    assert {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.toml")} == written


def test_experiments_have_their_published_names() -> None:
    names = {tomllib.loads(path.read_text(encoding="utf-8"))["run"]["name"] for path in FOLDER.glob("*-hgpo.toml")}
    assert names == {f"k{k}_hgpo_length_alpha1.0_baseGroup_False" for k in (2, 4)}


def test_every_recipe_is_in_the_table() -> None:
    table = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in sorted(FOLDER.glob("*.toml")) if path.name not in table] == []
