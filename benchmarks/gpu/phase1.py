"""Phase 1: does it run? Tests that need a device, and the device's arithmetic beside the CPU's.

cd benchmarks && python -m gpu.phase1 --model MODEL
cd benchmarks && python -m gpu.phase1 --rehearse
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from gpu.parity import (
    deterministic,
    less_cuda_memory,
    log_prob_gaps,
    played_samples,
    pretended_memory,
    resumed_run,
    update_gaps,
    update_in_little_memory,
)
from gpu.phase import ROOT, Figures, Part, Phase, carry_out
from gpu.tiny import QUICKSTART, SMALL, tiny_start
from hgpo.config import Config, load_config
from hgpo.policies.language_model import LanguageModel
from hgpo.policies.precision import Precision
from hgpo.training.policies import usage_of

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts; `deterministic` needs it
NEED_A_DEVICE = ("training/test_memory.py", "benchmarks/test_gpu_parity.py")
MEET_A_DEVICE = ("policies", "training", "rollout")


def run_tests(phase: Phase) -> Figures:
    """The tests that skip without a device, and on a device those that choose it by themselves."""
    report = phase.work / "tests.xml"
    chosen = [*NEED_A_DEVICE, *phase.sized(MEET_A_DEVICE, ())]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", f"--junitxml={report}"]
    command += [str(ROOT / "tests" / "unit" / name) for name in chosen]
    ended = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if ended.returncode > 1 or not report.exists():
        raise RuntimeError(f"pytest ended with status {ended.returncode}: {ended.stdout[-1500:]}{ended.stderr[-500:]}")
    return _counts(report)


def _counts(report: Path) -> Figures:
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None, "pytest writes one"
    tests, failed, skipped = (
        sum(int(suite.attrib[key]) for key in keys) for keys in (("tests",), ("failures", "errors"), ("skipped",))
    )
    kinds = ("failure", "error")
    broken = [one.attrib["name"] for one in suite.iter("testcase") if any(one.find(kind) is not None for kind in kinds)]
    return {"tests": tests, "failed_tests": failed, "skipped_tests": skipped, "broken": broken, "holds": failed == 0}


def log_probs(phase: Phase, precision: Precision) -> Figures:
    """Of what the device itself played."""
    config, host, device = _models(phase, precision)
    samples = played_samples(device, config, episodes=phase.sized(16, 4))
    return {"samples": len(samples), **log_prob_gaps(host.model, device.model, samples, precision)}


def one_update(phase: Phase, precision: Precision) -> Figures:
    """From the same weights on the same samples."""
    config, host, device = _models(phase, precision)
    samples = played_samples(device, config, episodes=phase.sized(4, 2))
    return {"samples": len(samples), **update_gaps(host.model, device.model, samples, precision)}


def resumed(phase: Phase) -> Figures:
    """With PyTorch's own choice of kernels, and with repeatable ones, which are demanded to be exact."""
    plain = resumed_run(_run_config(phase, "plain"))
    with deterministic():
        repeatable = resumed_run(_run_config(phase, "repeatable"))
    return {"plain": plain, "repeatable": repeatable, "holds": repeatable["same_figures"]}


def out_of_memory(phase: Phase) -> Figures:
    """A real limit of CUDA's, or one that is pretended where there is no CUDA."""
    config, _, device = _models(phase, "float32")
    samples = played_samples(device, config, episodes=phase.sized(8, 2))
    limit = less_cuda_memory if phase.device.type == "cuda" else pretended_memory
    return {"limit": limit.__name__, **update_in_little_memory(device.model, samples, limit)}


def _models(phase: Phase, precision: Precision) -> tuple[Config, LanguageModel, LanguageModel]:
    """Settings, and the same model on the CPU and on the device."""
    folder = phase.model or tiny_start(phase)
    lengths = [] if phase.model is None else ["policy.max_prompt_tokens=256", "policy.max_response_tokens=16"]
    config = load_config(QUICKSTART, [f"training.precision={precision}", *lengths])

    def loaded(where: Any) -> LanguageModel:
        return LanguageModel.from_pretrained(folder, usage_of(config), device=str(where), dtype="float32")

    return config, loaded("cpu"), loaded(phase.device)


def _run_config(phase: Phase, name: str) -> Config:
    options = [f"run.directory={phase.work / 'resumed'}", f"run.name={name}", *SMALL, *phase.settings]
    options += ["warm_start.max_updates=20", "warm_start.evaluate_every=20", "evaluation.games=4"]
    return load_config(
        QUICKSTART, [*options, "rollout.tasks_per_update=2", "training.updates=4", "training.checkpoint_every=2"]
    )


PARTS = [
    Part("tests", 20, run_tests),
    Part("log-probs, float32", 20, lambda phase: log_probs(phase, "float32")),
    Part("log-probs, bfloat16", 20, lambda phase: log_probs(phase, "bfloat16")),
    Part("update, float32", 20, lambda phase: one_update(phase, "float32")),
    Part("update, bfloat16", 20, lambda phase: one_update(phase, "bfloat16")),
    Part("resume", 30, resumed),
    Part("out of memory", 20, out_of_memory),
]

if __name__ == "__main__":
    assert __doc__
    sys.exit(carry_out(1, PARTS, __doc__))
