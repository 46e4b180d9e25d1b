"""Where the nodes of a task's transition graph are drawn: in columns by how many steps they are from the start.

igraph's layered drawing (Sugiyama, Tagawa and Toda 1981) orders the nodes of each column so that few edges cross.

Shapes: V nodes of one task, S steps of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hgpo.columns import FloatArray, IntArray

SWEEPS = 24
"""Rounds of crossing reduction per drawing; more change little on graphs of some dozens of nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class NodePlaces:
    """column_V: int64[V], steps from the start along the shortest way. row_V: float64[V], place within the column.

    Example: hall -> kitchen -> end has columns 0, 1, 2 and rows 0, 0, 0.
    """

    column_V: IntArray
    row_V: FloatArray


def place_nodes(source_S: IntArray, target_S: IntArray, starts: IntArray, nodes: int, last: IntArray) -> NodePlaces:
    """Lay out one task.

    Args:
        source_S, target_S: the edges, one per step; repeated edges and loops are allowed.
        starts: nodes in which trajectories start.
        nodes: V.
        last: nodes to put in a column after all others.

    Raises:
        ValueError: igraph is not installed.
    """
    try:
        import igraph
    except ModuleNotFoundError as error:
        raise ValueError('the report places graphs with igraph: pip install "hgpo[report]"') from error

    edges = np.unique(np.stack([source_S, target_S], axis=1), axis=0)
    edges = edges[edges[:, 0] != edges[:, 1]]
    graph = igraph.Graph(n=nodes, edges=edges.tolist(), directed=True)
    distance = np.array(graph.distances(source=np.unique(starts).tolist(), mode="out"), dtype=np.float64)
    nearest_V = distance.min(axis=0)
    nearest_V[~np.isfinite(nearest_V)] = 0.0  # no step leads there: a column of its own would say otherwise
    column_V = nearest_V.astype(np.int64)
    others_V = np.ones(nodes, dtype=np.bool_)
    others_V[last] = False
    if len(last) and others_V.any():
        column_V[last] = int(column_V[others_V].max()) + 1
    placed = graph.layout_sugiyama(layers=column_V.tolist(), hgap=1, vgap=1, maxiter=SWEEPS)
    row_V = np.array([x for x, _ in placed.coords[:nodes]], dtype=np.float64)
    return NodePlaces(column_V, row_V - row_V.min())
