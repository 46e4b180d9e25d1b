"""Evaluations whose figures can be computed by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hgpo.evaluation.statistics import Evaluation, rate


def panel(won: Mapping[str, Sequence[float]], **other: Any) -> Evaluation:
    """Types of task -> how each task of the type ended; the tasks are called `<type>/0`, `<type>/1` and so on."""
    tasks = {f"{kind}/{place}": float(end) for kind, ends in won.items() for place, end in enumerate(ends)}
    mean = float(np.mean(list(tasks.values())))
    evaluation = Evaluation(
        split="held_out",
        temperature=0.4,
        seeds=(1,),
        success=rate(list(tasks.values())),
        score=mean,
        by_seed=(mean,),
        by_task_type={kind: rate(list(ends)) for kind, ends in won.items()},
        episode_length=8.0,
        valid_actions=1.0,
        admissible_actions=None,
        tasks_won=tasks,
    )
    return replace(evaluation, **other)
