"""The same figures as Markdown, LaTeX and CSV, and texts that would be markup, commands or formulas."""

from __future__ import annotations

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compared import entry
from hgpo.comparison.formats import as_csv, as_latex, as_markdown, latex_text, markdown_text
from hgpo.comparison.table import Comparison, compare
from hgpo.evaluation import Rate
from hgpo.runs.evaluation_files import Latency, TokenCount
from hgpo.visible import visible


def two() -> Comparison:
    """Eight of ten, and all of the same ten; Wilson: .4902 to .9433, and .7225 to 1."""
    first = entry("first", {"a_b": [1] * 8 + [0] * 2}, environment="alfworld")
    second = entry("second", {"a_b": [1] * 10}, cost=0.3)
    return compare([first, second, entry("third", {"c": [1]}, environment="webshop")])


def test_markdown_is_two_tables_and_the_footnotes() -> None:
    assert as_markdown(two()) == (
        "Success in per cent (95 % interval). Baseline first: 10 tasks of held_out in alfworld, temperature 0.4, "
        "seed 1.\n\n"
        "|  | success | a_b | c | score | steps per episode | episodes | cost per episode |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| first | 80.0 (49.0–94.3) | 80.0 (49.0–94.3) | – | 0.800 | 8.0 | 10 | – |\n"
        "| second | 100.0 (72.2–100.0) | 100.0 (72.2–100.0) | – | 1.000 | 8.0 | 10 | 0.0300 |\n"
        "| third <sup>1</sup> | 100.0 (20.7–100.0) | – | 100.0 (20.7–100.0) | 1.000 | 8.0 | 1 | – |\n\n"
        "| difference to first | points | tasks |  |\n"
        "| --- | ---: | ---: | --- |\n"
        "| second | +20.0 (-11.2 to +51.0) | 10 |  |\n"
        "| third | – | – | played in another environment |\n\n"
        "<sup>1</sup> environment webshop, the baseline's alfworld\n"
    )


def test_latex_has_the_same_figures_for_booktabs() -> None:
    text = as_latex(two())
    assert r"first & 80.0 (49.0--94.3) & 80.0 (49.0--94.3) & -- & 0.800 & 8.0 & 10 & -- \\" in text
    assert r"second & +20.0 ($-$11.2 to +51.0) & 10 &  \\" in text
    assert r" & success & a\_b & c & score & steps per episode & episodes & cost per episode \\" in text
    assert r"third \textsuperscript{1} & " in text
    assert "\\footnotesize \\textsuperscript{1} environment webshop" in text
    for rule in ("toprule", "midrule", "bottomrule", "begin{tabular}", "end{tabular}"):
        assert text.count(f"\\{rule}") == 2
    begin, end = text.index(r"\begin{tabular}{lrrrrrrr}"), text.index(r"\end{tabular}")
    assert {line.count(" & ") for line in text[begin:end].splitlines() if line.endswith(r"\\")} == {7}


def tried() -> Comparison:
    """Two trials at each of three games, and a run's policy that nobody counted requests of."""
    reflexion = entry(
        "reflexion", {"a": [1, 1, 0]}, requests=40, latency=Latency(0.5, 1.25), success_by_trial=(1 / 3, 2 / 3)
    )
    return compare([reflexion, entry("run", {"a": [1, 0, 0]})])


def test_markdown_and_latex_name_trials_requests_and_latencies() -> None:
    markdown = as_markdown(tried())
    assert (
        "| success after trial 1 | success after trial 2 | score | steps per episode | episodes | requests per episode "
        "| mean request latency (s) | 95 % quantile of request latency (s) |\n"
    ) in markdown
    assert " | 33.3 | 66.7 | 0.667 | 8.0 | 3 | 13.3 | 0.500 | 1.25 |\n" in markdown
    assert " | – | – | 0.333 | 8.0 | 3 | – | – | – |\n" in markdown
    assert r" & 33.3 & 66.7 & 0.667 & 8.0 & 3 & 13.3 & 0.500 & 1.25 \\" in as_latex(tried())
    assert r" & 95 \% quantile of request latency (s) \\" in as_latex(tried())


def test_csv_has_trials_as_fractions_and_latencies_in_seconds() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(tried()))))
    assert [float(rows[0][f"success_after_trial_{trial}"]) for trial in (1, 2)] == [1 / 3, 2 / 3]
    assert float(rows[0]["requests_per_episode"]) == 40 / 3
    assert (rows[0]["latency_mean"], rows[0]["latency_p95"]) == ("0.5", "1.25")
    assert (rows[1]["success_after_trial_2"], rows[1]["latency_p95"]) == ("", "")


