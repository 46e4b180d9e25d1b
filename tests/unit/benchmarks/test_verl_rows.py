"""The table of a row's costs, from figures and from command lines."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hgpo.runs.folder import RunDirectory, append_metrics
from verl_rows import (
    BEFORE,
    BEGIN,
    BUILT_IN,
    END,
    PAGE,
    VERL,
    Watched,
    figures,
    imported_from,
    kind_of,
    table,
    with_table,
)

STORED = PAGE.parents[1] / "benchmarks" / "verl_rows.json"


def row(update: int, seconds: float) -> dict[str, Any]:
    phases = {"seconds_collect": seconds, "seconds_advantages": 0.1, "seconds_update": 2 * seconds}
    return {"update": update, "steps": 100, **phases}


def test_the_first_update_is_not_counted(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for update, seconds in ((1, 9.0), (2, 1.0), (3, 2.0)):
        append_metrics(run, row(update, seconds))
    watched = Watched(first=Counter({"ranks": 5.0}), last=Counter({"ranks": 6.0, "queue": 0.5}))
    found = figures(run, watched)
    assert found["rows_per_update"] == 100
    assert found["milliseconds"] == pytest.approx({"collecting": 15.0, "advantages": 1.0, "updating": 30.0})
    assert found["cpu_milliseconds"] == pytest.approx({"ranks": 5.0, "queue": 2.5})


def test_every_process_has_a_kind() -> None:
    assert kind_of("ray::WorkerDict.actor_rollout_update_actor").startswith("ranks")
    assert kind_of("ray::SimpleStorageUnit") == kind_of("ray::TransferQueueController") == "TransferQueue"
    assert kind_of("python -m hgpo.integrations.verl.environment_worker alfworld {}") == "environment workers"
    assert kind_of("/venv/ray/core/src/ray/gcs/gcs_server --log") == "Ray's own"
    assert kind_of("python -W ignore -m hgpo.cli train recipes/quickstart/hgpo.toml") == "the command"
    assert kind_of("sleep 1") == "other"


def measured(collecting: float, updating: float, **kinds: float) -> dict[str, Any]:
    milliseconds = {"collecting": collecting, "advantages": 0.1, "updating": updating}
    return {"rows_per_update": 100.0, "milliseconds": milliseconds, "cpu_milliseconds": kinds}


FOUND = {
    "updates": 4,
    BUILT_IN: measured(1.0, 2.0, other=3.0),
    VERL: measured(4.0, 6.0, TransferQueue=0.5),
    BEFORE: measured(5.0, 9.0, TransferQueue=0.75),
}


def test_a_kind_that_one_engine_has_is_nothing_to_the_other() -> None:
    assert table(FOUND) == [
        ("collecting", "1.00", "5.00", "4.00"),
        ("advantages", "0.10", "0.10", "0.10"),
        ("updating", "2.00", "9.00", "6.00"),
        ("collecting and updating, beyond the model", "", "11.00", "7.00"),
        ("CPU: TransferQueue", "0.00", "0.75", "0.50"),
        ("CPU: other", "3.00", "0.00", "0.00"),
    ]


def test_the_page_keeps_what_stands_around_the_table() -> None:
    page = with_table(f"above\n{BEGIN}\nold\n{END}\nbelow", FOUND)
    assert page.startswith(f"above\n{BEGIN}\n")
    assert page.endswith(f"{END}\nbelow")
    assert "| updating | 2.00 | 9.00 | 6.00 |" in page
    assert with_table(page, FOUND) == page


def test_another_checkout_is_what_its_runs_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src" / "hgpo").mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", "known")
    with imported_from(tmp_path):
        assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(tmp_path / "src"), "known"]
    assert os.environ["PYTHONPATH"] == "known"
    with pytest.raises(SystemExit, match="no checkout of this project"), imported_from(tmp_path / "src"):
        pass


def test_the_page_shows_the_stored_figures() -> None:
    found = json.loads(STORED.read_text())
    text = PAGE.read_text()
    assert with_table(text, found) == text
