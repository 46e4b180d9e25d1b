"""Measure hgpo on a GPU: agreement with a CPU, speed, and success of a training.

    python benchmarks/gpu.py --model SMOLLM2 --games GAMES -o $OUT
    python benchmarks/gpu.py --device cpu --tiny -o OUT            small sizes on a CPU: the test of this script

Three parts, each with a time limit of its own. gpu.json is written after every measurement, so an interrupted run keeps
what it measured. A measurement that fails is recorded with its error, and the next one starts.

  parity     log-probs and one update compared with the CPU's, in float32 (math attention kernel) and in bfloat16; a
             resumed run; an update with too little memory
  speed      tokens per second of the samplers and of updates, in full and with LoRA: SmolLM2-135M, and random weights
             of Qwen2.5's sizes 0.5B and 1.5B with gradient checkpointing; peak memory and its estimate
  training   HGPO on ALFWorld games for the time that is left; success before and after
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

import samplers
from gpu_parity import QUICKSTART, Figures, out_of_memory, parity, release_memory, resumed_run
from hgpo.config import Config, load_config
from hgpo.evaluation.result_files import read_evaluation
from hgpo.evaluation.statistics import Evaluation, gain
from hgpo.policies.loading import load_tokenizer
from hgpo.runs.checkpoints import newest_complete
from hgpo.runs.folder import RunDirectory, read_metrics
from hgpo.utils.files import write_text
from runs import train as train_in_process

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "recipes"
PARTS = ("parity", "speed", "training")
LIMITS = (150.0, 200.0, 200.0)
"""Seconds of each part."""
H100_BFLOAT16 = 989.0
"""TFLOP/s of dense bfloat16 products of an H100 SXM or H200, by NVIDIA's data sheet."""
LARGE_UPDATE = ["policy.max_response_tokens=64", "rollout.tasks_per_update=16", "training.micro_batch_tokens=16384"]
FEW_GAMES = [
    "environment.options.train_games=200",
    "environment.options.valid_seen_games=16",
    "environment.options.valid_unseen_games=16",
    "warm_start.demonstrations=40",
    "warm_start.probe_games=8",
]
"""Overrides of the quickstart: generated games for a warm start of a few updates."""
SMALL_UPDATE = [*FEW_GAMES, "rollout.tasks_per_update=1", "rollout.group_size=2"]
TRAINING = [
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
TINY_TRAINING = ["environment.max_steps=5", "rollout.tasks_per_update=2", "rollout.group_size=4"]
TINY_TRAINING += ["training.checkpoint_every=1", "warm_start.max_updates=10", "warm_start.evaluate_every=10"]
QWEN_KEYS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size")
QWEN = {"0.5B": (896, 24, 14, 2, 4864), "1.5B": (1536, 28, 12, 2, 8960), "tiny": (64, 2, 2, 1, 192)}
"""Size -> values of `QWEN_KEYS`, for 0.5B and 1.5B as in the config.json files of Qwen2.5."""
Measurement = tuple[str, Callable[[], Figures]]


@dataclass(slots=True)
class Bench:
    """One run of this script.

    Attributes:
        device: the device that is measured.
        tiny: whether sizes are small.
        work: folder of models and runs.
        model: folder of SmolLM2-135M-Instruct, or of a tiny model.
        games: folder of ALFWorld's games; None: generated ones.
        peak: floating-point operations per second that the device can do in bfloat16; None: unknown.
        until: `time.monotonic()` at which the present part ends.
    """

    device: torch.device
    tiny: bool
    work: Path
    model: Path
    games: Path | None
    peak: float | None
    until: float = field(default=0.0)

    @property
    def left(self) -> float:
        """Seconds until the present part ends."""
        return max(self.until - time.monotonic(), 1.0)

    def sized(self, full: Any, small: Any) -> Any:
        """`small` if `tiny`, else `full`."""
        return small if self.tiny else full

    @property
    def settings(self) -> list[str]:
        """Overrides of every run."""
        return [f"policy.device={self.device}", *(["run.threads=1"] if self.tiny else [])]


def main() -> int:
    arguments = read_arguments()
    device = torch.device(arguments.device)
    if arguments.tiny:
        torch.set_num_threads(1)
    work = arguments.work.resolve()
    for folder in (work, arguments.output):
        folder.mkdir(parents=True, exist_ok=True)
    model = arguments.model.resolve() if arguments.model else tiny_model(work)
    peak = None if device.type == "cpu" else arguments.peak_tflops * 1e12
    bench = Bench(device, arguments.tiny, work, model, arguments.games, peak)
    found: Figures = {
        "tiny": arguments.tiny,
        "games": "generated" if arguments.games is None else "ALFWorld's",
        "peak_tflops": None if peak is None else arguments.peak_tflops,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} CPU",
        "torch": torch.__version__,
        "transformers": version("transformers"),
    }
    for part, limit in zip(PARTS, arguments.limits, strict=True):
        if part in arguments.parts:
            bench.until = time.monotonic() + limit
            found[part] = {}
            for name, work_of in measurements(bench, part):
                found[part][name] = measured(bench, name, work_of)
                write_text(arguments.output / "gpu.json", json.dumps(found, indent=1) + "\n")
    results = [figures for part in PARTS for figures in found.get(part, {}).values()]
    return 0 if all("failed" not in figures and figures.get("holds", True) for figures in results) else 1


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="folder of SmolLM2-135M-Instruct")
    parser.add_argument("--games", type=Path, help="folder of ALFWorld's games (default: generated games)")
    parser.add_argument("--device", default="cuda", help="of PyTorch (default: cuda)")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to test this script on a CPU")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--limits", nargs=3, type=float, default=LIMITS, help=f"seconds of each part: {LIMITS}")
    parser.add_argument("--peak-tflops", type=float, default=H100_BFLOAT16, help="dense bfloat16 (default: an H100's)")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of gpu.json")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "gpu", help="of models and runs, up to 30 GB")
    arguments = parser.parse_args()
    if arguments.model is None and not arguments.tiny:
        parser.error("--model is needed without --tiny")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device; --device cpu --tiny tests the script itself")
    return arguments


