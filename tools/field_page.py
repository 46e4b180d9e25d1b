# ruff: noqa: E501 -- texts of pages
"""The page docs/results/field.md: figures that papers and repositories report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, model_validator

import campaign_table
from stored_rows import markdown_table

ARXIV = re.compile(r"arXiv:\d{4}\.\d{5}")
FEWEST_SOURCES = 2
"""Fewest sources of a row in the table of spreads; figures of one source have no spread between sources."""
NAMES = {
    "gigpo": "GiGPO",
    "graphgpo": "GraphGPO",
    "hgpo paper": "HGPO",
    "hgpo verl-agent": "HGPO, verl-agent preset",
    "hgpo mean_norm": "HGPO without std",
    "mixed_effects": "mixed effects",
    "nested_td": "NestedTD",
}
"""Estimator -> its name on the page; other estimators are named in upper case."""


def link_of(source: str) -> str:
    """The address of an arXiv id or URL; ValueError for anything else."""
    if ARXIV.fullmatch(source):
        return f"https://arxiv.org/abs/{source.removeprefix('arXiv:')}"
    parts = urlsplit(source)
    if parts.scheme != "https" or "." not in parts.netloc or not parts.path.strip("/"):
        raise ValueError(f"{source!r} is neither an arXiv id such as 'arXiv:2602.22817' nor an https address of a page")
    return source


def _checked_source(source: str) -> str:
    link_of(source)
    return source


Source = Annotated[str, AfterValidator(_checked_source)]
Percent = Annotated[float, Field(ge=0, le=100)]
Count = Annotated[int, Field(ge=1)]


class Figure(BaseModel):
    """One figure of one method as a paper or repository reports it. None: the source does not state the value.

    Attributes:
        method: name of the method on the page.
        source: arXiv id or URL of the paper or repository that reports the figure.
        reported_by: name of the source; all figures with one name count as one source.
        date: year and month of the source.
        benchmark, split: the evaluation set.
        model: the trained model.
        history_length: K. seeds: number of training seeds. evaluation_seeds: number of seeds that evaluated one policy.
        catalogue: number of products in WebShop's catalogue.
        checkpoint: the evaluated checkpoint: the best, the last, or the mean over several.
        success: in %. error: the number after ± in the source. score: WebShop's mean score, 0-100.
        checked: "source": the figure was read in `source`; "second hand": in another text, `read_in` if that is public.
        note: further conditions of the figure.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Annotated[str, Field(min_length=1)]
    source: Source
    reported_by: Annotated[str, Field(min_length=1)]
    date: Annotated[str, Field(pattern=r"^20\d\d-(0[1-9]|1[0-2])$")]
    benchmark: Literal["ALFWorld", "WebShop"]
    split: str | None
    model: str | None
    history_length: Annotated[int, Field(ge=0)] | None
    seeds: Count | None
    evaluation_seeds: Count | None = None
    catalogue: Count | None
    checkpoint: Literal["peak", "last", "mean"] | None
    success: Percent
    error: Annotated[float, Field(ge=0)] | None = None
    score: Percent | None = None
    checked: Literal["source", "second hand"]
    read_in: Source | None = None
    note: str = ""

    @model_validator(mode="after")
    def _fits(self) -> Figure:
        if self.benchmark == "ALFWorld" and (self.catalogue, self.score) != (None, None):
            raise ValueError("catalogue and score are WebShop's")
        if self.checked == "source" and self.read_in is not None:
            raise ValueError("read_in is for figures that are second hand")
        return self


@dataclass(frozen=True, slots=True)
class Spread:
    """Lowest and highest figure of one method with one model on one benchmark."""

    benchmark: str
    method: str
    model: str
    sources: int
    lowest: float
    highest: float


def figures_of(path: Path) -> list[Figure]:
    """The validated figures of the data file."""
    return TypeAdapter(list[Figure]).validate_json(path.read_bytes())


def spreads(figures: Sequence[Figure]) -> list[Spread]:
    """The spread of success between sources, widest first. ALFWorld's splits other than valid_seen are kept apart."""
    groups: dict[tuple[str, str, str], list[Figure]] = {}
    for one in figures:
        if one.model is not None:
            groups.setdefault((benchmark_of(one), one.method, one.model), []).append(one)
    found = []
    for (benchmark, method, model), members in groups.items():
        sources = len({one.reported_by for one in members})
        if sources >= FEWEST_SOURCES:
            success = [one.success for one in members]
            found.append(Spread(benchmark, method, model, sources, min(success), max(success)))
    return sorted(found, key=lambda one: (one.lowest - one.highest, one.benchmark, one.method, one.model))


def benchmark_of(one: Figure) -> str:
    """The name of the benchmark, with the split if it is stated and not ALFWorld's valid_seen."""
    usual = one.benchmark == "WebShop" or one.split in {None, "valid_seen"}
    return one.benchmark if usual else f"{one.benchmark}, {one.split}"


def field_page(path: Path) -> str:
    """The page, from the figures that are stored at `path`."""
    figures = figures_of(path)
    parts = [INTRODUCTION, _spread_section(figures)]
    for benchmark in ("ALFWorld", "WebShop"):
        here = [one for one in figures if one.benchmark == benchmark]
        parts += [f"## {benchmark}\n\n{_table(here)}"] if here else []
    return "\n".join([*parts, _ours(), COMMANDS])


