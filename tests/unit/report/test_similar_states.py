"""What the report has of levels that compare similar states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hgpo.report.estimator_comparison import Training
from hgpo.report.report import build_report
from hgpo.report.sampled import LevelColumns
from house import walk, write_rows
from packed_reports import read_column, unpack

OPTIONS = {"match_threshold": 0.6, "match_own_trajectory": False, "history_length": 1}


@pytest.fixture
def report(tmp_path: Path) -> Any:
    """Two updates of two tasks; rooms 1 to 3 are similar, the hall is not."""
    for update in (1, 2):
        tasks = [(task, name) for task in "ab" for name in "012"]
        rooms = [["hall", f"room {at % 3}", f"room {(at + update) % 3}", "room 2"] for at in range(len(tasks))]
        rows = [
            row
            for (task, name), path in zip(tasks, rooms, strict=True)
            for row in walk(update, task, name, path, won=name == "0")
        ]
        write_rows(tmp_path / f"{update:05d}.jsonl", rows)
    return build_report(tmp_path, Training("hgpo", OPTIONS, gamma=0.5))


def compared(level: LevelColumns, trajectory: Any, step: int) -> list[int]:
    """The members of a step as the page finds them, `Data.group` in data.js."""
    group, matches = level.columns["group"], level.matches
    similar = set(matches["target"][matches["source"] == group[step]].tolist())
    return [
        at
        for at in range(len(group))
        if group[at] == group[step] or (int(group[at]) in similar and trajectory[at] != trajectory[step])
    ]


def test_the_members_of_a_step_are_those_it_was_compared_with(report: Any) -> None:
    assert all(level.similar_share > 0 for update in report.updates for level in update.summary.levels)
    for task in report.samples:
        for level in task.levels["trained"]:
            assert "similar state (by text, at least 0.6)" in level.name
            returns, trajectory = task.columns["return"], task.columns["trajectory"]
            members = [compared(level, trajectory, step) for step in range(len(task))]
            means = [float(np.mean(returns[rows])) for rows in members]
            np.testing.assert_allclose(level.columns["mean"], means, atol=1e-12)
            assert set(level.matches["source"].tolist()) <= set(level.columns["group"].tolist())


def test_the_page_has_the_pairs_of_all_updates(report: Any) -> None:
    pytest.importorskip("igraph", reason='igraph is missing: pip install "hgpo[report]"')
    from hgpo.report.document import packed_report

    header, stored = unpack(packed_report(report))
    [trained] = [one for one in header["advantages"] if one["key"] == "trained"]
    for k, level in enumerate(trained["levels"]):
        assert level["ownTrajectory"] is False
        group, source, target, similarity = (
            read_column(level[name], stored) for name in ("group", "source", "target", "similarity")
        )
        assert len(source) == sum(len(sample.levels["trained"][k].matches["source"]) for sample in report.samples)
        assert ((similarity >= 0.6 - 1e-6) & (similarity < 1)).all()
        first, pairs = len(report.samples[0]), len(report.samples[0].levels["trained"][k].matches["source"])
        assert {*source[:pairs].tolist(), *target[:pairs].tolist()} <= set(group[:first].tolist())
        assert {*source[pairs:].tolist(), *target[pairs:].tolist()} <= set(group[first:].tolist())
    [paper] = [one for one in header["advantages"] if one["key"] == "paper"]
    assert "source" not in paper["levels"][0]