def measurements(bench: Bench, part: str) -> list[Measurement]:
    """The measurements of a part, in order."""
    if part == "parity":
        what: Figures = {"model": bench.model, "device": bench.device, "tiny": bench.tiny}
        both = [(precision, partial(parity, precision=precision, **what)) for precision in ("float32", "bfloat16")]
        resume = partial(resumed_run, short_training(bench))
        return [*both, ("resume", resume), ("out of memory", partial(out_of_memory, **what))]
    if part == "speed":
        models = itertools.product(
            bench.sized(("SmolLM2-135M", "0.5B", "1.5B"), ("tiny",)), bench.sized(("lora", "full"), ("lora",))
        )
        updates = [(f"{name}, {how}", partial(update_speed, bench, name, how)) for name, how in models]
        return [("samplers", partial(sampler_speed, bench)), *updates]
    return [("hgpo", partial(train_with_hgpo, bench))]


def measured(bench: Bench, name: str, work: Callable[[], Figures]) -> Figures:
    """The figures, or the error as "failed"; the part's time limit interrupts the work."""

    def end(*_: Any) -> None:
        raise TimeoutError("the part's time limit was reached")

    began = time.monotonic()
    if began >= bench.until:
        return {"failed": "not started: the part's time limit was reached"}
    handler = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, bench.left)
    try:
        figures = work()
    except (Exception, SystemExit) as error:  # later measurements do not depend on this one
        traceback.print_exc()
        figures = {"failed": f"{type(error).__name__}: {error}"[:2000]}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    release_memory()
    figures = {"seconds": round(time.monotonic() - began, 1), **figures}
    print(f"{name}: {json.dumps(figures)[:2000]}", flush=True)
    return figures


