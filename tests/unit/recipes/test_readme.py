"""The page on recipes shows an example that works."""

from __future__ import annotations

import re
from pathlib import Path

from hgpo.config import read_config

FOLDER = Path(__file__).parents[3] / "recipes"


def test_the_example_of_a_recipe_that_extends_another(tmp_path: Path) -> None:
    [shown] = re.findall(r"```toml\n(.*?)```", (FOLDER / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    there = FOLDER.resolve() / "quickstart" / "hgpo.toml"
    (tmp_path / "quickstart").mkdir()
    (tmp_path / "quickstart" / "hgpo.toml").write_bytes(there.read_bytes())
    (tmp_path / "mine").mkdir()
    mine = tmp_path / "mine" / "longer.toml"
    mine.write_text(shown, encoding="utf-8")
    assert read_config(mine) == read_config(there, ["run.name=longer", "training.updates=200"])
