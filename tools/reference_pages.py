"""Writes docs/reference/settings.md from `hgpo.config` and docs/reference/metrics.md from `METRICS` below.

    python tools/reference_pages.py

A test compares the pages with the output of this script; other tests compare the keys of `METRICS` with the rows that
both engines write.
"""

# ruff: noqa: E501 - a figure's meaning is one line
from __future__ import annotations

from itertools import groupby
from pathlib import Path

from hgpo.config import describe_settings

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
METRICS: dict[str, dict[str, str]] = {
    "Episodes": {
        "update": "index of the update, from 1",
        "success": "share of episodes that were won",
        "score": "mean of the environment's grade, 0–1",
        "reward": "mean sum of an episode's training rewards",
        "episode_length": "mean number of steps of an episode",
        "episodes": "number of episodes",
        "steps": "number of steps",
        "valid_actions": "share of responses from which an action could be parsed",
        "admissible_actions": "share of actions that the environment listed as admissible; absent where it lists none",
        "cut_responses": "share of responses that were cut at `policy.max_response_tokens`",
        "steps_with_forgotten_memory": "number of prompts that lost remembered steps, because they exceeded `policy.max_prompt_tokens`",
        "forgotten_pairs": "number of remembered (observation, action) pairs that were removed from prompts",
        "prompt_tokens": "prompt tokens of all steps, chat template included",
        "response_tokens": "response tokens of all steps",
        "resampled_groups": "number of groups that were replaced because all their episodes had the same total reward (`rollout.resample_uniform_groups`)",
        "tasks_drawn": "tasks used since the run started",
        "lost_trajectories": "verl only: episodes left out because their environment worker was lost",
    },
    "Advantages and groups": {
        "advantage_mean": "mean of the advantages",
        "advantage_deviation": "standard deviation of the advantages",
        "advantage_zero_share": "share of advantages that are exactly 0",
        "group_size_k": "mean over steps of the number of steps in the group",
        "group_trajectories_k": "mean over steps of the number of trajectories in the group",
        "group_usable_k": "share of steps for which the level is used",
        "level_weight_k": "mean weight of the level, 0 where it is unused",
        "level_sign_agreement_k": "share of steps whose advantage has the same sign as at the level before (level 0: as at the episode level), where both are used and not 0",
        "level_sign_agreement_final_k": "share of steps whose advantage at this level has the same sign as the final advantage",
        "level_variance_explained_k": "raw variance explained: 1 − W/T, see [inspect.md](../inspect.md#variance-explained)",
        "level_variance_explained_adjusted_k": "adjusted variance explained: 1 − W/E[W]; 0 is chance",
        "level_prompts_differ_k": "among the steps in groups of two or more, share of those in groups whose prompts are not all equal",
    },
    "Policy update": {
        "loss": "the minimised loss, mean over mini-batches",
        "policy_loss": "the part of the loss that depends on the advantages",
        "kl": "k3 estimate of the KL divergence from the start policy: r − 1 − log r, with r the start policy's probability of a token divided by the policy's",
        "entropy": "mean entropy of the response tokens' distributions, in nats",
        "clip_fraction": "share of response tokens without gradient because the ratio was clipped",
        "dual_clip_fraction": "share of response tokens clipped by the second bound, for negative advantages (`cispo`: share whose weight was clipped)",
        "approximate_kl": "mean log-prob at sampling minus mean log-prob now, in nats",
        "gradient_norm": "L2 norm before clipping, mean over mini-batches",
        "samples": "steps that were trained on",
        "tokens": "response tokens that were trained on",
        "mini_batches": "optimiser steps",
        "empty_responses": "samples without a response token; they have no gradient",
        "padding_rows": "verl only: rows without advantage and loss that fill up a mini-batch",
    },
    "Sampler and trainer": {
        "sampler_gap_mean": "mean absolute difference of the sampler's and the trainer's log-prob of a token; this and the next three are present with `training.recompute_log_probs`",
        "sampler_gap_max": "largest absolute difference",
        "sampler_effective_sample_size": "(Σ w)² / (N Σ w²) over the N tokens' importance weights w; 1 if all are equal",
        "sampler_clipped_share": "share of tokens whose weight is at `training.importance_cap`",
        "staleness_min": "verl's asynchronous modes only, like the next four: number of policy versions since the newest token was sampled",
        "staleness_mean": "mean over steps of the number of policy versions since the step's oldest token was sampled",
        "staleness_max": "number of policy versions since the oldest token was sampled",
        "staleness_spread_mean": "mean over groups of the number of versions between a group's oldest and newest token",
        "staleness_spread_max": "largest such number of a group",
    },
    "Cost": {
        "seconds_collect": "wall time of the rollouts, in seconds; verl's asynchronous modes: time spent waiting for rollouts",
        "seconds_advantages": "wall time of the estimator, in seconds",
        "seconds_update": "wall time of the policy update, in seconds",
        "tokens_per_second": "prompt and response tokens per second of the three together",
        "peak_memory_gib": "peak memory so far in GiB: allocated CUDA memory, or resident memory of the process on a CPU; verl: memory of the actor's device, absent on CPUs",
        "out_of_memory": "built-in engine on CUDA: how often memory ran out and micro-batches were halved; absent if never",
    },
}
"""Topic -> key of a row of metrics.jsonl -> meaning; `k` in a key stands for a level or for `episode`."""


def settings_page() -> str:
    """Every setting, by section."""
    lines = [
        "# Settings",
        "",
        "All settings with their defaults, written by `tools/reference_pages.py`; `hgpo train --settings` prints the same. A recipe sets them in",
        "TOML tables, the command line as `section.name=value`. A setting that the chosen engine does not read is rejected if it is changed.",
    ]
    for section, rows in groupby(describe_settings(), key=lambda row: row[0].split(".")[0]):
        lines += ["", f"## {section}", "", "| setting | default | meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | {code(default)} | {cell(text)} |" for name, default, text in rows]
    return "\n".join(lines) + "\n"


def metrics_page() -> str:
    """Every figure of metrics.jsonl, by topic."""
    lines = [
        "# Metrics",
        "",
        "A run writes one JSON object per update to `metrics.jsonl`; trackers receive the same figures. Shares are between 0 and 1. `k` in a name",
        "stands for a level, or for `episode` where an estimator compares whole trajectories. A figure that does not apply is absent. Written by",
        "`tools/reference_pages.py`.",
    ]
    for topic, keys in METRICS.items():
        lines += ["", f"## {topic}", "", "| key | meaning |", "|---|---|"]
        lines += [f"| `{key}` | {cell(meaning)} |" for key, meaning in keys.items()]
    return "\n".join(lines) + "\n"


def code(default: str) -> str:
    """A default as a cell."""
    return f"`{cell(default)}`" if default else "(empty)"


def cell(text: str) -> str:
    """Text that does not end a table's cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def pages() -> dict[Path, str]:
    """Path and text of every page."""
    return {REFERENCE / "settings.md": settings_page(), REFERENCE / "metrics.md": metrics_page()}


def main() -> None:
    """Write the pages."""
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