def test_csv_is_for_programs() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(two()))))
    assert [row["label"] for row in rows] == ["first", "second", "third"]
    assert [float(rows[0][name]) for name in ("success", "success_tasks", "success/a_b")] == [0.8, 10, 0.8]
    assert float(rows[0]["success_low"]) == pytest.approx(0.4902, abs=1e-4)
    assert (rows[0]["success/c"], rows[0]["success/c_high"], rows[0]["cost_per_episode"]) == ("", "", "")
    assert float(rows[1]["cost_per_episode"]) == 0.03
    assert (rows[0]["baseline"], rows[0]["difference"], rows[0]["remark"]) == ("", "", "")
    assert (rows[1]["baseline"], rows[1]["difference_tasks"]) == ("first", "10")
    assert float(rows[1]["difference"]) == pytest.approx(0.2)
    assert (rows[2]["difference"], rows[2]["remark"]) == ("", "played in another environment")
    assert rows[2]["notes"] == "environment webshop, the baseline's alfworld"


labels = st.text(min_size=1).filter(lambda text: visible(text))
ends = st.lists(st.sampled_from([0.0, 1 / 3, 1.0]), min_size=1, max_size=4)
figures = st.one_of(st.none(), st.floats(0, 1e12))


@given(
    st.dictionaries(labels, ends, min_size=1, max_size=3),
    st.dictionaries(labels, ends, min_size=1, max_size=3),
    figures,
)
def test_csv_read_back_gives_the_figures_of_the_table(
    first: dict[str, list[float]], second: dict[str, list[float]], cost: float | None
) -> None:
    comparison = compare(
        [entry("first", first, cost=cost), entry("second", second, tokens=TokenCount(len(first), 7), failed=3)]
    )
    headings, *rows = csv.reader(io.StringIO(as_csv(comparison)), quoting=csv.QUOTE_NONNUMERIC)
    assert all(len(row) == len(headings) for row in rows)
    for place, row in enumerate(rows):
        cells = iter(row[1:])
        for column in comparison.columns:
            cell = column.cells[place]
            found = [next(cells) for _ in range(4 if column.kind == "rate" else 1)]
            if isinstance(cell, Rate):
                assert found == [cell.mean, cell.low, cell.high, cell.tasks]
            else:
                assert found == ([""] * len(found) if cell is None else [cell])


HOSTILE = "=cmd|' /C calc'!A0"


@pytest.mark.parametrize("text", [HOSTILE, "+1", "-1", "@SUM(A1)", "  =1", "＝1"])
def test_a_spreadsheet_sees_no_formula(text: str) -> None:
    comparison = compare([entry("label", {text: [1, 0]}, model=text)])
    rows = list(csv.reader(io.StringIO(as_csv(comparison))))
    assert rows[1][1] == f"'{visible(text)}"
    assert all(not cell.lstrip().startswith(tuple("=+-@＝")) for row in rows for cell in row)
    assert f'"{rows[1][1]}"' in as_csv(comparison)  # in quotes, so that no other separator splits it


def test_a_negative_figure_is_no_formula() -> None:
    comparison = compare([entry("a", {"walk": [1] * 10}), entry("b", {"walk": [0] * 10})])
    assert ",-1.0,-1.0," in as_csv(comparison)


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("pick_and_place", "pick_and_place"),
        ("_a_ *b*", r"\_a\_ \*b\*"),
        ("a|b\\|c", r"a\|b\\\|c"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("[x](http://evil)", r"\[x\](http\://evil)"),
        ("![x](y) `code` ~~z~~ &amp; www.evil", r"!\[x\](y) \`code\` \~\~z\~\~ &amp;amp; www\.evil"),
        ("$x$ #1 a@b", r"\$x\$ \#1 a\@b"),
    ],
)
def test_markdown_stays_text(text: str, escaped: str) -> None:
    assert markdown_text(text) == escaped


@given(st.dictionaries(labels, ends, min_size=1, max_size=3), labels)
def test_a_table_in_markdown_keeps_its_columns(won: dict[str, list[float]], model: str) -> None:
    comparison = compare([entry("a", won, model=model)])
    table = [line for line in as_markdown(comparison).splitlines() if line.startswith("|")]
    assert len(table) == 3
    bars = {len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in table}
    assert bars == {len(comparison.columns) + 2}
    assert "<" not in as_markdown(comparison)


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        (r"\input{/etc/passwd}", r"\textbackslash{}input\{/etc/passwd\}"),
        ("50 % & $5 #1 a_b", r"50 \% \& \$5 \#1 a\_b"),
        ("~^<>|", r"\textasciitilde{}\textasciicircum{}\textless{}\textgreater{}\textbar{}"),
        ("[1cm] *", "{[}1cm{]} {*}"),
        ("a--b---c", "a-{}-b-{}-{}-c"),
        ("a–b…�", r"a\textendash{}b\ldots{}?"),
    ],
)
def test_latex_stays_text(text: str, escaped: str) -> None:
    assert latex_text(text) == escaped


@given(st.text())
def test_latex_has_no_command_but_ours(text: str) -> None:
    commands = r"\\(text(backslash|asciitilde|asciicircum|asciigrave|less|greater|bar|endash)\{\}|ldots\{\}|[{}$&#%_])"
    rest = re.sub(commands, "", latex_text(text)).replace("{[}", "").replace("{]}", "").replace("{*}", "")
    assert not re.search(r"[\\$&#%_~^|<>\[\]]", rest.replace("-{}", "-"))
    assert not re.search("[{}]", rest.replace("-{}", "-"))
