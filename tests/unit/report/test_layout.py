import numpy as np
import pytest

pytest.importorskip("igraph", reason='igraph is missing: pip install "hgpo[report]"')

from hgpo.report.layout import place_nodes


def test_columns_are_steps_from_the_start_and_ends_come_last():
    # 0 -> 1 -> 0 (back), 1 -> 2, 2 -> 2 (loop), 2 -> 4, 0 -> 3 -> 4; node 4 is the end, 5 is never reached
    source, target = np.array([0, 1, 1, 2, 2, 0, 3]), np.array([1, 0, 2, 2, 4, 3, 4])
    places = place_nodes(source, target, np.array([0, 0]), 6, np.array([4]))
    assert places.column_V.tolist() == [0, 1, 2, 1, 3, 0]
    assert places.row_V.min() == 0
    assert len({(c, r) for c, r in zip(places.column_V.tolist(), places.row_V.tolist(), strict=True)}) == 6


def test_one_node_alone():
    places = place_nodes(np.array([0]), np.array([0]), np.array([0]), 1, np.array([], dtype=np.int64))
    assert (places.column_V.tolist(), places.row_V.tolist()) == ([0], [0.0])
