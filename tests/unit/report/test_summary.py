import io

from rich.console import Console

from hgpo.report.estimator_comparison import Training
from hgpo.report.report import build_report
from hgpo.report.summary import figure_text, print_report
from house import write_rows


def printed(report):
    out = io.StringIO()
    print_report(Console(file=out, width=100, color_system=None), report)
    return out.getvalue()


def test_it_counts_and_compares_first_and_last(folder):
    text = printed(build_report(folder))
    assert "22 steps of 4 tasks in 2 updates" in " ".join(text.split())
    assert "update 1 → 2" in text
    assert "signs opposite to HGPO (paper): HGPO (verl-agent)" in text
    assert "level 0:" in text
    assert max(map(len, text.splitlines())) <= 100


def test_steps_that_are_compared_with_none_have_no_shares(tmp_path):
    steps = [{"group": "g", "trajectory": t, "step": 0, "observation": f"room {t}", "reward": 0} for t in "ab"]
    write_rows(tmp_path / "1.jsonl", [{**step, "prompt": step["observation"]} for step in steps])
    text = printed(build_report(tmp_path))
    assert "different prompts" not in text
    assert "signs opposite" not in text


def test_notices_are_shown_without_anything_that_acts(folder, rows):
    rows[0] = {**rows[0], "reward": "x"}
    write_rows(folder / "00001\x1b[31m\u202e.jsonl", rows)
    text = printed(build_report(folder))
    assert "line 1: column 'reward' is 'x', which does not go with" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    (folder / "00002.jsonl").write_text("[bold]not json[/bold]")
    assert "  ! 00002.jsonl line 1: not JSON" in printed(build_report(folder))


def test_a_gigpo_run_is_headed_with_its_own_levels(folder):
    text = printed(build_report(folder, Training("gigpo")))
    assert "Levels of GiGPO, update 1 → 2" in text
    assert "Levels of HGPO" not in text
    assert "levels: episode, whole trajectories of the task; 0, same state" in text
    rows = [line.split()[0] for line in text.splitlines() if line.startswith((" episode", " 0", " 1", " 2"))]
    assert rows == ["episode", "0"]


def test_levels_of_another_estimator_than_the_one_that_trained_are_called_so(folder):
    text = " ".join(printed(build_report(folder, Training("grpo"))).split())
    assert "Step levels of HGPO (paper), because GRPO has none, update 1 → 2" in text
    assert "levels: episode, whole trajectories of the task (GRPO); 0, same state" in text
    assert (
        "HGPO (paper), level 0: of the steps in groups of two or more, 37.5 % are in a group with different prompts"
        in text
    )


def test_figures_of_any_size_are_plain_numbers():
    figures = [("size_p50", 1234.5), ("groups", 1234), ("mean_weight", 0.5), ("usable_share", 0.123), ("groups", None)]
    assert [figure_text(*figure) for figure in figures] == ["1234.50", "1,234", "0.500", "12.3 %", "–"]
    assert figure_text("usable_share", 0.123, decimals=0) == "12 %"


def test_a_small_negative_share_is_no_minus_zero():
    assert figure_text("variance_explained_adjusted", -0.0004, decimals=0) == "0 %"
