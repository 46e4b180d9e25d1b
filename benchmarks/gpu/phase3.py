"""Phase 3: does it learn? SmolLM2-135M on ALFWorld's games: a warm start, then HGPO, GiGPO and GRPO from it.

cd benchmarks && python -m gpu.phase3 --model MODEL --games GAMES
cd benchmarks && python -m gpu.phase3 --rehearse [--games GAMES]

HGPO makes as many updates as its share of the time allows; the others make no more than that. The parts share what is
left of the time: `--only start hgpo` in one call and `--only gigpo grpo` in the next give each twice as much.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from gpu.learning import Panel, learn, make_start
from gpu.phase import RECIPES, Figures, Part, Phase, carry_out
from hgpo.runs.folder import RunDirectory

ESTIMATORS = ("hgpo", "gigpo", "grpo")
START_SECONDS = 240
EVALUATION_SECONDS = 35
"""What the panel takes, once a run has ended."""
LEAST_SECONDS = 30
ON_A_GPU = [
    "rollout.tasks_per_update=16",
    "rollout.store_every=0",
    "training.micro_batch_tokens=32768",
    "training.checkpoint_every=2",
    "training.keep_checkpoints=1",
    "warm_start.demonstrations=800",
    "warm_start.batch_size=32",
    "warm_start.evaluate_every=40",
    "warm_start.micro_batch_tokens=32768",
    "warm_start.probe_games=64",
]
IN_A_REHEARSAL = [
    "environment.max_steps=5",
    "rollout.tasks_per_update=2",
    "rollout.group_size=4",
    "training.checkpoint_every=1",
    "warm_start.demonstrations=40",
    "warm_start.evaluate_every=10",
    "warm_start.max_updates=10",
    "warm_start.probe_games=4",
]


def start(phase: Phase) -> Figures:
    """The warm start, and its success on the panel."""
    recipe, options, panel = _setup(phase)
    model = [] if phase.model is None else [f"policy.model={phase.model}"]
    _, figures = make_start(
        phase.work / "learning", recipe, [*options, *model], panel, phase.sized(START_SECONDS, phase.left)
    )
    return figures


def learned(phase: Phase, estimator: str) -> Figures:
    """From the start, by one estimator, in its share of the time that is left."""
    recipe, options, panel = _setup(phase)
    to_come = [name for name in ESTIMATORS[ESTIMATORS.index(estimator) :] if name in phase.chosen]
    seconds = max(phase.left / len(to_come) - phase.sized(EVALUATION_SECONDS, 0), LEAST_SECONDS)
    first = phase.parts.get(ESTIMATORS[0], {})
    updates = first.get("updates", phase.sized(200, 2))
    begun = RunDirectory(phase.work / "learning" / "start")
    options = [*options, f"advantage.estimator={estimator}"]
    return learn(begun, estimator, recipe, options, panel, seconds=seconds, updates=updates)


def _setup(phase: Phase) -> tuple[Path, list[str], Panel]:
    """Recipe, settings and panel."""
    games = [] if phase.games is None else [f"environment.options.data_dir={phase.games.resolve()}"]
    sizes = phase.sized(ON_A_GPU, IN_A_REHEARSAL)
    if not games:
        sizes = [*sizes, *phase.sized([], ["environment.options.train_games=200"])]
    recipe = {
        (False, True): "smollm2/alfworld.toml",
        (False, False): "smollm2/hgpo.toml",
        (True, True): "alfworld-tiny/hgpo.toml",
        (True, False): "quickstart/hgpo.toml",
    }[phase.rehearsal, bool(games)]
    options = [*phase.settings, *games, *sizes, "evaluation.split=valid_seen"]
    return RECIPES / recipe, options, Panel("valid_seen", phase.sized(140, 8))


PARTS = [
    Part("start", 60, start),
    *(Part(name, 60, partial(learned, estimator=name)) for name in ESTIMATORS),
]

if __name__ == "__main__":
    assert __doc__
    sys.exit(carry_out(3, PARTS, __doc__))
