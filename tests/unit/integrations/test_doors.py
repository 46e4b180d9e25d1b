"""The page about one's own loop and the examples of doors say what comes out."""

import doctest
from pathlib import Path

import pytest

from hgpo.integrations import attempts, trl

ROOT = Path(__file__).parents[3]


@pytest.fixture
def _examples(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))


def test_the_page_and_the_docstrings_are_true():
    page = doctest.testfile(str(ROOT / "docs/inside-your-loop.md"), module_relative=False)
    for result in (page, doctest.testmod(attempts), doctest.testmod(trl, extraglobs={"np": __import__("numpy")})):
        assert result.attempted > 0
        assert result.failed == 0


@pytest.mark.usefixtures("_examples")
def test_three_doors_lead_to_the_same_advantages():
    import doors

    steps = [0.475, 0.5, -0.475, -0.5]
    assert doors.in_skyrl() == pytest.approx(steps)
    assert [value for row in doors.in_prime_rl() for value in row[::2]] == pytest.approx(steps)
    assert [values[0] for values in doors.in_rllm()] == pytest.approx(steps)


@pytest.mark.usefixtures("_examples")
def test_the_example_of_tinker_tells_good_answers_from_bad_ones():
    pytest.importorskip("tinker_cookbook", reason="tinker-cookbook is not installed: pip install tinker-cookbook")
    import tinker_steps

    won, lost, cellar = tinker_steps.main()
    assert won[0] > 0 > cellar[0]
    assert won[2] > 0 > lost[2]
    assert won[1] == lost[1] == cellar[1] == 0.0  # rooms are the environment's tokens
