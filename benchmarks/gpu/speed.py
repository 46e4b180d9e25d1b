"""How fast a device is, how fast trainings are on it, and where their time goes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from gpu.phase import Figures, Phase, use_again
from hgpo.config import Config, load_config
from hgpo.policies.device import resolve_device
from hgpo.rollout.collect import collect
from hgpo.rollout.records import StepRecord
from hgpo.runs.assemble import build_suite, estimate, rollout_rules
from hgpo.runs.folder import read_metrics
from hgpo.training.memory import estimate_memory, summarise_model
from hgpo.training.policies import load_language_model, run_policy, with_adapter
from hgpo.training.samples import Sample
from hgpo.training.update import make_optimizer, update_policy
from model_sizes import PHASES
from runs import train

WORST = 15
"""Operations that a profile shows."""


def matrix_speed(device: torch.device, size: int, products: int = 10) -> float:
    """Floating-point operations a second of bfloat16 products of square matrices of random numbers."""
    generator = torch.Generator(device).manual_seed(0)
    left, right = (torch.randn(size, size, generator=generator, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        left @ right
    _wait(device)
    began = time.perf_counter()
    for _ in range(products):
        left @ right
    _wait(device)
    return 2 * size**3 * products / (time.perf_counter() - began)


def training_figures(phase: Phase, name: str, recipe: Path, options: list[str]) -> Figures:
    """A short training by `hgpo train`: tokens a second of each half, shares of the phases, memory.

    `flops` is what an update's matrix products need: six operations a parameter and token (forward 2, backward 4), or
    four where the weights are frozen, of every token of every sample. Samples that are read once, and attention, are
    not subtracted or added, so that it can exceed what is computed.
    """
    config = load_config(recipe, [*phase.settings, *options])
    model = summarise_model(config)
    run = train(phase.work, name, recipe, [*phase.settings, *options])
    rows = read_metrics(run)[1:]  # the first one warms the device up
    shutil.rmtree(run.checkpoints, ignore_errors=True)  # 12 bytes a parameter; of a kept run they are gone
    sums = {key: sum(row[key] for row in rows) for key in ("prompt_tokens", "response_tokens")}
    seconds = {key: sum(row[f"seconds_{key}"] for row in rows) for key in PHASES}
    tokens, parameters = sum(sums.values()), model.parameters
    estimated = estimate_memory(config, model, phase.device).values()
    return {
        "parameters": parameters,
        "lora_rank": config.policy.lora.rank,
        "updates": len(rows),
        "steps": sum(row["steps"] for row in rows),
        "sampled_tokens_per_second": sums["response_tokens"] / seconds["collect"],
        "updated_tokens_per_second": tokens / seconds["update"],
        "update_flops": (4 if config.policy.lora.rank else 6) * parameters * tokens / seconds["update"],
        "shares": {key: value / sum(seconds.values()) for key, value in seconds.items()},
        "seconds_per_update": sum(seconds.values()) / len(rows),
        "peak_memory_gib": max(row["peak_memory_gib"] for row in rows),
        "estimated_memory_gib": max(sum(parts.values()) for parts in estimated),
        "out_of_memory": sum(row.get("out_of_memory", 0) for row in rows),
    }


def profiled(config: Config, tasks: int) -> Figures:
    """The worst operations of collecting and of updating, each once before it is looked at."""
    device = resolve_device(config.policy.device)
    trained = with_adapter(load_language_model(config.policy.model, config), config)
    policy, rules = run_policy(config, trained), rollout_rules(config)
    chosen = build_suite(config).tasks(config.environment.train_split)[:tasks]
    optimizer = make_optimizer(trained.model, config.training)

    def play() -> list[StepRecord]:
        rng = np.random.default_rng(0)
        return collect(chosen, policy, rules, rng, group_size=config.rollout.group_size)

    def learn(steps: list[StepRecord]) -> None:
        _, advantages = estimate(steps, config)
        samples = [
            Sample(one.prompt_ids, one.token_ids, one.log_probs, float(value))
            for one, value in zip(steps, advantages.values, strict=True)
        ]
        update_policy(trained.model, None, optimizer, samples, config.training, np.random.default_rng(0))

    steps = play()
    collecting = _profile(play, device)
    learn(steps)
    use_again()
    return {"steps": len(steps), "collect": collecting, "update": _profile(lambda: learn(steps), device)}


def _profile(work: Callable[[], Any], device: torch.device) -> Figures:
    """Wall seconds, and the operations that take the most time themselves on the device."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    _wait(device)
    with profile(activities=activities, acc_events=True) as profiler:
        began = time.perf_counter()
        work()
        _wait(device)
        wall = time.perf_counter() - began
    key = "self_device_time_total" if device.type == "cuda" else "self_cpu_time_total"
    # Operations alone: a kernel's time is that of the operation that started it, and would count twice.
    operations = [event for event in profiler.key_averages() if event.device_type == DeviceType.CPU]
    events = sorted(operations, key=lambda event: -getattr(event, key))
    total = sum(getattr(event, key) for event in events) or 1.0  # of a device that did nothing
    worst = [
        {
            "name": event.key[:100],
            "calls": event.count,
            "milliseconds": round(getattr(event, key) / 1e3, 2),
            "share": round(getattr(event, key) / total, 4),
        }
        for event in events[:WORST]
    ]
    return {"wall_seconds": round(wall, 3), "busy_seconds": round(total / 1e6, 3), "worst": worst}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
