"""Phase 4: HGPO in generated shops with SmolLM2-135M; models of Qwen2.5's sizes from scratch, for memory and speed.

cd benchmarks && python -m gpu.phase4 --model MODEL
cd benchmarks && python -m gpu.phase4 --rehearse
"""

from __future__ import annotations

import sys
from functools import partial

from gpu.learning import Panel, learn, make_start
from gpu.phase import RECIPES, Figures, Part, Phase, carry_out
from gpu.qwen import make_qwen
from gpu.speed import training_figures
from gpu.tiny import tiny_start
from hgpo.runs.folder import RunDirectory

WEBSHOP = RECIPES / "webshop-tiny" / "hgpo.toml"
SMOLLM2 = RECIPES / "smollm2" / "hgpo.toml"
SHOPPING_SECONDS = 100
"""Of the warm start and of the training, each."""
SHOP_WITH_SMOLLM2 = [
    "policy.system_prompt=Play.",
    "policy.max_prompt_tokens=400",
    "policy.max_response_tokens=24",
    "warm_start.demonstrations=800",
    "warm_start.learning_rate=4e-5",
    "warm_start.batch_size=32",
    "warm_start.max_updates=120",
    "warm_start.evaluate_every=40",
    "warm_start.micro_batch_tokens=32768",
    "warm_start.probe_games=64",
    "rollout.store_every=0",
    "training.learning_rate=5e-5",
    "training.warmup_updates=4",
    "training.mini_batch_size=2000",
    "training.micro_batch_tokens=32768",
    "training.kl_coefficient=0",
    "training.entropy_coefficient=0",
    "training.skip_zero_advantage=true",
    "training.checkpoint_every=2",
    "training.keep_checkpoints=1",
]
SHOP_IN_A_REHEARSAL = [
    "environment.max_steps=5",
    "environment.options.train_goals=200",
    "environment.options.valid_seen_goals=16",
    "environment.options.valid_unseen_goals=16",
    "warm_start.demonstrations=40",
    "warm_start.evaluate_every=10",
    "warm_start.max_updates=10",
    "warm_start.probe_games=4",
    "rollout.tasks_per_update=2",
    "rollout.group_size=4",
    "training.checkpoint_every=1",
]
QWEN = [
    "warm_start.enabled=false",
    "environment.max_steps=5",
    "rollout.store_every=0",
    "evaluation.games=1",
    "training.skip_zero_advantage=false",
    "training.updates=3",
    "training.checkpoint_every=1000",
]
QWEN_ON_A_GPU = ["policy.max_response_tokens=64", "rollout.tasks_per_update=16", "training.micro_batch_tokens=16384"]
FEW_GAMES = {"train": 200, "valid_seen": 16, "valid_unseen": 16}
QWEN_IN_A_REHEARSAL = [
    "rollout.tasks_per_update=1",
    "rollout.group_size=2",
    *(f"environment.options.{split}_games={games}" for split, games in FEW_GAMES.items()),
]


def shop_start(phase: Phase) -> Figures:
    """The warm start, and its success on the panel."""
    options, panel = _shop(phase)
    model = [] if phase.model is None else [f"policy.model={phase.model}"]
    return make_start(phase.work / "shop", WEBSHOP, [*options, *model], panel, _seconds(phase))[1]


def shop(phase: Phase) -> Figures:
    """HGPO from the start."""
    options, panel = _shop(phase)
    begun = RunDirectory(phase.work / "shop" / "start")
    updates = phase.sized(200, 2)
    return learn(begun, "hgpo", WEBSHOP, options, panel, seconds=_seconds(phase), updates=updates)


def qwen(phase: Phase, size: str, rank: int) -> Figures:
    """Three updates in full (rank 0) or with an adapter."""
    tokenizer_of = phase.model or tiny_start(phase)
    folder = make_qwen(phase.work / f"qwen-{size}", phase.sized(size, "rehearsal"), tokenizer_of, phase.device)
    options = [f"policy.model={folder}", *QWEN, *phase.sized(QWEN_ON_A_GPU, QWEN_IN_A_REHEARSAL)]
    return training_figures(phase, f"qwen-{size}-{rank}", SMOLLM2, [*options, f"policy.lora.rank={rank}"])


def _seconds(phase: Phase) -> float:
    return float(phase.sized(SHOPPING_SECONDS, phase.left))


def _shop(phase: Phase) -> tuple[list[str], Panel]:
    sizes = phase.sized(SHOP_WITH_SMOLLM2, SHOP_IN_A_REHEARSAL)
    return [*phase.settings, *sizes, "evaluation.split=valid_seen"], Panel("valid_seen", phase.sized(128, 8))


PARTS = [
    Part("shop start", 60, shop_start),
    Part("shop", 60, shop),
    Part("qwen 0.5B lora", 45, partial(qwen, size="0.5B", rank=16)),
    Part("qwen 0.5B full", 60, partial(qwen, size="0.5B", rank=0)),
    Part("qwen 1.5B lora", 60, partial(qwen, size="1.5B", rank=16), rehearsed=False),
    Part("qwen 1.5B full", 90, partial(qwen, size="1.5B", rank=0), rehearsed=False),
]

if __name__ == "__main__":
    assert __doc__
    sys.exit(carry_out(4, PARTS, __doc__))
