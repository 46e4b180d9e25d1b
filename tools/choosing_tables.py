"""The tables of docs/choosing.md, from benchmarks/gradients.json and campaign.json, and a line on pages of packages."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import campaign_table
from paired import paired_difference
from stored_rows import markdown_table
from trained_page import Campaign

GRADIENTS = re.compile(r"<!-- gradients -->\n(?:\|.*\n)*")
TRAINING = re.compile(r"<!-- training -->\n(?:\|.*\n)*")
REAL_MODEL = re.compile(r"<!-- real model -->\n(?:\|.*\n)*")
POOLS = ("report-start", "report-100", "report-200")
KEYS = {"observation": "text", "published_g2po": "G2PO's key"}
ALFWORLD, SHOPS = "alfworld-start", "webshop-start"
COMPARED = {
    "nested_td": "`nested_td`",
    "g2po": "`g2po`",
    "graphgpo": "`graphgpo`",
    "hgpo paper, no std": '`hgpo`, `mode="mean_norm"`',
    "hgpo paper": "`hgpo`",
    "gigpo": "`gigpo`",
    "grpo": "`grpo`",
}
"""Name in benchmarks/gradients.json -> as the page writes it."""
ROLLOUTS = 8
TRAINED = {
    "grpo": "GRPO",
    "gigpo": "GiGPO",
    "hgpo paper": "HGPO",
    "g2po": "G2PO",
    "graphgpo": "GraphGPO",
    "nested_td": "NestedTD",
    "ppo": "PPO",
}
"""Row of a campaign -> heading."""


def with_tables(page: str, gradients: Path, campaigns: Sequence[Campaign]) -> str:
    """The page with its tables replaced.

    Args:
        page: docs/choosing.md.
        gradients: benchmarks/gradients.json.
        campaigns: the rows of the table of trained policies; one has a real model, which has a table of its own.
    """
    page = GRADIENTS.sub(f"<!-- gradients -->\n{gradient_table(gradients)}", page)
    page = TRAINING.sub(f"<!-- training -->\n{training_table([one for one in campaigns if one.tiny])}", page)
    (real,) = (one for one in campaigns if not one.tiny)
    return REAL_MODEL.sub(f"<!-- real model -->\n{real_model_table(real)}", page)


def gradient_table(path: Path) -> str:
    """Cosines with the true gradient of the same tasks: a row per estimator, a column per state key."""
    found = {
        (row["pool"], row["estimator"], row["key"]): row["figures"]["same tasks"][""][0]
        for row in json.loads(path.read_text(encoding="utf-8"))
        if row["rollouts"] == ROLLOUTS
    }
    lines = [
        [
            shown,
            *(" ".join(_short(found[pool, name, key]) for pool in POOLS) for key in KEYS),
            " ".join(_short(found[ALFWORLD, name, key]) for key in KEYS),
            _short(found[SHOPS, name, "observation"]),
        ]
        for name, shown in COMPARED.items()
    ]
    heads = [f"household: {title}" for title in KEYS.values()]
    return markdown_table(["estimator", *heads, f"ALFWorld: {', '.join(KEYS.values())}", "shops: text"], lines)


def _short(cosine: float) -> str:
    return f"{cosine:.2f}".lstrip("0")


def training_table(campaigns: Sequence[Campaign]) -> str:
    """Held-out success in %: a row per campaign that has one, a column per estimator that any of them trained."""
    tables = campaign_table.tables()
    shown = {campaign.row: tables[campaign.settings] for campaign in campaigns if campaign.row}
    success = {
        title: {row.estimator.removesuffix(campaign_table.OF_KEY): f"{row.after:.1f}" for row in rows}
        for title, rows in shown.items()
    }
    names = [name for name in TRAINED if any(name in found for found in success.values())]
    lines = [
        [title, f"{rows[0].seeds} (≥{campaign_table.detectable(rows):.1f})"]
        + [success[title].get(name, "–") for name in names]
        for title, rows in shown.items()
    ]
    return markdown_table(["tasks", "seeds (detectable)", *(TRAINED[name] for name in names)], lines)


def real_model_table(campaign: Campaign) -> str:
    """Success of a real model in %, on held-out tasks and of all rollouts: a column per estimator."""
    rows = {row.estimator: row for row in campaign_table.tables()[campaign.settings]}
    names = [name for name in TRAINED if name in rows]
    lines = [
        ["held-out tasks", *(f"{rows[name].after:.1f}" for name in names)],
        ["while training", *(f"{rows[name].during:.1f}" for name in names)],
    ]
    return markdown_table(["success, %", *(TRAINED[name] for name in names)], lines)


def package_line(campaign: Campaign) -> str:
    """Success and gain by estimator, as a line of the README.md of the environment's package."""
    done = [one for one in campaign_table.stored() if one.settings == campaign.settings]
    [start] = campaign_table.success_of_starts(done).values()
    shown = []
    for row in campaign_table.rows(done):
        gain = paired_difference([100 * one.after for one in done if one.estimator == row.estimator], 100 * start)
        shown.append(f"{TRAINED[row.estimator]} {row.after:.1f} ({gain})")
    pairs = f"../../docs/results/trained-policies.md#{campaign.title.lower().replace(' ', '-')}-{campaign.split}"
    return (
        f"Trained from {100 * start:.1f} % of `{campaign.split}`, 3 seeds (95 % CI of the gain): "
        f"{', '.join(shown)}. [All pairs]({pairs})\n"
    )
