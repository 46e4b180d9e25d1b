"""The worked examples of docs/algorithms run and give the numbers they show."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from hgpo.estimators import names

PAGES = sorted((Path(__file__).parents[3] / "docs" / "algorithms").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_numbers_on_the_page(page: Path) -> None:
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0


def test_every_estimator_has_a_page() -> None:
    assert set(names()) <= {page.stem for page in PAGES}
