"""Packages and GPUs of a machine, compared with verl's pins, and an estimate of a GPU's memory in a run.

verl 0.9.1 with FSDP2 shards weights, gradients and AdamW's moments over all ranks and gathers layers in the computing
precision one by one; the reference is offloaded to the host. The estimate has not been measured on CUDA.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hgpo.training.run_plan import ModelSummary

GUIDE = "docs/verl.md, Install"
GPU_PACKAGES = ("torch", "vllm", "flash-attn", "transformers")
SHARED_PACKAGES = ("hgpo", "verl", "TransferQueue", "transformers")  # the same on every node
GIB = 2**30
_PINNED = re.compile(r'^([A-Za-z0-9_.-]+)==([^;\s]+)\s*;\s*extra == "(vllm|fsdp|flash-attn-cu130torch211)"')
_CONTEXTS = 2 * GIB  # CUDA contexts and libraries of the training process and of vLLM; a guess
_FUSED_CHUNK, _FUSED_LOGIT, _LOGIT = 512, 22, 4  # logits at a time with fused kernels; bytes of each, per byte without
_MORE_MEMORY = (
    "memory may not suffice. What reduces it: a smaller training.micro_batch_tokens, policy.lora.rank=32, a smaller "
    "verl.overrides.actor_rollout_ref.rollout.gpu_memory_utilization, offload (docs/verl.md)"
)

VerlConfig = Mapping[str, Any]
"""verl's composed configuration."""

Summarise = Callable[[], "ModelSummary"]
"""Returns the sizes of the run's model. It loads PyTorch, so it is called only for a machine with GPUs."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check. `remedy` is empty where nothing has to change; a `fatal` one stops the run."""

    what: str
    found: str
    remedy: str = ""
    fatal: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {self.found}" + (f": {self.remedy}" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: its name in messages, CPU cores, bytes of each GPU (None if unknown), versions (None if missing)."""

    address: str
    cores: int
    gpus: tuple[int, ...] | None
    versions: Mapping[str, str | None]


def installed_version(package: str) -> str | None:
    """The version of an installed package, or None. The package is not imported."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def gpu_pins(requirements: list[str] | None = None) -> dict[str, str]:
    """The versions of torch, vllm, flash-attn, … that the installed verl pins for GPUs; none without verl."""
    if requirements is None:
        requirements = requires("verl") or [] if installed_version("verl") else []
    return {match[1].lower(): match[2] for line in requirements if (match := _PINNED.match(line))}


def inspect_machine(address: str = "this machine") -> Machine:
    """This machine. No package is imported, and no GPU is used."""
    versions = {name: installed_version(name) for name in dict.fromkeys((*SHARED_PACKAGES, *GPU_PACKAGES))}
    return Machine(address, os.cpu_count() or 1, _gpus(), versions)


def gpu_sizes(report: str) -> tuple[int, ...]:
    """Bytes of each GPU, from the output of `nvidia-smi`: a number of MiB a line."""
    return tuple(int(line) * 2**20 for line in map(str.strip, report.splitlines()) if line.isdecimal())


def package_findings(machine: Machine, needed: set[str]) -> list[Finding]:
    """Packages of a machine with GPUs, compared with verl's pins; a missing one that is `needed` is fatal."""
    found, pins = [], gpu_pins()
    for package in GPU_PACKAGES:
        installed, pin = machine.versions.get(package), pins.get(package)
        install = f"{package}=={pin}" if pin else package
        remedy, fatal = "", False
        if installed is None:
            remedy, fatal = f"pip install 'hgpo[verl-gpu]' ({GUIDE})", package in needed
            if package == "flash-attn":
                remedy = (
                    f"pip install --no-build-isolation '{install}', after torch ({GUIDE}), or set "
                    "verl.overrides.actor_rollout_ref.model.override_config.attn_implementation=sdpa"
                )
        elif package == "torch" and installed.endswith("+cpu"):
            remedy, fatal = f"a build without CUDA: install {install} for GPUs ({GUIDE})", True
        elif pin and version_numbers(installed) != version_numbers(pin):
            remedy = f"verl was released with {install}, and another may fail: {GUIDE}"
        found.append(Finding(package, installed or "missing", remedy, fatal))
    return found


def gpu_findings(verl_config: VerlConfig, machines: Sequence[Machine], summarise: Summarise) -> list[Finding]:
    """Packages and memory of the machines with GPUs; empty where no GPU is known."""
    part, with_gpus = verl_config["actor_rollout_ref"], [machine for machine in machines if machine.gpus]
    attention = (part["model"].get("override_config") or {}).get("attn_implementation", "flash_attention_2")
    needed = {"torch", "transformers"} | ({"vllm"} if part["rollout"]["name"] == "vllm" else set())
    needed |= {"flash-attn"} if attention == "flash_attention_2" else set()
    found: list[Finding] = []
    for machine in with_gpus:
        where = f" on {machine.address}" if len(machines) > 1 else ""
        for one in package_findings(machine, needed):
            if one.remedy or machine is with_gpus[0]:
                found.append(Finding(one.what + where, one.found, one.remedy, one.fatal))
    if with_gpus:
        smallest = min(min(machine.gpus or ()) for machine in with_gpus)
        found.append(memory_finding(summarise, verl_config, smallest))
    return found