def tiny_model(work: Path) -> Path:
    """The quickstart's policy after ten updates of imitation, in a folder."""
    options = [*FEW_GAMES, "policy.device=cpu", "run.threads=1", "warm_start.max_updates=10", "evaluation.games=1"]
    options += ["warm_start.evaluate_every=10", "training.updates=0"]
    return train_in_process(work, "tiny", QUICKSTART, options).start


def short_training(bench: Bench) -> Config:
    """Four updates of the quickstart (tiny: two), two checkpoints."""
    options = [f"run.directory={bench.work}", "run.name=whole", *FEW_GAMES, *bench.settings, "evaluation.games=4"]
    options += ["warm_start.max_updates=20", "warm_start.evaluate_every=20", "rollout.tasks_per_update=2"]
    options += bench.sized(
        ["training.updates=4", "training.checkpoint_every=2"], ["training.updates=2", "training.checkpoint_every=1"]
    )
    return load_config(QUICKSTART, options)


def sampler_speed(bench: Bench) -> Figures:
    """`benchmarks/samplers.py` with the built-in sampler, and vLLM where it is installed."""
    options = {
        "model": str(bench.model),
        "device": str(bench.device),
        "samplers": ["transformers", "vllm"],
        "precisions": ["bfloat16"],
        "episodes": bench.sized(128, 4),
        "group_size": bench.sized(8, 2),
        "max_steps": bench.sized(15, 3),
        "rounds": bench.sized(3, 1),
        "prompt_tokens": bench.sized(256, 160),
        "response_tokens": bench.sized(24, 12),
    }
    return samplers.measure(argparse.Namespace(**options))


def update_speed(bench: Bench, model: str, how: str) -> Figures:
    """Three updates by `hgpo train`, the first not counted.

    `share_of_peak` counts six operations for each parameter and token of an update (forward 2, backward 4), or four
    where the weights are frozen beside an adapter; neither attention nor recomputed layers are added, and
    beginnings that samples share, and logits of prompts, count as if they were computed.
    """
    folder = random_qwen(bench, model) if model in QWEN else bench.model
    options = [f"policy.model={folder}", *bench.settings, "warm_start.enabled=false", "environment.max_steps=5"]
    options += ["training.updates=3", "training.checkpoint_every=1000", "rollout.store_every=0", "evaluation.games=1"]
    options += ["training.skip_zero_advantage=false", "training.kl_coefficient=0"]
    options += ["training.gradient_checkpointing=true"] if model in QWEN else []
    options += bench.sized(LARGE_UPDATE, SMALL_UPDATE)
    recipe = bench.sized(RECIPES / "smollm2" / "hgpo.toml", QUICKSTART)
    options += ["policy.lora.rank=16"] if how == "lora" else []
    config = load_config(recipe, options)
    parameters, estimated = estimated_run(config, bench.device)
    name = f"{model}-{how}"
    shutil.rmtree(bench.work / name, ignore_errors=True)
    run = train_in_process(bench.work, name, recipe, options, seconds=bench.left)
    rows = read_metrics(run)[1:]
    shutil.rmtree(run.checkpoints, ignore_errors=True)  # 12 bytes a parameter
    tokens, collecting, updating = (
        sum(sum(row[key] for key in keys) for row in rows)
        for keys in (("prompt_tokens", "response_tokens"), ("seconds_collect",), ("seconds_update",))
    )
    flops = (4 if how == "lora" else 6) * parameters * tokens / updating
    return {
        "parameters": parameters,
        "sampled_tokens_per_second": sum(row["response_tokens"] for row in rows) / collecting,
        "updated_tokens_per_second": tokens / updating,
        "update_tflops": flops / 1e12,
        "share_of_peak": None if bench.peak is None else flops / bench.peak,
        "peak_memory_gib": max(row["peak_memory_gib"] for row in rows),
        "estimated_memory_gib": estimated,
        "out_of_memory": sum(row.get("out_of_memory", 0) for row in rows),
    }


