"""Compares a device with a CPU: log-probs, an update, a resumed run, an update with too little memory.

Shape suffixes: N response tokens of all samples, W all weights.
"""

from __future__ import annotations

import copy
import gc
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch.nn.attention import SDPBackend, sdpa_kernel

from hgpo.assemble import build_suite, resume, rollout_rules, train
from hgpo.config import Config, TrainingSettings, load_config
from hgpo.policies.language_model import LanguageModel
from hgpo.policies.local import TransformersPolicy
from hgpo.rollout.runner import collect
from hgpo.runs.folder import RunDirectory, read_metrics
from hgpo.training.batching import Sample
from hgpo.training.load import limits_of
from hgpo.training.log_probs import response_log_probs
from hgpo.training.update import Sampling, Trained, update_policy
from hgpo.utils.progress import Reporter

QUICKSTART = Path(__file__).parents[1] / "recipes" / "quickstart" / "hgpo.toml"
LARGEST_GAP = {"float32": 1e-3, "bfloat16": 0.05}
"""Limit on the absolute difference of log-probs: of its maximum in float32, of its mean in bfloat16."""
LARGEST_CHANGE = {"float32": 0.01, "bfloat16": 0.2}
"""Limit on the difference of an update: |change on the device - change on the CPU| / |change on the CPU|."""
UNTIMED = ("seconds_collect", "seconds_advantages", "seconds_update", "tokens_per_second", "peak_memory_gib")
LENGTHS = ["policy.max_prompt_tokens=256", "policy.max_response_tokens=16"]
Figures = dict[str, Any]


def two_models(
    model: Path, device: torch.device, precision: str, *, tiny: bool
) -> tuple[LanguageModel, LanguageModel, list[Sample]]:
    """The same float32 weights on the CPU and on the device, and steps of household games that the device sampled."""
    config = load_config(QUICKSTART, [f"policy.precision={precision}", *([] if tiny else LENGTHS)])
    host, beside = (
        LanguageModel.from_pretrained(model, limits_of(config.policy), device=where, dtype="float32")
        for where in ("cpu", str(device))
    )
    rng = np.random.default_rng(0)
    suite = build_suite(config.environment, config.evaluation)
    rules = rollout_rules(config.rollout, config.agent, config.environment.name)
    tasks = suite.tasks(config.environment.train_split)[: 2 if tiny else 8]
    steps = collect(tasks, TransformersPolicy(beside), rules, rng)
    return host, beside, [Sample(one.prompt_ids, one.token_ids, one.log_probs, float(rng.normal())) for one in steps]


def parity(model: Path, device: torch.device, precision: Any, *, tiny: bool) -> Figures:
    """Compare the device's log-probs and update with the CPU's in float32.

    The update is one step of plain gradient descent, so the change of the weights is the gradient.
    """
    host, beside, samples = two_models(model, device, precision, tiny=tiny)
    exact_N = np.concatenate(response_log_probs(host.model, samples, precision="float32"))
    expected_W, reference = changed_by_update(host.model, samples, "float32")
    kernel = sdpa_kernel(SDPBackend.MATH) if precision == "float32" else nullcontext()  # else PyTorch's choice
    with kernel:
        found_N = np.concatenate(response_log_probs(beside.model, samples, precision=precision))
        found_W, metrics = changed_by_update(beside.model, samples, precision)
    gap_N, relative = np.abs(found_N - exact_N), relative_difference(found_W, expected_W)
    gap = {"mean": float(gap_N.mean()), "max": float(gap_N.max())}
    same_log_probs = gap["max" if precision == "float32" else "mean"] < LARGEST_GAP[precision]
    return {
        "samples": len(samples),
        "log_prob_gap": gap,
        "update_difference": relative,
        "gradient_norm": [reference["gradient_norm"], metrics["gradient_norm"]],
        "holds": same_log_probs and relative < LARGEST_CHANGE[precision],
    }


