"""Phase 2: how fast? Policies of 1M to 350M parameters, and SmolLM2-135M sampled, trained and looked into.

cd benchmarks && python -m gpu.phase2 --model MODEL
cd benchmarks && python -m gpu.phase2 --rehearse
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import model_sizes
import samplers
from gpu.phase import RECIPES, Figures, Part, Phase, carry_out
from gpu.speed import matrix_speed, profiled, training_figures
from gpu.tiny import QUICKSTART, SMALL, tiny_start
from hgpo.config import load_config

SMOLLM2 = RECIPES / "smollm2" / "hgpo.toml"
QUICK_GAMES = ["rollout.tasks_per_update=2", "evaluation.games=4", "environment.max_steps=5"]
SIZES = {"1M": 40, "25M": 50, "100M": 60, "350M": 90}
"""Of the policies from scratch, and the seconds that each needs."""
LORA = ["policy.lora.rank=16", "training.learning_rate=5e-4"]


def matrix(phase: Phase) -> Figures:
    """What updates are measured by."""
    size = phase.sized(8192, 512)
    return {"size": size, "flops": matrix_speed(phase.device, size)}


def one_size(phase: Phase, name: str) -> Figures:
    """A size of `benchmarks/model_sizes.py`; in a rehearsal 0.1M in its place."""
    small = [*SMALL, *QUICK_GAMES, "warm_start.max_updates=10", "warm_start.evaluate_every=10", "run.threads=1"]
    chosen = phase.sized(name, "0.1M")
    found = model_sizes.measure(
        argparse.Namespace(
            folder=phase.work / "sizes",
            device=str(phase.device),
            sizes=[chosen],
            updates=phase.sized(4, 2),
            overrides=phase.sized([], small),
        )
    )
    return dict(found["sizes"][chosen])


def sampled(phase: Phase) -> Figures:
    """`benchmarks/samplers.py`: the built-in sampler."""
    return samplers.measure(
        argparse.Namespace(
            model=str(_model(phase)),
            samplers=["transformers"],
            precisions=["bfloat16"],
            device=str(phase.device),
            episodes=phase.sized(128, 4),
            group_size=phase.sized(8, 2),
            max_steps=phase.sized(15, 3),
            rounds=phase.sized(3, 1),
            prompt_tokens=phase.sized(256, 160),
            response_tokens=phase.sized(24, 12),
        )
    )


def trained(phase: Phase, adapter: bool) -> Figures:
    """The recipe of SmolLM2 with the published number of trajectories, weights in full or an adapter."""
    recipe, options = _recipe(phase)
    options = [*options, *(LORA if adapter else []), "warm_start.enabled=false", "evaluation.games=1"]
    options += [f"training.updates={phase.sized(4, 2)}", "training.checkpoint_every=1000", "rollout.store_every=0"]
    return training_figures(phase, "lora" if adapter else "full", recipe, options)


def looked_into(phase: Phase) -> Figures:
    """Where the time of the update in full goes."""
    recipe, options = _recipe(phase)
    config = load_config(recipe, [*options, *phase.settings, "warm_start.enabled=false", "environment.max_steps=5"])
    return profiled(config, phase.sized(16, 2))


def _recipe(phase: Phase) -> tuple[Path, list[str]]:
    model = f"policy.model={_model(phase)}"
    every = ["training.skip_zero_advantage=false", "training.kl_coefficient=0"]
    if phase.rehearsal:
        return QUICKSTART, [model, *every, *QUICK_GAMES, "environment.options.train_games=200"]
    memory = ["rollout.tasks_per_update=16", "training.micro_batch_tokens=32768"]
    return SMOLLM2, [model, *every, *memory]


def _model(phase: Phase) -> Path:
    return phase.model or tiny_start(phase)


PARTS = [
    Part("matrix", 5, matrix),
    Part("samplers", 30, sampled),
    Part("full", 40, lambda phase: trained(phase, adapter=False)),
    Part("lora", 40, lambda phase: trained(phase, adapter=True)),
    Part("profile", 30, looked_into),
    *(
        Part(f"size {name}", seconds, partial(one_size, name=name), rehearsed=name == "1M")
        for name, seconds in SIZES.items()
    ),
]

if __name__ == "__main__":
    assert __doc__
    sys.exit(carry_out(2, PARTS, __doc__))
