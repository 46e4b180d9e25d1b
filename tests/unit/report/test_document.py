import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("igraph", reason='igraph is missing: pip install "hgpo[report]"')

from hgpo.report.document import packed_report, place_nodes
from hgpo.report.estimator_comparison import Training
from hgpo.report.report import build_report
from packed_reports import read_column, unpack


@pytest.fixture
def document(folder):
    report = build_report(folder)
    header, stored = unpack(packed_report(report))
    return report, header, lambda column: read_column(column, stored)


def text(header, read, number):
    start, line = read(header["texts"]["start"]), read(header["texts"]["line"])
    return "\n".join(header["lines"][int(at)] for at in line[int(start[number]) : int(start[number + 1])])


def test_steps_find_their_texts(document, rows):
    _, header, read = document
    prompts = read(header["steps"]["prompt"])
    assert [text(header, read, int(number)) for number in prompts[: len(rows)]] == [row["prompt"] for row in rows]
    assert read(header["steps"]["fault"]).tolist() == [0] * 2 * len(rows)


def test_numbers_count_on_over_updates(document, rows):
    _, header, read = document
    assert read(header["steps"]["task"]).tolist() == [0] * 7 + [1] * 4 + [2] * 7 + [3] * 4
    assert read(header["tasks"]["update"]).tolist() == [1, 1, 2, 2]
    (paper,) = [stored for stored in header["advantages"] if stored["key"] == "paper"]
    group = read(paper["levels"][0]["group"])
    assert not set(group[: len(rows)].tolist()) & set(group[len(rows) :].tolist())
    assert group.max() + 1 == len(set(group.tolist()))


def test_advantages_are_the_librarys(document):
    report, header, read = document
    for stored in header["advantages"]:
        expected = np.concatenate([part.advantages[stored["key"]] for part in report.samples])
        np.testing.assert_allclose(read(stored["advantage"]), expected, rtol=1e-6, atol=1e-7)


def test_values_that_json_has_not_do_no_harm(folder):
    metrics = ({"update": 9, "success": float("nan"), "reward": float("inf"), "episode_length": 3.0},)
    training = Training("hgpo", {"length_weight_alpha": float("inf"), "history_length": 1}, 0.5, metrics)
    header, _ = unpack(packed_report(build_report(folder, training)))
    assert header["estimators"][0]["options"] == {"length_weight_alpha": "inf", "history_length": 1}
    (length,) = [chart["spec"]["data"]["values"] for chart in header["charts"] if chart["id"] == "length"]
    assert [row["update"] for row in length] == [1, 2, 9]


def test_levels_bring_their_own_names(folder):
    header, _ = unpack(packed_report(build_report(folder, Training("g2po"))))
    assert header["levelsOf"] == "levels of G2PO (as trained)"
    names = {stored["key"]: [level["name"] for level in stored["levels"]] for stored in header["advantages"]}
    assert names["trained"] == ["whole trajectories of the task", "same node", "whole task"]
    assert names["paper"][1] == "same state and 1 step of history"
    assert names["prompt"] == ["same prompt"]
    assert [level["name"] for level in header["updates"][0]["summary"]["levels"]] == ["same node", "whole task"]


def test_the_same_report_gives_the_same_bytes(folder):
    assert packed_report(build_report(folder)) == packed_report(build_report(folder))


def test_columns_are_steps_from_the_start_and_ends_come_last():
    # 0 -> 1 -> 0 (back), 1 -> 2, 2 -> 2 (loop), 2 -> 4, 0 -> 3 -> 4; node 4 is the end, 5 is never reached
    source, target = np.array([0, 1, 1, 2, 2, 0, 3]), np.array([1, 0, 2, 2, 4, 3, 4])
    column_V, row_V = place_nodes(source, target, np.array([0, 0]), 6, np.array([4]))
    assert column_V.tolist() == [0, 1, 2, 1, 3, 0]
    assert row_V.min() == 0
    assert len(set(zip(column_V.tolist(), row_V.tolist(), strict=True))) == 6


def test_one_node_alone():
    column_V, row_V = place_nodes(np.array([0]), np.array([0]), np.array([0]), 1, np.array([], dtype=np.int64))
    assert (column_V.tolist(), row_V.tolist()) == ([0], [0.0])


def test_unconnected_parts_are_placed_side_by_side():
    """A cycle 0, 1, 2 and a star from 3. In a process of its own: igraph 1.0 crashes if it places both at once."""
    code = """if True:
        import numpy as np
        from hgpo.report.document import place_nodes
        leaves = np.arange(4, 1004)
        source, target = np.append([0, 1, 2], np.full(1000, 3)), np.append([1, 2, 0], leaves)
        column_V, row_V = place_nodes(source, target, np.array([0, 3]), 1004, np.array([], dtype=np.int64))
        assert column_V[:5].tolist() == [0, 1, 2, 0, 1]
        assert row_V[:3].min() == 0 and row_V[3:].min() == row_V[:3].max() + 1
    """
    subprocess.run([sys.executable, "-c", code], check=True)
