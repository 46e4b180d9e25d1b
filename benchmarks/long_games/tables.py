"""Means, and differences against the reference paired by instance, with 95 % intervals.

Every instance is one cluster: it gives one number per estimator, whatever went into that. Families are independent of
each other, so the error of a mean over families is that of a mean of independent means.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hgpo.evaluation.statistics import student_quantile
from long_games.cells import Cell
from long_games.contenders import DISCOUNTED_BASELINE, ORACLE_CREDIT, REFERENCE
from long_games.families import FAMILIES
from long_games.rules import Floats
from stored_rows import markdown_table

ALL = "all families"
DRAWN = (REFERENCE, "gigpo", "hgpo paper", "grpo", DISCOUNTED_BASELINE, ORACLE_CREDIT)
"""Estimators whose mean curves are stored for the picture."""
Done = Mapping[Cell, Mapping[str, Any]]


def _points(result: Mapping[str, Any]) -> float:
    return 100.0 * float(np.mean(result["success"][1:]))


def _end(result: Mapping[str, Any]) -> float:
    return 100.0 * float(result["success"][-1])


FIGURES = {
    "kl": ("kl", _points),
    "kl end": ("kl", _end),
    "adam": ("adam", _points),
    "adam end": ("adam", _end),
    "cosine": ("cosine", lambda result: float(result["batch"])),
    "cosine of mean": ("cosine", lambda result: float(result["mean"])),
}
"""What a row says -> the measure it is taken from, and how. Curves: points of success, mean of all or last."""


def rows(done: Done, estimators: Sequence[str]) -> list[dict[str, Any]]:
    """All rows for which at least two instances are complete, that is, have a cell for every one of the estimators.

    Returns:
        For each figure, estimator and family, and `ALL`: "instances", their number (of all families together);
        "mean", of the figure; "difference", mean of estimator - reference; "low" and "high", its 95 % interval.
    """
    found = []
    for figure in FIGURES:
        values = {family: _values(done, figure, family, estimators) for family in FAMILIES}
        kept = {family: value_IE for family, value_IE in values.items() if len(value_IE) > 1}
        for n, name in enumerate(estimators):
            base = list(estimators).index(REFERENCE)
            pairs = {family: (value_IE[:, n], value_IE[:, base]) for family, value_IE in kept.items()}
            found += [_row(figure, family, name, [pair]) for family, pair in pairs.items()]
            if len(pairs) == len(FAMILIES):
                found.append(_row(figure, ALL, name, list(pairs.values())))
    return found


def complete(done: Done, measure: str, family: str, estimators: Sequence[str]) -> list[int]:
    """The instances that have a cell for every estimator, in order."""
    some = {cell.instance for cell in done if (cell.measure, cell.family) == (measure, family)}
    return sorted(i for i in some if all(Cell(measure, family, i, name) in done for name in estimators))


def _values(done: Done, figure: str, family: str, estimators: Sequence[str]) -> Floats:
    """float64[I, E] of the complete instances."""
    measure, read = FIGURES[figure]
    instances = complete(done, measure, family, estimators)
    return np.array([[read(done[Cell(measure, family, i, name)]) for name in estimators] for i in instances])


def _row(figure: str, family: str, estimator: str, pairs: list[tuple[Floats, Floats]]) -> dict[str, Any]:
    """Of one family, or the mean of several; degrees of freedom by Welch and Satterthwaite."""
    differences = [value_I - base_I for value_I, base_I in pairs]
    squares = [float(d.var(ddof=1)) / len(d) / len(pairs) ** 2 for d in differences]
    error = math.sqrt(sum(squares))
    below = sum(square**2 / (len(d) - 1) for square, d in zip(squares, differences, strict=True))
    half = student_quantile(0.975, sum(squares) ** 2 / below) * error if error else 0.0
    difference = float(np.mean([d.mean() for d in differences]))
    return {
        "figure": figure,
        "family": family,
        "estimator": estimator,
        "instances": sum(len(d) for d in differences),
        "mean": float(np.mean([value_I.mean() for value_I, _ in pairs])),
        "difference": difference,
        "low": difference - half,
        "high": difference + half,
    }


def mean_curve(done: Done, measure: str, family: str, estimator: str, estimators: Sequence[str]) -> list[float]:
    """Mean success after 0, 1, … updates over the complete instances, in per cent."""
    instances = complete(done, measure, family, estimators)
    curves_IU = np.array([done[Cell(measure, family, i, estimator)]["success"] for i in instances])
    return [round(100.0 * float(value), 2) for value in curves_IU.mean(axis=0)] if len(instances) else []


def summary(done: Done, settings: dict[str, Any], estimators: Sequence[str]) -> dict[str, Any]:
    """What is kept of all cells: settings, rows, and the mean curves of equal divergence that are drawn."""
    curves = [
        {"family": family, "estimator": name, "success": mean_curve(done, "kl", family, name, estimators)}
        for family in FAMILIES
        for name in estimators
        if name in DRAWN
    ]
    return {"settings": settings, "rows": [_short(row) for row in rows(done, estimators)], "curves": curves}


def _short(row: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}


def as_markdown(stored: dict[str, Any], figure: str, names: Sequence[str]) -> str:
    """The Markdown table of a summary's figure.

    Rows of curves: differences to the reference, with intervals; of cosines: the figures themselves.
    """
    cells = {(row["family"], row["estimator"]): row for row in stored["rows"] if row["figure"] == figure}
    families = [family for family in (*FAMILIES, ALL) if (family, REFERENCE) in cells]

    def shown(row: dict[str, Any]) -> str:
        if figure.startswith("cosine"):
            return f"{row['mean']:.3f}"
        if row["estimator"] == REFERENCE:
            return f"{row['mean']:.1f}"
        return f"{row['difference']:+.1f} ± {row['high'] - row['difference']:.1f}"

    rows = ([name, *(shown(cells[family, name]) for family in families)] for name in names)
    return markdown_table(["estimator", *families], rows)
