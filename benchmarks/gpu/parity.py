"""Is what a device computes what a CPU computes: log-probs, an update, a resumed run, an update in too little memory.

Shape suffixes: N response tokens of all samples, W all weights.
"""

from __future__ import annotations

import copy
import gc
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console

from gpu.phase import Figures, use_again
from hgpo.config import Config, TrainingSettings
from hgpo.policies.language_model import LanguageModel
from hgpo.policies.precision import Precision
from hgpo.policies.transformers import TransformersPolicy
from hgpo.rollout.collect import collect
from hgpo.runs.assemble import build_suite, rollout_rules
from hgpo.runs.folder import RunDirectory, read_metrics
from hgpo.runs.progress import Reporter
from hgpo.training.samples import Sample
from hgpo.training.scoring import response_log_probs
from hgpo.training.trainer import resume, train
from hgpo.training.update import update_policy

BOUNDS: dict[Precision, float] = {"float32": 1e-3, "bfloat16": 0.05}
"""Demanded of log-probs: the largest difference in float32, the mean one in bfloat16."""
LARGEST_CHANGE = {"float32": 0.01, "bfloat16": 0.2}
"""Demanded of an update: the length of the difference of two changes of all weights, over that of the change."""
UNTIMED = ("seconds_collect", "seconds_advantages", "seconds_update", "tokens_per_second", "peak_memory_gib")


def played_samples(language_model: LanguageModel, config: Config, *, episodes: int, seed: int = 0) -> list[Sample]:
    """Steps of household games as the language model plays them where it is, with random advantages."""
    rng = np.random.default_rng(seed)
    tasks = build_suite(config).tasks(config.environment.train_split)[:episodes]
    steps = collect(tasks, TransformersPolicy(language_model), rollout_rules(config), rng)
    return [Sample(one.prompt_ids, one.token_ids, one.log_probs, float(rng.normal())) for one in steps]


def log_prob_gaps(host: Any, device: Any, samples: Sequence[Sample], precision: Precision) -> Figures:
    """How far the device's log-probs are from the CPU's in float32, and from those that were sampled."""
    exact_N, found_N = (
        np.concatenate(response_log_probs(model, samples, precision=how))
        for model, how in ((host, "float32"), (device, precision))
    )
    sampled_N = np.concatenate([sample.log_probs for sample in samples])
    gaps = _gap(found_N, exact_N)
    decisive = gaps["max" if precision == "float32" else "mean"]
    return {"to_cpu": gaps, "to_sampled": _gap(found_N, sampled_N), "holds": bool(decisive < BOUNDS[precision])}


def update_gaps(host: Any, device: Any, samples: Sequence[Sample], precision: Precision) -> Figures:
    """One update by plain gradient descent, whose change is the gradient itself, on both sides; the models stay."""
    rows = {}
    for name, model, how in (("cpu", host, "float32"), ("device", device, precision)):
        settings = TrainingSettings(kl_coefficient=0.0, precision=how, mini_batch_size=10**6)
        rows[name] = changed_by_update(copy.deepcopy(model), samples, settings)
    (before_W, metrics), (after_W, found) = rows["cpu"], rows["device"]
    relative = float(torch.linalg.vector_norm(after_W - before_W) / torch.linalg.vector_norm(before_W))
    return {
        "relative_difference": relative,
        "loss": [metrics["loss"], found["loss"]],
        "gradient_norm": [metrics["gradient_norm"], found["gradient_norm"]],
        "holds": relative < LARGEST_CHANGE[precision],
    }