def estimated_run(config: Config, device: torch.device) -> tuple[int, float]:
    """Parameters of the model, and the memory in GiB that hgpo expects the run to take."""
    from hgpo.training.run_plan import estimate_memory, summarise_model

    model = summarise_model(config.policy)
    phases = estimate_memory(model, config.policy, config.training, config.warm_start, device)
    return model.parameters, max(sum(parts.values()) for parts in phases.values())


def random_qwen(bench: Bench, size: str) -> Path:
    """A folder with random weights of a size and the tokenizer of `bench.model`: for speed and memory alone."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    folder = bench.work / f"qwen-{size}"
    if folder.exists():
        return folder
    tokenizer = load_tokenizer(bench.model)
    config = Qwen2Config(
        **dict(zip(QWEN_KEYS, QWEN[size], strict=True)),
        vocab_size=bench.sized(151_936, 4096),
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.device(bench.device):
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    partial_folder = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial_folder, ignore_errors=True)
    tokenizer.init_kwargs["auto_map"] = {"AutoTokenizer": [None, None]}  # else transformers takes it for Qwen's own
    tokenizer.save_pretrained(partial_folder)
    model.save_pretrained(partial_folder)
    return partial_folder.rename(folder)


def training_recipe(bench: Bench) -> tuple[Path, list[str]]:
    """Recipe and settings of the warm start and of the training."""
    common = [f"policy.model={bench.model}", *bench.settings, "evaluation.split=valid_seen", "evaluation.games=1"]
    if bench.tiny:
        return QUICKSTART, [*common, *FEW_GAMES, *TINY_TRAINING]
    if bench.games is None:
        return RECIPES / "smollm2" / "hgpo.toml", [*common, *TRAINING]
    games = f"environment.options.data_dir={bench.games.resolve()}"
    return RECIPES / "smollm2" / "alfworld.toml", [*common, games, *TRAINING]


def train_with_hgpo(bench: Bench) -> Figures:
    """A warm start, HGPO for the time that is left, and success before and after on the same games."""
    recipe, options = training_recipe(bench)
    for name in ("start", "hgpo"):
        shutil.rmtree(bench.work / name, ignore_errors=True)  # of an earlier run of this script
    start = train_in_process(bench.work, "start", recipe, [*options, "training.updates=0"], seconds=bench.left / 2)
    if not start.complete:
        raise TimeoutError("the warm start took more than half of the time: raise the limit")
    began = time.monotonic()
    before = evaluate(bench, start, "start")
    seconds = bench.left - 1.5 * (time.monotonic() - began)
    options += [f"policy.model={start.start}", "warm_start.enabled=false", f"training.updates={bench.sized(500, 2)}"]
    run = train_in_process(bench.work, "hgpo", recipe, options, seconds=max(seconds, 1.0))
    newest = newest_complete(run.checkpoints)
    if newest is None:
        raise TimeoutError("no checkpoint was written in the time: raise the limit")
    after = evaluate(bench, run, newest.name)
    rates = {"before": before.success, "after": after.success, "gain": gain(before, after)}
    return {
        "updates": int(newest.name),
        **{
            name: {"mean": one.mean, "low": one.low, "high": one.high, "games": one.tasks}
            for name, one in rates.items()
        },
        "training_success": [round(row["success"], 4) for row in read_metrics(run)],
    }


def evaluate(bench: Bench, run: RunDirectory, checkpoint: str) -> Evaluation:
    """Play games of `valid_seen` with `hgpo eval`."""
    command = [sys.executable, "-W", "ignore", "-m", "hgpo", "eval", str(run.path), "--checkpoint", checkpoint]
    command += ["--split", "valid_seen", "--games", str(bench.sized(140, 8)), "--quiet"]
    subprocess.run(command, check=True)
    [path] = run.evaluation("before").parent.glob(f"valid_seen-{checkpoint}-*.json")
    return read_evaluation(path).evaluation


if __name__ == "__main__":
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts; deterministic kernels need it
    sys.exit(main())