def version_findings(machines: Sequence[Machine], here: Machine) -> list[Finding]:
    """Packages that differ from those of the machine that starts the run: the plugin could not be loaded there."""
    return [
        Finding(
            f"{package} on node {machine.address}",
            machine.versions.get(package) or "missing",
            f"this machine has {here.versions[package]}; install the same on every node",
            fatal=True,
        )
        for machine in machines
        for package in SHARED_PACKAGES
        if machine.versions.get(package) != here.versions[package]
    ]


def memory_finding(summarise: Summarise, verl_config: VerlConfig, gpu: int) -> Finding:
    """The estimate for a GPU of `gpu` bytes; a note where it exceeds that, never fatal."""
    try:
        model = summarise()
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        return Finding("GPU memory", "no estimate", f"the model's sizes are unknown here ({reason})")
    phases = estimate_gpu_memory(model, verl_config, gpu)
    phase, parts = max(phases.items(), key=lambda one: sum(one[1].values()))
    needed = sum(parts.values())
    from hgpo.training.run_plan import described

    found = f"about {needed:.1f} GiB for {phase} ({described(parts)}); {gpu / GIB:.1f} GiB available"
    return Finding("GPU memory", found, _MORE_MEMORY if needed * GIB > gpu else "")


def estimate_gpu_memory(model: ModelSummary, verl_config: VerlConfig, gpu: int) -> dict[str, dict[str, float]]:
    """GiB by phase and by part; the phases follow each other, so the largest counts.

    Args:
        model: sizes of the trained model.
        verl_config: verl's composed configuration.
        gpu: bytes of the GPU, of which vLLM takes a share.
    """
    part, trainer = verl_config["actor_rollout_ref"], verl_config["trainer"]
    settings, engine, rollout = part["model"], part["actor"]["fsdp_config"], part["rollout"]
    ranks = trainer["nnodes"] * trainer["n_gpus_per_node"]
    rank = (settings.get("lora") or {}).get("rank", 0) or settings["lora_rank"]
    kept = _bytes_of(engine["model_dtype"])
    number = _bytes_of((engine["mixed_precision"] or {}).get("param_dtype", "bf16"))
    adapters = model.adapter_parameters(rank)
    trained = adapters or model.parameters
    weights, gradients = kept * (model.parameters + adapters) // ranks, kept * trained // ranks
    moments = 2 * gradients
    # verl cuts micro-batches of similar work, so that one may exceed the bound by a sequence.
    tokens = part["actor"]["ppo_max_token_len_per_gpu"] + rollout["max_model_len"]
    logits = _FUSED_CHUNK * _FUSED_LOGIT if settings["use_fused_kernels"] else tokens * _LOGIT * number
    embeddings = 2 * model.vocabulary * model.hidden_size
    gathered = embeddings + 2 * (model.parameters - embeddings) // model.layers
    offloaded = engine["offload_policy"]
    resting = 0 if offloaded or engine["param_offload"] else weights
    if offloaded or engine["optimizer_offload"]:
        moments = 0  # loaded only for AdamW's step, after the activations are freed
    phases = {
        "the updates": {
            "contexts": _CONTEXTS,
            "weights": weights,
            "optimiser": gradients + moments,
            "gathered layers": gathered * (number if adapters else 2 * number + 4),
            "activations": model.activation_bytes(tokens, number, settings["enable_gradient_checkpointing"], number),
            "logits": logits * model.vocabulary,
        },
        "sampling": {
            "contexts": _CONTEXTS,
            "weights and optimiser": resting + moments,
            "vLLM": int(rollout["gpu_memory_utilization"] * gpu),
        },
    }
    return {name: {part: size / GIB for part, size in parts.items()} for name, parts in phases.items()}


def _bytes_of(name: str) -> int:
    return 2 if name in ("bf16", "bfloat16", "fp16", "float16") else 4


def _gpus() -> tuple[int, ...] | None:
    """Bytes of the GPUs that this process may use; None without `nvidia-smi`."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible == "":
        return ()
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    command += ["--id", visible] if visible else []
    try:
        return gpu_sizes(subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout)
    except (OSError, subprocess.SubprocessError):
        return None


def version_numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: (0, 9, 1) of `0.9.1.dev3`."""
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()
