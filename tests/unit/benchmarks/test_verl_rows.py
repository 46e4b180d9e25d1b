"""The table of a row's costs, from figures and from command lines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hgpo.runs.folder import RunDirectory, append_metrics
from verl_rows import Watched, figures, kind_of, table


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


def test_a_kind_that_one_engine_has_is_nothing_to_the_other() -> None:
    own = {"milliseconds": {"collecting": 1.0, "advantages": 0.1, "updating": 2.0}, "cpu_milliseconds": {"other": 3.0}}
    verl = {**own, "cpu_milliseconds": {"TransferQueue": 0.5}}
    assert table({"built-in": own, "verl": verl}) == [
        ("collecting, ms a row", "1.00", "1.00"),
        ("advantages, ms a row", "0.10", "0.10"),
        ("updating, ms a row", "2.00", "2.00"),
        ("CPU, TransferQueue, ms a row", "0.00", "0.50"),
        ("CPU, other, ms a row", "3.00", "0.00"),
    ]
