"""Learning curves: which runs are one curve, what a point is, and what is passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from compared import entry, trained, write_run
from hgpo.comparison.curves import (
    Curve,
    common_label,
    curve_of,
    learning_curves,
    runs_alike,
    smoothed,
    success_by_update,
)
from hgpo.comparison.entries import read_entries
from hgpo.runs.folder import RunDirectoryError
from panels import panel

PANEL = panel({"walk": [1, 0]})


def test_runs_are_alike_that_differ_in_seed_and_place_only(tmp_path: Path) -> None:
    runs = [
        trained(tmp_path / "a", "run.seed=1", "run.name=a"),
        None,
        trained(tmp_path / "b", "run.seed=2", "run.name=b", "run.directory=elsewhere"),
        trained(tmp_path / "c", "run.seed=3", "advantage.estimator=grpo"),
        trained(tmp_path / "x" / ".." / "a", "run.seed=1", "run.name=a"),  # the first once more
        trained(tmp_path / "d", "run.seed=2"),  # a seed that is there
        trained(tmp_path / "e", "run.seed=3", "run.threads=2"),
    ]
    assert runs_alike(runs) == [(0, 2), (3,), (5,), (6,)]


def test_a_curve_of_runs_is_their_mean_over_the_updates_that_all_have() -> None:
    runs = [{1: 0.2, 2: 0.4, 3: 0.6}, {1: 0.4, 2: 0.4, 3: 0.6, 4: 1.0}, {0: 0.0, 1: 0.6, 2: 0.4, 3: 0.0}]
    curve = curve_of("hgpo", (0, 2, 3), runs)
    assert (curve.label, curve.entries, curve.runs, curve.updates) == ("hgpo", (0, 2, 3), 3, (1, 2, 3))
    assert curve.mean == pytest.approx((0.4, 0.4, 0.4))
    assert (curve.low, curve.high) == ((0.2, 0.4, 0.0), (0.6, 0.4, 0.6))


def test_a_point_is_the_mean_of_the_last_updates() -> None:
    success = {1: 0.0, 2: 0.6, 5: 0.3, 6: 0.9}
    assert smoothed(success, 1) == success
    assert smoothed(success, 3) == pytest.approx({1: 0.0, 2: 0.3, 5: 0.3, 6: 0.6})


def test_rows_without_success_are_passed_over() -> None:
    rows = [{"update": 2, "success": 1}, {"update": 1, "success": 0.5}, {"update": 3}, {"success": 1.0}, 7, None]
    bad = [{"update": "4", "success": 1.0}, {"update": 5, "success": "x"}, {"update": 6, "success": float("nan")}]
    assert list(success_by_update([*rows, *bad]).items()) == [(1, 0.5), (2, 1.0)]


def test_entries_of_runs_have_curves(tmp_path: Path) -> None:
    for seed, success in ((1, [0.0, 0.2, 0.4]), (2, [0.2, 0.4])):
        write_run(tmp_path / f"hgpo-{seed}", {"before": PANEL, "after": PANEL}, f"run.seed={seed}", success=success)
    write_run(tmp_path / "grpo", {"after": PANEL}, "advantage.estimator=grpo", success=[0.5])
    write_run(tmp_path / "new", {"before": PANEL}, "run.threads=2")  # it has made no update
    names = ["hgpo-1:before", "hgpo-1", "hgpo-2", "grpo", "new"]
    entries = [*read_entries([str(tmp_path / name) for name in names]), entry("file", {"walk": [1]})]
    first, second = learning_curves(entries, smooth=2)
    assert (first.label, first.entries, first.runs, first.updates) == ("hgpo-1:before and 1 more", (0, 1, 2), 2, (1, 2))
    assert first.mean == pytest.approx((0.1, 0.2))
    assert (first.low, first.high) == (pytest.approx((0.0, 0.1)), pytest.approx((0.2, 0.3)))
    assert second == Curve("grpo", (3,), 1, (1,), (0.5,), (0.5,), (0.5,))


def test_runs_without_a_common_update_have_none(tmp_path: Path) -> None:
    for seed, success in ((1, [0.5]), (2, [])):
        write_run(tmp_path / str(seed), {"after": PANEL}, f"run.seed={seed}", success=success)
    assert learning_curves(read_entries([str(tmp_path / "1"), str(tmp_path / "2")])) == []


def test_no_window_and_damaged_metrics_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", {"after": PANEL}, success=[0.5])
    with pytest.raises(ValueError, match="--smooth 0: a mean is of at least 1 update"):
        learning_curves(read_entries([str(run)]), smooth=0)
    (run / "metrics.jsonl").write_text("{\n{}\n")
    with pytest.raises(RunDirectoryError, match=r"metrics\.jsonl line 1 is not JSON"):
        learning_curves(read_entries([str(run)]))


@pytest.mark.parametrize(
    ("labels", "together"),
    [
        (["hgpo-1"], "hgpo-1"),
        (["hgpo-1", "hgpo-12"], "hgpo"),
        (["a seed 1", "a seed 2"], "a seed"),
        (["1", "2"], "1 and 1 more"),
        (["good", "bad", "ugly"], "good and 2 more"),
    ],
)
def test_runs_are_called_together_by_what_is_before_their_numbers(labels: list[str], together: str) -> None:
    assert common_label(labels) == together
