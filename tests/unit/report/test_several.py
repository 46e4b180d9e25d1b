from __future__ import annotations

import pytest

from hgpo.evaluation import Rate
from hgpo.report.rendering import MARKER
from hgpo.report.run_facts import RunFacts, ShownSetting
from hgpo.report.several import differing_settings, render_runs, run_charts, told_apart
from hgpo.runs.held_out import HeldOut, HeldOutResults
from packed_reports import unpack


def facts(label: str, rate: str = "0.001", updates: int = 3, measured: bool = True) -> RunFacts:
    settings = (
        ShownSetting("training.learning_rate", rate, True, "How far."),
        ShownSetting("run.seed", "0", False, ""),
    )
    points = (
        HeldOut("before", 0, Rate(0.25, 0.1, 0.5, 16), "16 games"),
        HeldOut("after", 3, Rate(0.5, 0.3, 0.7, 16), ""),
    )
    metrics = [{"update": update, "success": update / 10, "kl": None} for update in range(1, updates + 1)]
    return RunFacts(label, settings, HeldOutResults(points if measured else ()), metrics)


def test_labels_that_are_alike_are_told_apart() -> None:
    assert told_apart(["a", "b", "a", "a"]) == ["a", "b", "a (2)", "a (3)"]
    assert told_apart(["a", "a (2)", "a"]) == ["a", "a (2)", "a (3)"]


def test_settings_that_are_alike_are_left_out() -> None:
    rows = differing_settings([facts("a"), facts("b", rate="0.01"), RunFacts("c")])
    assert [(row["name"], row["values"]) for row in rows] == [
        ("training.learning_rate", ["0.001", "0.01", None]),
        ("run.seed", ["0", "0", None]),
    ]
    assert differing_settings([facts("a"), facts("b")]) == []


def test_one_line_a_run_in_its_own_colour() -> None:
    charts = run_charts([facts("a"), facts("b", measured=False)], ["a", "b"])
    assert [chart["id"] for chart in charts] == ["held-out", "success"]  # a figure that nobody has is left out
    assert {value["run"] for value in charts[0]["spec"]["data"]["values"]} == {"a"}
    assert [value["success"] for value in charts[1]["spec"]["data"]["values"]] == [0.1, 0.2, 0.3, 0.1, 0.2, 0.3]
    scale = charts[1]["spec"]["layer"][0]["encoding"]["color"]["scale"]
    assert scale["domain"] == ["a", "b"]
    assert len(set(scale["range"])) == 2


def test_the_page_is_one_of_the_reports_and_the_same_each_time() -> None:
    page = render_runs([facts("a"), facts("<b>")])
    assert page.startswith(MARKER)
    assert page == render_runs([facts("a"), facts("<b>")])
    assert "<b>" not in page.split("<script")[0]
    header, _ = unpack(page.split('<script type="text/plain" id="data">')[1].split("</script>")[0])
    assert [run["label"] for run in header["runs"]] == ["a", "<b>"]
    assert header["runs"][0]["heldOut"][1]["success"]["mean"] == 0.5


@pytest.mark.parametrize("count", [1, 7])
def test_too_few_or_too_many(count: int) -> None:
    with pytest.raises(ValueError, match="2 to 6 can be set side by side"):
        render_runs([facts(str(number)) for number in range(count)])