def changed_by_update(
    model: Any, samples: Sequence[Sample], precision: Any, **options: Any
) -> tuple[torch.Tensor, dict[str, float]]:
    """Update the model in place; return the change of all weights, float32[W] on the CPU, and the update's metrics."""
    settings = TrainingSettings(kl_coefficient=0.0, mini_batch_size=10**6, **options)

    def weights() -> torch.Tensor:
        return torch.cat([one.detach().reshape(-1).float().cpu() for one in model.parameters()])

    before_W = weights()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    metrics = update_policy(
        Trained(model, optimizer), samples, settings, np.random.default_rng(0), Sampling(precision=precision)
    )
    return weights() - before_W, metrics


def relative_difference(found_W: torch.Tensor, expected_W: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(found_W - expected_W) / torch.linalg.vector_norm(expected_W))


def resumed_run(config: Config) -> Figures:
    """A run with deterministic kernels, and the same run resumed from its middle: are metrics and weights equal?"""
    reporter, last = Reporter(Console(quiet=True)), str(config.training.updates)
    lost = RunDirectory(config.run_directory.with_name(f"{config.run.name}-resumed"))
    for folder in (config.run_directory, lost.path):
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier run of this script
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        whole = train(config, reporter)
        shutil.copytree(whole.path, lost.path)
        lost.summary.unlink()
        lost.evaluation("after").unlink()
        shutil.rmtree(lost.checkpoints / last)
        resume(lost.path, reporter)
    finally:
        torch.use_deterministic_algorithms(False)
    rows = [
        [{name: value for name, value in row.items() if name not in UNTIMED} for row in read_metrics(run)]
        for run in (whole, lost)
    ]
    weights = [(run.checkpoints / last / "model.safetensors").read_bytes() for run in (whole, lost)]
    same = rows[0] == rows[1]
    return {"same_metrics": same, "same_weights": weights[0] == weights[1], "holds": same and weights[0] == weights[1]}


def out_of_memory(model: Path, device: torch.device, *, tiny: bool) -> Figures:
    """Compare an update in one micro-batch with an update that has half of its memory beyond the weights."""
    _, beside, samples = two_models(model, device, "float32", tiny=tiny)
    options = {"micro_batch_tokens": 4 * sum(sample.token_count for sample in samples), "share_prefixes": False}
    release_memory()
    expected_W, _ = changed_by_update(copy.deepcopy(beside.model), samples, "float32", **options)
    gc.collect()
    limit = half_of_cuda_memory if device.type == "cuda" else half_of_the_tokens
    with limit(beside.model):
        found_W, metrics = changed_by_update(beside.model, samples, "float32", **options)
    relative, reduced = relative_difference(found_W, expected_W), int(metrics.get("out_of_memory", 0))
    holds = reduced >= 1 and relative < LARGEST_CHANGE["float32"]
    return {"limit": limit.__name__, "reduced": reduced, "relative_difference": relative, "holds": holds}


@contextmanager
def half_of_cuda_memory(model: Any) -> Iterator[None]:
    """In the block CUDA allocates no more than the memory in use and half of what the last update took beyond it."""
    device = model.device
    peak = torch.cuda.max_memory_reserved(device)
    torch.cuda.empty_cache()
    in_use = torch.cuda.memory_reserved(device)
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction((in_use + 0.5 * (peak - in_use)) / total, device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


@contextmanager
def half_of_the_tokens(model: Any) -> Iterator[None]:
    """In the block a forward pass fails on more than half the tokens of the first one: a limit for a CPU."""
    most: list[int] = []

    def refuse(_: Any, given: Any, options: dict[str, Any]) -> None:
        tokens = options["input_ids"].numel()
        most.append(tokens // 2)
        if tokens > most[0]:
            raise torch.OutOfMemoryError(f"{tokens} tokens, and the limit is {most[0]}")

    hook = model.register_forward_pre_hook(refuse, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


def release_memory() -> None:
    """Free the memory of the last measurement, and reset the peak."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
