"""What a report shows of a run without its steps: settings, and success on held-out tasks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hgpo.config import Config, describe_settings, setting_values
from hgpo.evaluation.eval_history import held_out_results
from hgpo.evaluation.statistics import detectable_by
from hgpo.runs.folder import RunDirectory

HEADLINES = (
    "advantage.estimator",
    "environment.name",
    "policy.model",
    "rollout.tasks_per_update",
    "rollout.group_size",
    "agent.history_length",
    "training.updates",
    "training.learning_rate",
    "advantage.gamma",
    "run.seed",
)
"""The settings at the top of the report."""


def run_facts(run: RunDirectory, config: Config) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The facts of an opened run as JSON values, and texts that say what could not be read.

    Nothing that the run names is imported. The settings are text; `changed` marks those that are not the default.
    """
    values = setting_values(config)
    settings = {
        name: {"name": name, "value": values[name], "changed": values[name] != default, "meaning": meaning}
        for name, default, meaning in describe_settings()
    }
    held_out = held_out_results(run, config.training.updates)
    gain = held_out.gain
    facts = {
        "headlines": [settings[name] for name in HEADLINES],
        "settings": list(settings.values()),
        "heldOut": [asdict(point) for point in held_out.points],
        "evaluationSet": held_out.evaluation_set,
        "gain": gain and {**asdict(gain), "detectable": detectable_by(gain)},
    }
    return facts, held_out.problems
