"""The figures of one update, from its steps and their advantages. Every key is explained in docs/metrics.md."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hgpo.estimators import Advantages
from hgpo.rollout.records import StepRecord, episodes


def rollout_metrics(steps: Sequence[StepRecord]) -> dict[str, float]:
    """Success, reward, lengths and how well responses kept to the format."""
    played = episodes(steps)
    listed = [record.admissible for record in steps if record.admissible is not None]
    metrics = {
        "success": float(np.mean([episode.won for episode in played])),
        "score": float(np.mean([episode.score for episode in played])),
        "reward": float(np.mean([episode.total_reward for episode in played])),
        "episode_length": float(np.mean([episode.length for episode in played])),
        "episodes": len(played),
        "steps": len(steps),
        "valid_actions": float(np.mean([record.valid for record in steps])),
        "cut_responses": float(np.mean([not record.finished for record in steps])),
        "steps_with_forgotten_memory": sum(record.forgotten > 0 for record in steps),
        "forgotten_pairs": sum(record.forgotten for record in steps),
        "prompt_tokens": sum(len(record.prompt_ids) for record in steps),
        "response_tokens": sum(len(record.token_ids) for record in steps),
    }
    if listed:
        metrics["admissible_actions"] = float(np.mean(listed))
    return metrics


def advantage_metrics(advantages: Advantages) -> dict[str, float]:
    """Spread of the advantages; per level the mean group size a step sees and the share of usable groups."""
    values_N = advantages.values
    metrics = {
        "advantage_mean": float(values_N.mean()),
        "advantage_deviation": float(values_N.std()),
        "advantage_zero_share": float(np.mean(values_N == 0)),
    }
    for level in advantages.levels:
        metrics[f"group_size_{level.k}"] = float(level.size.mean())
        metrics[f"group_usable_{level.k}"] = float(np.mean(level.used))
    return metrics