def changed_by_update(
    model: Any, samples: Sequence[Sample], settings: TrainingSettings
) -> tuple[torch.Tensor, dict[str, float]]:
    """By how much an update changes all weights, float32[W] on the CPU, and its figures. The model is used up."""
    before_W = _weights(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    metrics = update_policy(model, None, optimizer, samples, settings, np.random.default_rng(0))
    return _weights(model) - before_W, metrics


def resumed_run(config: Config) -> Figures:
    """A run beside the same run that lost its second half and was resumed: are figures and weights equal?"""
    reporter = Reporter(Console(quiet=True))
    lost = RunDirectory(config.run_directory.with_name(f"{config.run.name}-resumed"))
    for folder in (config.run_directory, lost.path):
        shutil.rmtree(folder, ignore_errors=True)  # of an attempt that was cut off
    whole = train(config, reporter)
    shutil.copytree(whole.path, lost.path)
    lost.summary.unlink()
    lost.evaluation("after").unlink()
    shutil.rmtree(lost.checkpoints / str(config.training.updates))
    resume(lost.path, reporter)
    rows = [_untimed(run) for run in (whole, lost)]
    weights = [_stored_weights(run.checkpoints / str(config.training.updates)) for run in (whole, lost)]
    largest = max(float((weights[0][name] - weights[1][name]).abs().max()) for name in weights[0])
    same = rows[0] == rows[1]
    return {"updates": len(rows[0]), "same_figures": same, "largest_difference": largest}


@contextmanager
def deterministic() -> Iterator[None]:
    """In the block PyTorch takes only kernels that give the same sums every time."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def update_in_little_memory(model: Any, samples: Sequence[Sample], limit: Callable[[Any, float], Any]) -> Figures:
    """An update in one micro-batch, and the same with half the memory that this takes beyond the weights.

    Args:
        model: is copied.
        samples: of the update.
        limit: `(model, share) -> context` in which only that share is there.
    """
    settings = TrainingSettings(kl_coefficient=0.0, precision="float32", mini_batch_size=10**6)
    tokens = sum(sample.token_count for sample in samples)
    settings = settings.model_copy(update={"micro_batch_tokens": 4 * tokens, "share_prefixes": False})
    use_again()
    free_W, _ = changed_by_update(copy.deepcopy(model), samples, settings)
    gc.collect()
    tight = copy.deepcopy(model)
    with limit(tight, 0.5):
        tight_W, metrics = changed_by_update(tight, samples, settings)
    lowered = metrics.get("out_of_memory", 0)
    relative = float(torch.linalg.vector_norm(tight_W - free_W) / torch.linalg.vector_norm(free_W))
    holds = lowered >= 1 and relative < LARGEST_CHANGE["float32"]
    return {"lowered": int(lowered), "relative_difference": relative, "tokens": tokens, "holds": holds}


@contextmanager
def less_cuda_memory(model: Any, share: float) -> Iterator[None]:
    """In the block CUDA hands out what is in use now and `share` of what the last update took beyond that."""
    device = model.device
    peak = torch.cuda.max_memory_reserved(device)
    torch.cuda.empty_cache()
    held = torch.cuda.memory_reserved(device)
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction((held + share * (peak - held)) / total, device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


@contextmanager
def pretended_memory(model: Any, share: float) -> Iterator[None]:
    """In the block the first forward pass with gradients decides how much is there: `share` of its tokens."""
    most: list[int] = []

    def refuse(_: Any, given: Any, options: dict[str, Any]) -> None:
        tokens = options["input_ids"].numel()
        most.append(int(share * tokens))
        if tokens > most[0]:
            raise torch.OutOfMemoryError(f"{tokens} tokens, and there is room for {most[0]} in this rehearsal")

    hook = model.register_forward_pre_hook(refuse, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


def _gap(found_N: NDArray[np.float32], other_N: NDArray[np.float32]) -> Figures:
    gap_N = np.abs(found_N - other_N)
    return {"mean": float(gap_N.mean()), "99%": float(np.quantile(gap_N, 0.99)), "max": float(gap_N.max())}


def _weights(model: Any) -> torch.Tensor:
    return torch.cat([one.detach().reshape(-1).float().cpu() for one in model.parameters()])


def _stored_weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def _untimed(run: RunDirectory) -> list[Figures]:
    return [{name: value for name, value in row.items() if name not in UNTIMED} for row in read_metrics(run)]
