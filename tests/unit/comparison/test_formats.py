"""The same figures as Markdown, LaTeX and CSV, and texts that would be markup, commands or formulas."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compared import entry, run_entry
from hgpo.evaluation.result_files import Latency, StoredEvaluation, TokenCount
from hgpo.evaluation.statistics import Rate
from hgpo.report.compare_formats import as_csv, as_latex, as_markdown, as_text, cell_text, latex_text, markdown_text
from hgpo.report.compare_table import Comparison, Kind, Mean, compare
from hgpo.utils.text import visible


def two() -> Comparison:
    """Eight of ten, and all of the same ten; Wilson: .4902 to .9433, and .7225 to 1; and another environment."""
    first = entry("first", {"a_b": [1] * 8 + [0] * 2}, environment="alfworld")
    second = entry("second", {"a_b": [1] * 10}, cost=0.3, failed=2, environment="alfworld")
    return compare([first, second, entry("third", {"c": [1]}, environment="webshop")])


WINS = {"grpo": (3, 4, 5), "hgpo": (7, 6, 8)}
"""Of ten tasks, by training seed; differences .4, .2, .3."""


def seeds() -> Comparison:
    """Two methods with three training seeds each."""
    runs = [
        run_entry(label, seed, {"walk": [1] * won + [0] * (10 - won)})
        for label, wins in WINS.items()
        for seed, won in enumerate(wins, start=1)
    ]
    return compare(runs)


def test_labels_in_latex_keep_their_hyphens() -> None:
    """In the tables with a column per row, labels are headings of columns with numbers."""
    text = as_latex(
        compare([entry("hgpo-1", {"walk": [1, 0], "run": [1]}), entry("gpt-4o", {"walk": [1, 1], "run": [0]})])
    )
    assert " & hgpo-1 & gpt-4o" in text
    assert "hgpo$-$1" not in text


def paper() -> Comparison:
    """Two methods in the environments of the paper; the second has one evaluation in each of two splits."""
    entries = []
    for label, wins in WINS.items():
        for seed, won in enumerate(wins, start=1):
            one = run_entry(label, seed, {"walk": [1] * won + [0] * (10 - won)})
            for environment, split in (("alfworld", "valid_seen"), ("webshop", "test")):
                evaluation = replace(one.evaluation, split=split)
                entries.append(replace(one, stored=StoredEvaluation(evaluation, environment=environment)))
    return compare(entries)


def test_markdown_has_a_table_for_each_section_and_topic() -> None:
    assert as_markdown(two()) == (
        "alfworld, held_out: 10 tasks, temperature 0.4, evaluation seed 1.\n\n"
        "|  | n | success, % | score | steps per episode | episodes | failed |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| first | 1 | 80.0 (49.0–94.3) | 0.800 | 8.0 | 10 | – |\n"
        "| second | 1 | 100.0 (72.2–100.0) | 1.000 | 8.0 | 10 | 2 |\n\n"
        "Difference in success to first, paired.\n\n"
        "|  | points (95 % CI) | CI over | detects | remark |\n"
        "| --- | ---: | ---: | ---: | --- |\n"
        "| second | +20.0 (-11.2 to +51.0) | 10 tasks | ≥ 49.9; 5 with 793 | not significant |\n\n"
        "Success by task type, %.\n\n"
        "|  | first | second |\n"
        "| --- | ---: | ---: |\n"
        "| a_b | 80.0 (49.0–94.3) | 100.0 (72.2–100.0) |\n\n"
        "Cost of an episode and of a request.\n\n"
        "|  | first | second |\n"
        "| --- | ---: | ---: |\n"
        "| cost per episode | – | 0.0300 |\n\n"
        "webshop, held_out: 1 task, temperature 0.4, evaluation seed 1.\n\n"
        "|  | n | success, % | score | steps per episode | episodes |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |\n"
        "| third | 1 | 100.0 (20.7–100.0) | 1.000 | 8.0 | 1 |\n\n"
        "Success by task type, %.\n\n"
        "|  | third |\n"
        "| --- | ---: |\n"
        "| c | 100.0 (20.7–100.0) |\n\n"
        "- In parentheses: 95 % CI over tasks.\n"
        "- detects: smallest true difference in points that these tasks or seeds find with 80 % power, at 5 %.\n"
        "- second: 2 of 12 episodes failed and are not counted in success\n"
    )


def test_plus_minus_says_of_what_and_a_difference_over_what() -> None:
    text = as_text(seeds())
    lines = [line.split() for line in text.splitlines()]
    assert ["grpo", "after", "3", "40.0", "±", "10.0", "0.400", "±", "0.100", "8.0", "±", "0.0", "30"] in lines
    assert "hgpo  +30.0 (+5.2 to +54.8)  3 training seeds" in text
    assert "±: standard deviation over n training seeds, or n evaluations where a note says so." in text
    assert "In parentheses" not in text


def test_latex_has_the_same_figures_for_booktabs() -> None:
    text = as_latex(two())
    assert r"first & 1 & 80.0 (49.0\textendash{}94.3) & 0.800 & 8.0 & 10 & \textendash{} \\" in text
    assert r"second & +20.0 ($-$11.2 to +51.0) & 10 tasks & $\geq$ 49.9; 5 with 793 & not significant \\" in text
    assert r"a\_b & 80.0" in text
    assert r"\footnotesize second: 2 of 12 episodes failed" in text
    for rule in ("toprule", "midrule", "bottomrule", "begin{tabular}", "end{tabular}"):
        assert text.count(f"\\{rule}") == 6
    begin, end = text.index(r"\begin{tabular}{lrrrrrr}"), text.index(r"\end{tabular}")
    assert {line.count(" & ") for line in text[begin:end].splitlines() if line.endswith(r"\\")} == {6}


def test_the_papers_table_has_a_row_per_method_and_a_column_per_result() -> None:
    text = as_latex(paper(), "paper")
    assert "ALFWorld in-distribution & ALFWorld out-of-distribution & WebShop score & WebShop success" in text
    assert r"grpo & 3 & 40.0 $\pm$ 10.0 & \textendash{} & 40.0 $\pm$ 10.0 & 40.0 $\pm$ 10.0 \\" in text
    assert (
        r"\footnotesize $\pm$: standard deviation over n training seeds, or n evaluations where a note says so." in text
    )
    assert "hgpo less grpo: +30.0 (+5.2 to +54.8) points, 95 \\% CI over 3 training seeds" in text
    assert text.count(r"\begin{tabular}") == 1
    assert "| hgpo | 3 | 70.0 ± 10.0 | – | 70.0 ± 10.0 | 70.0 ± 10.0 |" in as_markdown(paper(), "paper")


def test_the_papers_table_has_the_published_draw_of_webshops_goals() -> None:
    """The recipe verl/webshop evaluates on it."""
    one = run_entry("hgpo", 1, {"walk": [1, 0]})
    drawn = StoredEvaluation(replace(one.evaluation, split="validation_256"), environment="webshop")
    assert "| hgpo | 1 | – | – | 50.0 | 50.0 |" in as_markdown(compare([replace(one, stored=drawn)]), "paper")


def tried() -> Comparison:
    """Two trials at each of three tasks, and a run without a count of requests."""
    reflexion = entry(
        "reflexion", {"a": [1, 1, 0]}, requests=40, latency=Latency(0.5, 1.25), success_by_trial=(1 / 3, 2 / 3)
    )
    return compare([reflexion, entry("run", {"a": [1, 0, 0]})])


def test_markdown_and_latex_name_trials_requests_and_latencies() -> None:
    markdown = as_markdown(tried())
    assert "| success after trial 1 | 33.3 | – |\n| success after trial 2 | 66.7 | – |\n" in markdown
    assert "| requests per episode | 13.3 | – |\n| mean request latency (s) | 0.500 | – |\n" in markdown
    assert r"95 \% quantile of request latency (s) & 1.25 & \textendash{} \\" in as_latex(tried())


def test_csv_has_trials_as_fractions_and_latencies_in_seconds() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(tried()))))
    assert [float(rows[0][f"success_after_trial_{trial}"]) for trial in (1, 2)] == [1 / 3, 2 / 3]
    assert float(rows[0]["requests_per_episode"]) == 40 / 3
    assert (rows[0]["latency_mean"], rows[0]["latency_p95"]) == ("0.5", "1.25")
    assert (rows[1]["success_after_trial_2"], rows[1]["latency_p95"]) == ("", "")


def test_csv_is_for_programs() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(two()))))
    assert [(row["label"], row["environment"]) for row in rows] == [
        ("first", "alfworld"),
        ("second", "alfworld"),
        ("third", "webshop"),
    ]
    assert [float(rows[0][name]) for name in ("success", "success_tasks", "success/a_b", "n")] == [0.8, 10, 0.8, 1]
    assert float(rows[0]["success_low"]) == pytest.approx(0.4902, abs=1e-4)
    assert (rows[0]["success/c"], rows[0]["success/c_high"], rows[0]["cost_per_episode"]) == ("", "", "")
    assert float(rows[1]["cost_per_episode"]) == 0.03
    assert (rows[0]["reference"], rows[0]["difference"], rows[0]["remark"]) == ("", "", "")
    assert (rows[1]["reference"], rows[1]["difference_over"]) == ("first", "10 tasks")
    assert rows[1]["remark"] == "not significant"
    assert float(rows[1]["difference"]) == pytest.approx(0.2)
    assert rows[1]["notes"] == "2 of 12 episodes failed and are not counted in success"
    (first, _) = csv.DictReader(io.StringIO(as_csv(seeds())))
    assert [float(first[name]) for name in ("success", "success_sd", "n")] == pytest.approx([0.4, 0.1, 3])
    assert first["success_low"] == ""


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
    rows = list(csv.DictReader(io.StringIO(as_csv(comparison)), quoting=csv.QUOTE_NONNUMERIC))
    (section,) = comparison.sections
    for row, line in zip(section.rows, rows, strict=True):
        for name in ("success", "score", "episodes", "failed", "cost_per_episode", "tokens_per_episode"):
            cell = row.cells.get(name)
            if isinstance(cell, Rate):
                assert [line[name + part] for part in ("", "_low", "_high", "_tasks")] == [
                    *(cell.mean, cell.low, cell.high, cell.tasks)
                ]
            elif name in line:
                assert line[name] == ("" if cell is None else cell)


HOSTILE = "=cmd|' /C calc'!A0"


@pytest.mark.parametrize("text", [HOSTILE, "+1", "-1", "@SUM(A1)", "  =1", "＝1"])
def test_a_spreadsheet_sees_no_formula(text: str) -> None:
    comparison = compare([entry("label", {text: [1, 0]}, model=text)])
    rows = list(csv.reader(io.StringIO(as_csv(comparison))))
    assert f"'{visible(text)}" in rows[1]
    assert all(not cell.lstrip().startswith(tuple("=+-@＝")) for row in rows for cell in row)
    assert f'"\'{visible(text)}"' in as_csv(comparison)  # in quotes, so that no other separator splits it


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
        ("1. base", r"1\. base"),  # else a list in the list of notes
        ("- x 1. y", r"\- x 1. y"),
        ("-1.5 +2", "-1.5 +2"),
    ],
)
def test_markdown_stays_text(text: str, escaped: str) -> None:
    assert markdown_text(text) == escaped


@given(st.dictionaries(labels, ends, min_size=1, max_size=3), labels)
def test_a_table_in_markdown_keeps_its_columns(won: dict[str, list[float]], model: str) -> None:
    comparison = compare([entry("a", won, model=model)])
    table = [line for line in as_markdown(comparison).splitlines() if line.startswith("|")]
    bars = [len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in table]
    assert bars == [8] * 3 + [3] * (2 + len(won))  # label, model, n and four figures; then a line per type of task
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
        ("a ± b − c ≥ d", r"a $\pm$ b $-$ c $\geq$ d"),
    ],
)
def test_latex_stays_text(text: str, escaped: str) -> None:
    assert latex_text(text) == escaped


@given(st.text())
def test_latex_has_no_command_but_ours(text: str) -> None:
    commands = r"\\(text(backslash|asciitilde|asciicircum|asciigrave|less|greater|bar|endash)\{\}|ldots\{\}|[{}$&#%_])"
    signs = latex_text(text).replace(r"$\pm$", "").replace("$-$", "").replace(r"$\geq$", "")
    rest = re.sub(commands, "", signs).replace("{[}", "").replace("{]}", "").replace("{*}", "")
    assert not re.search(r"[\\$&#%_~^|<>\[\]]", rest.replace("-{}", "-"))
    assert not re.search("[{}]", rest.replace("-{}", "-"))


@pytest.mark.parametrize(
    ("cell", "kind", "text"),
    [
        (None, "rate", "–"),
        ("gpt", "text", "gpt"),
        (Rate(0.523, 0.462, 0.584, 256), "rate", "52.3 (46.2–58.4)"),
        (Mean(0.523, 0.021), "rate", "52.3 ± 2.1"),
        (1 / 3, "share", "33.3"),
        (12345, "count", "12,345"),
        (1234.5, "amount", "1,234"),
        (0.00123, "amount", "0.00123"),
        (0, "amount", "0"),
    ],
)
def test_a_cell_is_rounded_by_its_kind(cell: Rate | Mean | float | str | None, kind: Kind, text: str) -> None:
    assert cell_text(cell, kind) == text


def test_a_title_is_one_line() -> None:
    assert as_text(compare([entry("a", {"walk": [1]})])).splitlines()[0] == (
        "unknown environment, held_out: 1 task, temperature 0.4, evaluation seed 1"
    )


def test_the_papers_table_needs_one_of_its_environments() -> None:
    with pytest.raises(ValueError, match="no evaluation of ALFWorld or WebShop"):
        as_text(compare([entry("a", {"walk": [1]}, environment="sokoban")]), "paper")
