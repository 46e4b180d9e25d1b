"""The keys of metrics.jsonl that docs/reference/metrics.md explains."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "metrics.md"
OF_ASYNCHRONOUS_SAMPLING = {
    "staleness_min",
    "staleness_mean",
    "staleness_max",
    "staleness_spread_mean",
    "staleness_spread_max",
}
OF_VERL_ALONE = {"lost_trajectories", "padding_rows", *OF_ASYNCHRONOUS_SAMPLING}
OF_A_CRITIC = {
    *("critic_loss", "critic_clip_fraction", "critic_gradient_norm"),
    *("explained_variance", "value_mean", "value_target_mean"),
}
OF_FULL_MEMORY = {"out_of_memory"}
OF_RECOMPUTED_LOG_PROBS = {
    "sampler_gap_mean",
    "sampler_gap_max",
    "sampler_effective_sample_size",
    "sampler_clipped_share",
}


def explained() -> set[str]:
    """What stands in the first column of the page's table."""
    cells = [line.split("|")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    return {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}


def general(keys: Iterable[str]) -> set[str]:
    """Keys with their level's number, or `episode`, as the page writes it."""
    return {re.sub(r"_(\d+|episode)$", "_k", key) for key in keys}
