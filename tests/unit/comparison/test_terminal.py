"""What the terminal shows, and that nothing in it acts on the terminal."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from compared import entry
from hgpo.comparison.table import Comparison, compare
from hgpo.comparison.terminal import as_text, even_groups, print_comparison
from hgpo.runs.evaluation_files import Latency, TokenCount


def test_figures_types_differences_and_footnotes_follow_each_other() -> None:
    first = entry("first", {"pick_heat_then_place_in_recep": [1] * 8 + [0] * 2}, environment="alfworld")
    second = entry("second", {"pick_heat_then_place_in_recep": [1] * 10}, seconds=30.0)
    text = as_text(compare([first, second, entry("third", {"c": [1]}, environment="webshop")]))
    lines = [line.split() for line in text.splitlines()]
    assert ["first", "80.0", "(49.0–94.3)", "0.800", "8.0", "10"] in lines
    assert ["second", "100.0", "(72.2–100.0)", "1.000", "8.0", "10"] in lines
    assert ["second", "3.00"] in lines  # seconds stand in a table of their own
    assert ["first", "80.0", "(49.0–94.3)", "–"] in lines
    assert ["pick_heat_"] in lines  # a long heading takes several lines
    assert ["second", "+20.0", "(-11.2", "to", "+51.0)", "10"] in lines
    assert ["third", "–", "–", "played", "in", "another", "environment"] in lines
    assert text.endswith("seed 1.\n[1] environment webshop, the baseline's alfworld\n")
    assert "third [1] " in text


def wide() -> Comparison:
    """Every figure there is, long names, six types of task, six trials, and tasks that are not all the same."""
    won = {f"pick_{kind}_then_place_in_recep": [1] * 8 + [0] * 2 for kind in ("heat", "cool", "clean", "two", "a", "b")}
    model = entry(
        "reflexion-of-a-model-with-a-long-name",
        won,
        model="Some-Organisation/Some-Model-7B-Instruct",
        agent="reflexion",
        episodes=60,
        failed=2,
        tokens=TokenCount(900_000, 9_000),
        requests=700,
        cost=0.5,
        seconds=60.0,
        latency=Latency(0.25, 1.5),
        success_by_trial=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
    )
    return compare([entry("all-the-tasks", {**won, "c": [1] * 10}), model])


def test_tables_wider_than_a_terminal_are_broken_between_columns() -> None:
    text = as_text(wide())
    caption = text.splitlines()[-1]
    lines = text.splitlines()[:-1]
    assert caption.startswith("Success in per cent")
    assert max(map(cell_len, lines)) <= 100
    figures = " ".join(" ".join(lines).split())
    for figure in ("Some-Organisation/Some-Model-7B-Instruct", "15,150", "11.7", "0.00833", "1.00", "0.250", "1.50"):
        assert figures.count(figure) == 1
    assert figures.count("80.0 (68.2–88.2)") == 1
    assert figures.count("80.0 (49.0–94.3)") == 12  # whole, in one line
    titles = [line for line in lines if line and not line.startswith(" ")]
    assert titles == [
        "Success by task type",
        "Success by task type, continued",
        "Success by task type, continued",
        "Success by trial",
        "Success by trial, continued",
        "What an episode and a request took",
        "What an episode and a request took, continued",
        "Difference in success, points",
    ]


@pytest.mark.parametrize(
    ("widths", "room", "groups"),
    [
        ([], 10, []),
        ([3, 3, 3], 9, [[0, 1, 2]]),
        ([3, 3, 3, 3], 10, [[0, 1], [2, 3]]),
        ([2, 20, 2], 10, [[0], [1], [2]]),
        ([2, 2], 0, [[0], [1]]),
    ],
)
def test_groups_are_few_and_even(widths: list[int], room: int, groups: list[list[int]]) -> None:
    assert even_groups(widths, room) == groups


@given(st.lists(st.integers(1, 12)), st.integers(12, 60))
def test_groups_keep_the_order_and_fit(widths: list[int], room: int) -> None:
    groups = even_groups(widths, room)
    assert [place for group in groups for place in group] == list(range(len(widths)))
    sizes = [sum(widths[place] for place in group) for group in groups]
    assert all(size <= room for size in sizes)
    fewest, left = 0, 0
    for width in widths:
        fewest, left = (fewest, left - width) if width <= left else (fewest + 1, room - width)
    assert len(groups) == fewest


def test_a_wide_terminal_breaks_nothing() -> None:
    screen = io.StringIO()
    print_comparison(Console(file=screen, width=250, color_system=None), wide())
    assert "continued" not in screen.getvalue()


def test_a_narrow_terminal_folds_and_cuts_nothing() -> None:
    won = {f"pick_{kind}_then_place_in_recep": [1] * 8 + [0] * 2 for kind in ("heat", "cool", "clean", "examine")}
    comparison = compare([entry(label, won) for label in ("a-label-of-some-length", "b")])
    for width in (80, 40, 25):
        screen = io.StringIO()
        print_comparison(Console(file=screen, width=width, color_system=None), comparison)
        assert max(len(line) for line in screen.getvalue().splitlines()[:-1]) <= width
        assert "…" not in screen.getvalue()
        whole = screen.getvalue().count("(49.0–94.3)")
        assert whole == 8 if width > 25 else whole < 8


def test_one_entry_has_no_differences() -> None:
    assert "ifference" not in as_text(compare([entry("first", {"a": [1]})]))


def test_nothing_acts_on_the_terminal_and_markup_is_text() -> None:
    hostile = "[red]\x1b[2J\u202e[/red] :smile: [link=http://x]y[/link]"
    comparison = compare([entry("a", {hostile: [1]}, model=hostile), entry("[bold]b", {hostile: [0]})])
    screen = io.StringIO()
    print_comparison(Console(file=screen, width=200, force_terminal=True, color_system=None), comparison)
    for text in (as_text(comparison), screen.getvalue()):
        assert "\x1b" not in text.replace("\x1b[1m", "").replace("\x1b[3m", "").replace("\x1b[0m", "")
        assert "\u202e" not in text
        assert "[red]�[2J�[/red] :smile: [link=http://x]y[/link]" in text
        assert "[bold]b" in text
