"""What the terminal shows, and that nothing in it acts on the terminal."""

from __future__ import annotations

import io

from rich.console import Console

from compared import entry
from hgpo.comparison.table import compare
from hgpo.comparison.terminal import as_text, print_comparison


def test_figures_types_differences_and_footnotes_follow_each_other() -> None:
    first = entry("first", {"pick_heat_then_place_in_recep": [1] * 8 + [0] * 2}, environment="alfworld")
    second = entry("second", {"pick_heat_then_place_in_recep": [1] * 10}, seconds=30.0)
    text = as_text(compare([first, second, entry("third", {"c": [1]}, environment="webshop")]))
    lines = [line.split() for line in text.splitlines()]
    assert ["first", "80.0", "(49.0–94.3)", "0.800", "8.0", "10", "–"] in lines
    assert ["second", "100.0", "(72.2–100.0)", "1.000", "8.0", "10", "3.00"] in lines
    assert ["first", "80.0", "(49.0–94.3)", "–"] in lines
    assert ["pick_heat_"] in lines  # a long heading takes several lines
    assert ["second", "+20.0", "(-11.2", "to", "+51.0)", "10"] in lines
    assert ["third", "–", "–", "played", "in", "another", "environment"] in lines
    assert text.endswith("seed 1.\n[1] environment webshop, the baseline's alfworld\n")
    assert "third [1] " in text


def test_a_narrow_terminal_folds_and_cuts_nothing() -> None:
    won = {f"pick_{kind}_then_place_in_recep": [1] * 8 + [0] * 2 for kind in ("heat", "cool", "clean", "examine")}
    screen = io.StringIO()
    comparison = compare([entry(label, won) for label in ("a-label-of-some-length", "b")])
    print_comparison(Console(file=screen, width=80, color_system=None), comparison)
    assert max(len(line) for line in screen.getvalue().splitlines()[:-1]) <= 80
    assert "…" not in screen.getvalue()
    assert screen.getvalue().count("(49.0–94.3)") == 8


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