def _spread_section(figures: Sequence[Figure]) -> str:
    lines = (
        [one.benchmark, one.method, one.model, str(one.sources)]
        + [f"{value:.1f}" for value in (one.lowest, one.highest, one.highest - one.lowest)]
        for one in spreads(figures)
    )
    return (
        "## Spread of one method between sources\n\n"
        f"Success in %, for methods with figures of one stated model in at least {FEWEST_SOURCES} sources of the tables below. All K, checkpoints and catalogues "
        'are taken together; "ALFWorld" is `valid_seen` or a split that the source does not name. A source can repeat the figure of another source.\n\n'
        + markdown_table(["benchmark", "method", "model", "sources", "lowest", "highest", "difference"], lines)
    )


def _table(figures: Sequence[Figure]) -> str:
    rows = [_cells(one) for one in sorted(figures, key=_order)]
    return markdown_table(list(rows[0]), (row.values() for row in rows))


def _cells(one: Figure) -> dict[str, str]:
    """Column -> cell of a figure's row; ALFWorld's and WebShop's tables have different columns."""
    cells = {"method": one.method, "model": _known(one.model), "K": _known(one.history_length)}
    if one.benchmark == "WebShop":
        cells["catalogue"] = "–" if one.catalogue is None else f"{one.catalogue:,}"
    else:
        cells["split"] = _known(one.split)
    cells |= {"seeds": _seeds(one), "checkpoint": _known(one.checkpoint)}
    if one.benchmark == "WebShop":
        cells["score"] = _known(one.score)
    error = "" if one.error is None else f" ± {_known(one.error)}"
    reported = f"[{one.reported_by}]({link_of(one.source)}), {one.date}"
    cells |= {"success": _known(one.success) + error, "reported by": reported}
    return cells | {"checked": _checked(one), "note": one.note}


def _order(one: Figure) -> tuple[str, str, str, str, int, float]:
    return one.method.lower(), one.model or "~", one.date, one.reported_by, one.history_length or 0, -one.success


def _seeds(one: Figure) -> str:
    evaluation = "" if one.evaluation_seeds is None else f", {one.evaluation_seeds} of evaluation"
    return f"{_known(one.seeds)}{evaluation}"


def _checked(one: Figure) -> str:
    return one.checked if one.read_in is None else f"[{one.checked}]({link_of(one.read_in)})"


def _known(value: float | str | None) -> str:
    if value is None:
        return "–"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.1f}" if round(value, 1) == value else f"{value:.2f}"


def _named(row: str) -> str:
    """How the page names a row of a campaign."""
    estimator = row.removesuffix(campaign_table.OF_KEY)
    return NAMES.get(estimator, estimator.upper()) + (", G2PO's key" if estimator != row else "")


def _ours() -> str:
    """The section with this project's campaigns, which train a tiny policy."""
    lines = [
        [_named(row.estimator), f"`{settings}`", str(row.seeds), f"{row.after:.1f}"]
        for settings, rows in sorted(campaign_table.tables().items())
        for row in sorted(rows, key=lambda row: row.estimator)
    ]
    return (
        "## Ours\n\n"
        "These figures were measured in this project: success in % of tiny policies, at the last checkpoint, mean over training seeds. The household "
        "games of `quickstart` and the shops are generated. Models of 1.5B and 7B were not trained here. Rows of one setting have one start policy; rows of different settings are not comparable. Unless the settings name a key for all rows, G2PO and NestedTD have the published G2PO's state key in household games and ALFWorld, the others the text. Intervals are in [trained policies](trained-policies.md), single "
        "runs in [results](README.md).\n\n"
        + markdown_table(["method", "recipe and settings", "training seeds", "success"], lines)
    )


INTRODUCTION = """# Figures of the field

This page lists what papers and repositories report for ALFWorld and WebShop, with the source of each figure. "–": the source does not state it, or we did
not read it there. Success and score are in %.

**Do not compare figures of different sources.** Their conditions differ, and many are not stated:

- **Tasks.** Trainers derived from verl-agent evaluate 128 episodes by default. The order of ALFWorld's games can follow the file system, workers shuffle independently, and
  tasks can repeat within a validation ([Agent-G2 #1](https://github.com/ZJU-REAL/Agent-G2/issues/1),
  [AgentOPSD #11](https://github.com/ZethWang/AgentOPSD/issues/11), [SDAR #58](https://github.com/ZJU-REAL/SDAR/issues/58)).
- **Splits.** GiGPO with K = 2 has 90.2 on `valid_seen` and 84.8 on `valid_unseen`. Many rows name no split.
- **Catalogues.** WebShop is run with 1,000 or with 1.18 million products; the rows below do not state which (verl-agent's default is 1,000). Worker seeds can change goals and prices.
- **Checkpoints.** The best of many evaluations is at least as high as the last one: 43.8 and 35.2 in one training of GRPO below.
- **Seeds.** Most rows are of one training, or do not state the number of trainings. One frozen GiGPO policy had 83.6, 86.7 and 89.1 with three evaluation seeds
  ([agent-context-grpo](https://github.com/tracyhann/agent-context-grpo/blob/04efa44fe2b03aba90dbe1d411cb7038a75b3c6b/RESULTS.md)); two training seeds of one
  setting of GraphGPO had 89.8 and 78.9 ([Relax #280](https://github.com/redai-studio/Relax/pull/280)).
- **Settings.** History length K, steps per episode, updates, prompt and versions of the trainer differ.

Column "seeds": number of training seeds, then of evaluation seeds if stated. Column "checked": `source`: we read the figure in the source; `second hand`: we read
it in another text, which is linked if it is public. [Reporting results](../reporting.md) explains how to report figures that can be compared.
"""

COMMANDS = """## Add a figure

Add a row to `benchmarks/field.json`; `tools/field_page.py` describes and checks its fields. Then run

    python tools/results_pages.py
"""
