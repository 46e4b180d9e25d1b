"""Compare the samplers: tokens per second while they play household games, and the difference of their log-probs from
the trainer's on the same tokens.

Every sampler plays the same games (the quickstart's environment) with the same seed, in turn within each round, so that
a ratio compares figures of one round. Responses differ between samplers, so speeds are per response token.

.venv/bin/python benchmarks/samplers.py MODEL --json benchmarks/samplers.cpu.json
LD_PRELOAD=$PWD/.venv-vllm/lib/libiomp5.so .venv-vllm/bin/python benchmarks/samplers.py MODEL --json FILE
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engines import SAMPLERS, samplers_table
from hgpo.assemble import build_suite, rollout_rules
from hgpo.config import load_config
from hgpo.policies.backends import BACKENDS, make_policy
from hgpo.policies.base import AnyPolicy
from hgpo.policies.language_model import GenerationLimits, LanguageModel
from hgpo.rollout.records import StepRecord
from hgpo.rollout.runner import collect
from hgpo.training.batching import Sample
from hgpo.training.log_probs import response_log_probs

RECIPE = Path(__file__).parents[1] / "recipes" / "quickstart" / "hgpo.toml"


def main() -> None:
    """Read the command line, measure and show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder, .gguf file or name of the hub; for example SmolLM2-135M-Instruct")
    parser.add_argument("--episodes", type=int, default=64, help="games played side by side (default: 64)")
    parser.add_argument("--group-size", type=int, default=8, help="episodes from the same start (default: 8)")
    parser.add_argument("--max-steps", type=int, default=15, help="where an episode is cut (default: 15)")
    parser.add_argument("--rounds", type=int, default=3, help="collections by each sampler (default: 3)")
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--response-tokens", type=int, default=24)
    parser.add_argument("--precisions", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--samplers", nargs="+", default=list(SAMPLERS), choices=SAMPLERS)
    parser.add_argument("--device", default="auto", help="auto: CUDA where there is one, else the CPU")
    parser.add_argument("--json", type=Path, help="write the figures there")
    arguments = parser.parse_args()
    if arguments.episodes % arguments.group_size:
        parser.error("--episodes must be a multiple of --group-size")
    found = measure(arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    print(samplers_table(found))
    for name, why in found["missing"].items():
        print(f"not measured: {name}. {why}")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Every figure, as it goes into the JSON file."""
    missing = {name: why for name in arguments.samplers if (why := BACKENDS.get(name).missing())}
    there = [name for name in arguments.samplers if name not in missing]
    loaded = LanguageModel.from_pretrained(arguments.model, device=arguments.device, dtype="float32")
    device = loaded.model.device
    return {
        "model": Path(arguments.model).name,
        "episodes": arguments.episodes,
        "group_size": arguments.group_size,
        "max_steps": arguments.max_steps,
        "response_tokens": arguments.response_tokens,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "torch": torch.__version__,
        "transformers": version("transformers"),
        "missing": missing,
        "precisions": {name: _compare(loaded, name, there, arguments) for name in arguments.precisions},
    }


def _compare(loaded: LanguageModel, precision: Any, names: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """The samplers in one precision, in turn within each round."""
    limits = GenerationLimits(arguments.prompt_tokens, arguments.response_tokens, precision)
    language_model = LanguageModel.of(loaded.model, loaded.tokenizer, limits)
    start, policies, speeds, steps = {}, {}, {name: [] for name in names}, {}
    for name in names:
        began = time.perf_counter()
        policies[name] = make_policy(name, language_model)
        start[name] = time.perf_counter() - began
        _play(policies[name], arguments, episodes=arguments.group_size, seed=1)  # what is made at first use is made
    for number in range(arguments.rounds):
        for name in names:
            began = time.perf_counter()
            steps[name] = _play(policies[name], arguments, episodes=arguments.episodes, seed=number)
            seconds = time.perf_counter() - began
            speeds[name].append(sum(len(one.token_ids) for one in steps[name]) / seconds)
            done = f"{precision}, {name}, round {number + 1} of {arguments.rounds}"
            print(f"{done}: {seconds:.0f} s, {speeds[name][-1]:.0f} tokens/s", flush=True)
    return {
        name: {
            "seconds_start": start[name],
            "tokens_per_second_of_rounds": speeds[name],
            "tokens_per_second": statistics.median(speeds[name]),
            "times_transformers": _ratio(speeds, name),
            "log_prob_gap": _gap(loaded.model, steps[name], precision),
        }
        for name in names
    }


def _play(policy: AnyPolicy, arguments: argparse.Namespace, *, episodes: int, seed: int) -> list[StepRecord]:
    config = load_config(RECIPE, [f"environment.max_steps={arguments.max_steps}"])
    suite = build_suite(config.environment, config.evaluation)
    tasks = suite.tasks(config.environment.train_split)[: episodes // arguments.group_size]
    rules = rollout_rules(config.rollout, config.agent, config.environment.name)
    rng = np.random.default_rng(seed)
    return collect(tasks, policy, rules, rng, group_size=arguments.group_size)


def _ratio(speeds: dict[str, list[float]], name: str) -> float | None:
    """Median over rounds of a sampler's speed over the built-in one's in the same round."""
    if "transformers" not in speeds:
        return None
    return statistics.median(one / built_in for one, built_in in zip(speeds[name], speeds["transformers"], strict=True))


def _gap(model: Any, steps: list[StepRecord], precision: str) -> dict[str, float]:
    """Differences between the log-probs of the last round and those of the trainer's forward pass."""
    samples = [Sample(one.prompt_ids, one.token_ids, one.log_probs, 0.0) for one in steps]
    scored = np.concatenate(response_log_probs(model, samples, precision=precision))
    gap = np.abs(scored - np.concatenate([one.log_probs for one in steps]))
    return {"mean": float(gap.mean()), "99%": float(np.quantile(gap, 0.99)), "max": float(gap.max())}


if __name__ == "__main__":
    main()
