"""A run without its steps: settings and success on held-out tasks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from hgpo.config import Config, describe_settings, setting_values
from hgpo.evaluation.eval_history import HeldOutResults, held_out_results
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


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as people read it.

    Attributes:
        name: Dotted, as in a recipe.
        value: As text.
        changed: Whether it is another than the default.
        meaning: What it is for.
    """

    name: str
    value: str
    changed: bool
    meaning: str


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run without its steps.

    Attributes:
        settings: All of them.
        held_out: Success on the held-out tasks.
    """

    settings: tuple[Setting, ...] = ()
    held_out: HeldOutResults = field(default_factory=HeldOutResults)

    def headlines(self) -> list[Setting]:
        """The settings at the top of the report, in the order of `HEADLINES`."""
        by_name = {setting.name: setting for setting in self.settings}
        return [by_name[name] for name in HEADLINES if name in by_name]

    def as_header(self) -> dict[str, Any]:
        """The facts as plain values for JSON."""
        gain = self.held_out.gain
        return {
            "headlines": [asdict(setting) for setting in self.headlines()],
            "settings": [asdict(setting) for setting in self.settings],
            "heldOut": [asdict(point) for point in self.held_out.points],
            "gain": gain and {**asdict(gain), "detectable": detectable_by(gain)},
        }


def run_facts(run: RunDirectory, config: Config) -> RunFacts:
    """The facts of a run that has been opened; nothing that it names is imported."""
    values = setting_values(config)
    settings = tuple(
        Setting(name, values[name], values[name] != default, meaning) for name, default, meaning in describe_settings()
    )
    return RunFacts(settings, held_out_results(run, config.training.updates))
