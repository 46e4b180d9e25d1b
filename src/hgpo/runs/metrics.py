"""The figures of one update, from its steps and their advantages. Every key is explained in docs/metrics.md."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hgpo.estimators import Advantages
from hgpo.estimators.diagnostics import summarise_levels
from hgpo.rollout.records import StepRecord, outcomes
from hgpo.steps import StepBatch


def rollout_metrics(steps: Sequence[StepRecord]) -> dict[str, float]:
    """Success, reward, lengths and how well responses kept to the format."""
    played = outcomes(steps)
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


def advantage_metrics(batch: StepBatch, advantages: Advantages) -> dict[str, float]:
    """Spread of the advantages, and per level what its groups had to say; see `hgpo.estimators.diagnostics`."""
    return summarise_levels(batch, advantages).flat()
