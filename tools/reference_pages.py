"""Writes docs/reference/settings.md from `hgpo.config` and docs/reference/metrics.md from `METRICS` below.

    python tools/reference_pages.py

Tests compare the pages with this module's output, and the keys of `METRICS` with the rows that both engines write.
"""

# ruff: noqa: E501 - a figure's meaning is one line
from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

from hgpo.config import describe_settings

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
METRICS: dict[str, dict[str, str]] = {
    "Episodes": {
        "update": "index of the update, from 1",
        "success": "share of episodes that were won",
        "score": "mean over episodes of the environment's `score` at the end, 0–1; without a `score`, 1 for a won episode, else 0",
        "reward": "mean over episodes of the sum of training rewards",
        "episode_length": "mean number of steps of an episode",
        "episodes": "number of episodes",
        "steps": "number of steps",
        "valid_actions": "share of responses in the required form",
        "admissible_actions": "share of actions that the environment listed as admissible; absent where it lists none",
        "cut_responses": "share of responses that were cut at `policy.max_response_tokens`",
        "steps_with_forgotten_memory": "number of prompts without some remembered steps, because they exceeded `policy.max_prompt_tokens`",
        "forgotten_pairs": "number of remembered (observation, action) pairs that were removed from prompts",
        "prompt_tokens": "prompt tokens of all steps, chat template included",
        "response_tokens": "response tokens of all steps",
        "resampled_groups": "number of groups that were replaced because their episodes had equal total rewards (`rollout.resample_uniform_groups`)",
        "tasks_drawn": "number of training tasks drawn since the run started",
        "lost_trajectories": "verl only: episodes left out because they could not continue ([failures](../verl.md#failures))",
    },
    "Advantages and groups": {
        "advantage_mean": "mean of the advantages",
        "advantage_deviation": "standard deviation of the advantages",
        "advantage_zero_share": "share of advantages that are exactly 0",
        "unequal_starts": "share of the update's tasks whose trajectories start in different states (by `rollout.state`); 0 in a correct environment",
        "group_size_k": "mean over steps of the number of steps in the group",
        "group_trajectories_k": "mean over steps of the number of trajectories in the group",
        "group_usable_k": "share of steps for which the level is used",
        "level_weight_k": "mean weight of the level, 0 where it is unused",
        "level_sign_agreement_k": "of the steps where this level and the level before (for level 0: the episode level) are used and have advantages other than 0: share with equal signs",
        "level_sign_agreement_final_k": "the same for this level and the final advantage",
        "level_variance_explained_k": "raw variance explained, 1 − W/T; [inspect.md](../inspect.md#variance-explained) defines W and T",
        "level_variance_explained_adjusted_k": "adjusted variance explained, 1 − W/E[W]; 0 on average if groups are unrelated to returns",
        "level_prompts_differ_k": "of the steps in groups of two or more: share in groups whose prompts are not all equal",
    },
    "Policy update": {
        "loss": "the minimised loss, mean over mini-batches",
        "policy_loss": "the part of `loss` that depends on the advantages",
        "kl": "k3 estimate of the KL divergence from the start policy: r − 1 − log r, with r the start's token probability over the policy's; averaged by `training.loss_aggregation`",
        "entropy": "mean entropy of the response tokens' distributions, in nats; averaged by `training.loss_aggregation` (verl with recomputed log-probs and no entropy bonus: over tokens)",
        "clip_fraction": "share of response tokens whose ratio was clipped, so that they have no gradient (`cispo`: whose weight was clipped)",
        "dual_clip_fraction": "share of response tokens that `training.dual_clip` bounds, with negative advantages (`gspo`, `cispo`: 0)",
        "approximate_kl": "mean over response tokens of the log-prob before the update minus the log-prob in the update, in nats",
        "gradient_norm": "L2 norm of the gradient before clipping, mean over mini-batches",
        "samples": "steps that were trained on",
        "tokens": "response tokens that were trained on",
        "mini_batches": "optimiser steps",
        "empty_responses": "samples without a response token; they have no gradient",
        "padding_rows": "verl only: rows without advantage and loss that fill up a mini-batch",
    },
    "Critic": {
        "critic_loss": "value loss of the critic, mean over mini-batches; this and the next five are present with a critic",
        "critic_clip_fraction": "share of samples whose value loss `critic.value_clip` determines",
        "critic_gradient_norm": "L2 norm of the critic's gradient before clipping, mean over mini-batches",
        "explained_variance": "1 − Var(target − value) / Var(target) over steps, with the values before the update",
        "value_mean": "mean over steps of the values before the update",
        "value_target_mean": "mean over steps of the critic's targets",
    },
    "Sampler and trainer": {
        "sampler_gap_mean": "mean absolute difference of the sampler's and the trainer's log-prob of a token; this and the next three are present with `training.recompute_log_probs`",
        "sampler_gap_max": "largest of these differences",
        "sampler_effective_sample_size": "(Σ w)² / (N Σ w²) over the N tokens' importance weights w; 1 if all are equal",
        "sampler_clipped_share": "share of tokens whose weight exceeded `training.importance_cap`",
        "staleness_min": "age of the update's newest token: how many policy versions ago it was sampled; this and the next four are present in verl's asynchronous modes",
        "staleness_mean": "mean over steps of the age of the step's oldest token",
        "staleness_max": "age of the update's oldest token",
        "staleness_spread_mean": "mean over groups of the age of the group's oldest token minus the age of its newest",
        "staleness_spread_max": "largest of these spreads",
    },
    "Cost": {
        "seconds_collect": "wall time of the rollouts, in seconds; in verl's asynchronous modes, of waiting for rollouts",
        "seconds_advantages": "wall time of the estimator, in seconds",
        "seconds_update": "wall time of the policy update, in seconds; a critic's values and training included",
        "tokens_per_second": "prompt and response tokens divided by the sum of these three times",
        "peak_memory_gib": "peak memory so far in GiB: allocated CUDA memory, or resident memory of the process on a CPU; verl: allocated memory of the actor's or the critic's device, absent on CPUs",
        "out_of_memory": "built-in engine on CUDA: how often memory ran out in the policy update, so that micro-batches were halved; absent if never",
    },
}
"""Topic -> key of a row of metrics.jsonl -> meaning; `k` in a key stands for a level or for `episode`."""


def settings_page() -> str:
    """Every setting, by section."""
    lines = [
        "# Settings",
        "",
        "All settings with their defaults, written by `tools/reference_pages.py`; `hgpo train --settings` prints the same. A recipe sets them in",
        "TOML tables, the command line as `section.name=value`. A setting that the chosen engine does not read is rejected if it is changed; the table",
        "`verl` is ignored by the built-in engine.",
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
        "stands for the number of a level, or for `episode`: the level of whole trajectories. A figure that does not apply is absent. Written by",
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


def write(pages: Mapping[Path, str]) -> None:
    """Write every page."""
    for path, text in pages.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(pages())
