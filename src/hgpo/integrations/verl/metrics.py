"""verl's metrics under this project's names (docs/reference/metrics.md), and tracker folders. Does not import verl."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hgpo.config import TrainingSettings
from hgpo.runs.trackers import place

_NAMES = {
    "policy_loss": "actor/pg_loss",
    "kl": "actor/kl_loss",
    "entropy": "actor/entropy_loss",
    "clip_fraction": "actor/pg_clipfrac",
    "dual_clip_fraction": "actor/pg_clipfrac_lower",
    "approximate_kl": "actor/ppo_kl",
    "gradient_norm": "actor/grad_norm",
    "critic_loss": "critic/vf_loss",
    "critic_clip_fraction": "critic/vf_clipfrac",
    "critic_gradient_norm": "critic/grad_norm",
}
_SCORED_ENTROPY = "actor/entropy"  # from the pass that computes old log-probs
_OWN_NAMES = (
    "sampler_gap_mean",
    "sampler_gap_max",
    "sampler_effective_sample_size",
    "sampler_clipped_share",
    "explained_variance",
    "value_mean",
    "value_target_mean",
)
_PEAK_MEMORY = tuple(f"{role}/perf/max_memory_allocated_gb" for role in ("actor", "critic"))  # verl's gb are GiB


def update_metrics(verl_metrics: Mapping[str, Any], settings: TrainingSettings) -> dict[str, float]:
    """The metrics of an update under this project's names; those that verl did not report are absent.

    `loss` is the sum of its terms, as in the built-in trainer.
    """
    found = {name: float(verl_metrics[key]) for name, key in _NAMES.items() if key in verl_metrics}
    if _SCORED_ENTROPY in verl_metrics:
        found.setdefault("entropy", float(verl_metrics[_SCORED_ENTROPY]))
    if "policy_loss" in found:
        found["loss"] = (
            found["policy_loss"]
            + settings.kl_coefficient * found.get("kl", 0.0)
            - settings.entropy_coefficient * found.get("entropy", 0.0)
        )
    return found | {name: float(verl_metrics[name]) for name in _OWN_NAMES if name in verl_metrics}


def reported_peak_gib(verl_metrics: Mapping[str, Any]) -> float | None:
    """The peak memory of tensors, in GiB; None on a CPU, for which verl reports 0."""
    return max(float(verl_metrics.get(name, 0)) for name in _PEAK_MEMORY) or None


def set_tracker_folders(folder: Path) -> None:
    """Set the environment variables of trackers' folders (`hgpo.runs.trackers.place`) that are not set."""
    for name in ("TENSORBOARD_DIR", "SWANLAB_LOG_DIR", "WANDB_DIR", "TRACKIO_DIR", "MLFLOW_TRACKING_URI"):
        os.environ[name] = place(name, folder)
    os.environ.setdefault("VERL_FILE_LOGGER_PATH", str(folder / "verl-metrics.jsonl"))
