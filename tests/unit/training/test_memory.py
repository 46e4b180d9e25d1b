"""The memory estimate, its one line, and what is available and used."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from hgpo.assemble import train
from hgpo.config import Config, load_config
from hgpo.runs.metrics import GIB, peak_resident_gib
from hgpo.training import run_plan
from hgpo.training.run_plan import ModelSummary, available_gib, check_memory, estimate_memory, summarise_model
from hgpo.training.trainer import peak_memory_gib
from hgpo.utils.progress import Reporter
from tiny_models import tiny_model

CPU = torch.device("cpu")
TESTS = Path(__file__).parents[2]
WIDE = ("policy.tiny.hidden_size=512", "policy.max_prompt_tokens=1000", "policy.max_response_tokens=100")


def config(*overrides: str) -> Config:
    return load_config(None, ["warm_start.enabled=true", *overrides])


def phases_of(settings: Config, *, own_critic: bool = False) -> dict[str, dict[str, float]]:
    model = summarise_model(settings.policy)
    return estimate_memory(model, settings.policy, settings.training, settings.warm_start, CPU, own_critic=own_critic)


def test_an_option_is_read_with_the_type_that_the_sampler_declares() -> None:
    as_text = config("policy.options.max_batch_size='8'", "policy.options.max_batch_tokens='9000'")
    as_number = config("policy.options.max_batch_size=8", "policy.options.max_batch_tokens=9000")
    assert phases_of(as_text)["sampling"]["cache"] == phases_of(as_number)["sampling"]["cache"]


# ---- the model -----------------------------------------------------------------------------------------------------


def test_a_summary_has_every_parameter_and_needs_no_weights(tmp_path: Path) -> None:
    model = tiny_model().model
    model.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    summary = summarise_model(config(f"policy.model={str(tmp_path)!r}").policy)
    assert summary == ModelSummary.of(model)
    assert summary.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert (summary.hidden_size, summary.layers) == (32, 2)


def test_a_tiny_model_is_summarised_before_it_is_built() -> None:
    summary = summarise_model(config("policy.tiny.hidden_size=96", "policy.tiny.layers=3").policy)
    assert (summary.hidden_size, summary.layers) == (96, 3)
    assert summary.parameters < 5_000_000


def test_sizes_that_a_configuration_lacks_are_taken_as_in_a_llama() -> None:
    with torch.device("meta"):
        summary = ModelSummary.of(GPT2LMHeadModel(GPT2Config(n_embd=48, n_head=4, n_layer=2)))
    assert (summary.key_value_size, summary.intermediate_size) == (48, 192)


def test_adapter_parameters_are_those_of_peft() -> None:
    peft = pytest.importorskip("peft")
    sizes = {"vocab_size": 99, "hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 2}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=6, num_key_value_heads=2))
    summary = ModelSummary.of(model)
    trained = peft.get_peft_model(model, peft.LoraConfig(r=3, target_modules="all-linear", task_type="CAUSAL_LM"))
    assert summary.adapter_parameters(3) == sum(p.numel() for p in trained.parameters() if p.requires_grad)


# ---- the estimate --------------------------------------------------------------------------------------------------


def test_weights_gradients_and_moments_are_float32() -> None:
    settings = config("policy.precision=bfloat16", "training.kl_coefficient=0.1")
    parameters = summarise_model(settings.policy).parameters
    parts = phases_of(settings)["the updates"]
    assert parts["weights"] * GIB == (4 + 2) * parameters  # the reference in bfloat16
    assert parts["optimiser"] * GIB == 12 * parameters


def test_adapters_alone_have_gradients_and_moments() -> None:
    settings = config("policy.precision=bfloat16", "policy.lora.rank=16")
    model = summarise_model(settings.policy)
    parts, adapters = phases_of(settings)["the updates"], model.adapter_parameters(16)
    assert parts["weights"] * GIB == 4 * adapters + 2 * model.parameters
    assert parts["optimiser"] * GIB == 12 * adapters


def test_a_servers_copy_of_the_weights_is_in_another_process() -> None:
    served = ("policy.backend=server", "policy.options.url=http://127.0.0.1:9/v1", "policy.options.adapters=/tmp/none")
    own, remote = (phases_of(config("policy.lora.rank=16", *backend))["the updates"] for backend in ((), served))
    assert own["weights"] == remote["weights"]


def test_on_a_cpu_vllm_has_its_cache_and_a_copy_of_the_weights_in_every_phase() -> None:
    own, beside = (phases_of(config("policy.precision=float32", *more)) for more in ((), ("policy.backend=vllm",)))
    parameters = summarise_model(config().policy).parameters
    for phase, parts in beside.items():
        assert parts["vLLM's cache"] == 2
        assert (parts["weights"] - own[phase]["weights"]) * GIB == pytest.approx(4 * parameters)


@pytest.mark.parametrize("rank", [0, 16])
def test_a_critic_of_its_own_takes_as_much_as_the_policy(rank: int) -> None:
    settings = config("policy.precision=bfloat16", *([f"policy.lora.rank={rank}"] if rank else []))
    model = summarise_model(settings.policy)
    parts = phases_of(settings, own_critic=True)["the updates"]
    policys = parts["weights"] + parts["optimiser"]
    reference = 0 if rank else 2 * model.parameters / GIB
    assert parts["critic"] == pytest.approx(policys - reference)
    assert "critic" not in phases_of(settings)["the updates"]


@pytest.mark.parametrize(
    ("less", "more", "phase"),
    [
        ("training.micro_batch_tokens=1024", "training.micro_batch_tokens=8192", "the updates"),
        ("training.max_logits=2000000", "training.max_logits=20000000", "the updates"),
        ("training.gradient_checkpointing=true", "training.gradient_checkpointing=false", "the updates"),
        ("policy.precision=bfloat16", "policy.precision=float32", "the updates"),
        ("policy.lora.rank=16", "policy.lora.rank=0", "the updates"),
        ("policy.lora.rank=16", "policy.lora.rank=0", "the warm start"),
        ("training.kl_coefficient=0", "training.kl_coefficient=0.1", "the updates"),
        ("training.mini_batch_size=2", "training.mini_batch_size=20", "the updates"),
        ("policy.max_response_tokens=16", "policy.max_response_tokens=2000", "sampling"),
        ("policy.options.max_batch_size=2", "policy.options.max_batch_size=20", "sampling"),
        ("policy.options.max_batch_tokens=4000", "policy.options.max_batch_tokens=40000", "sampling"),
        ("warm_start.batch_size=2", "warm_start.batch_size=20", "the warm start"),
        ("warm_start.micro_batch_tokens=1000", "warm_start.micro_batch_tokens=8000", "the warm start"),
    ],
)
def test_settings_that_bound_memory_are_read(less: str, more: str, phase: str) -> None:
    roomy = ("policy.max_prompt_tokens=512", "policy.tiny.hidden_size=256", "policy.options.max_batch_tokens=262144")
    smaller, larger = (sum(phases_of(config(*roomy, change))[phase].values()) for change in (less, more))
    assert smaller < larger - 2**16 / GIB


SMOL_SIZES = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "num_hidden_layers": 10,
    "vocab_size": 49_152,
    "tie_word_embeddings": True,
}
WIDE_SIZES = {
    "hidden_size": 384,
    "intermediate_size": 1920,
    "num_attention_heads": 6,
    "num_key_value_heads": 1,
    "num_hidden_layers": 6,
    "vocab_size": 60_000,
    "tie_word_embeddings": False,
}
SMALL_SIZES = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "num_hidden_layers": 12,
    "vocab_size": 8_000,
    "tie_word_embeddings": True,
}
CASES = {
    "ten layers of SmolLM2-135M": ("llama", SMOL_SIZES, (448, 64), {"micro_batch_tokens": 1024}),
    "wide": (
        "qwen2",
        WIDE_SIZES,
        (900, 100),
        {"micro_batch_tokens": 2000, "max_logits": 2**24, "kl_coefficient": 0, "entropy_coefficient": 0},
    ),
    "small": ("llama", SMALL_SIZES, (224, 32), {"micro_batch_tokens": 4096, "max_logits": 2**22, "kl_coefficient": 0}),
}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read where Linux writes it")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("case", "recompute_layers"),
    [
        ("ten layers of SmolLM2-135M", False),
        ("ten layers of SmolLM2-135M", True),
        ("wide", False),  # its logits take the most, whatever its layers keep
        ("small", True),
    ],
)
def test_whole_updates_take_what_was_estimated(case: str, precision: str, recompute_layers: bool) -> None:
    if precision == "bfloat16" and "avx512_bf16" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this CPU emulates bfloat16: one case takes minutes")
    kind, sizes, (prompt, response), settings = CASES[case]
    written = {
        "kind": kind,
        "sizes": sizes,
        "prompt": prompt,
        "response": response,
        "precision": precision,
        "settings": {**settings, "gradient_checkpointing": recompute_layers},
    }
    command = [sys.executable, str(TESTS / "updates_memory.py"), json.dumps(written)]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    sys.stdout.write(f"estimated {found['estimated']:.2f} GiB, measured {found['measured']:.2f} GiB\n")
    assert 0.8 <= found["estimated"] / found["measured"] <= 1.5


# ---- the line ------------------------------------------------------------------------------------------------------


@pytest.fixture
def available(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The GiB that `available_gib` returns."""
    gib: list[float | None] = [64.0]
    monkeypatch.setattr(run_plan, "available_gib", lambda device: gib[0])
    return gib


def printed(settings: Config) -> str:
    screen = io.StringIO()
    model, reporter = summarise_model(settings.policy), Reporter(Console(file=screen, width=200))
    check_memory(model, settings.policy, settings.training, settings.warm_start, reporter)
    return screen.getvalue()


def test_one_line_has_the_estimate_and_what_is_available(available: list[float | None]) -> None:
    line = r"Memory: about \d+\.\d GiB for \w[\w ]+ \((\w+ \d+\.\d(, )?)+\)"
    assert re.fullmatch(line + r"; 64\.0 GiB available\n", printed(config(*WIDE)))
    available[0] = None
    assert re.fullmatch(line + r"\n", printed(config(*WIDE)))


def test_a_small_estimate_is_not_printed(available: list[float | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_plan, "status_bytes", lambda name: 0)
    assert printed(config("policy.max_prompt_tokens=100", "policy.max_response_tokens=9")) == ""


def test_too_little_memory_is_one_warning_that_names_settings(
    available: list[float | None], capsys: pytest.CaptureFixture[str]
) -> None:
    available[0] = 0.3
    assert printed(config(*WIDE)) == ""
    [warning] = capsys.readouterr().err.splitlines()
    assert re.match(r"Warning: memory may not suffice: about \d+\.\d GiB for .*; 0\.3 GiB available\. ", warning)
    for setting in ("training.micro_batch_tokens", "training.gradient_checkpointing=true", "policy.lora.rank=16"):
        assert setting in warning


def test_a_run_is_not_rejected_for_it(
    tmp_path: Path, available: list[float | None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    available[0] = 0.001
    monkeypatch.setattr("hgpo.assemble._complete", lambda run, *rest: run)
    settings = load_config(TESTS / "corridor.toml", [f"run.directory={str(tmp_path)!r}"])
    assert train(settings, Reporter(Console(quiet=True))).config.exists()
    assert "Warning: memory may not suffice" in capsys.readouterr().err


# ---- available and used memory ---------------------------------------------------------------------------------------


def machine(root: Path, files: dict[str, str], available_gib: int = 16) -> Path:
    """The files of /proc and /sys that are read, below `root`."""
    meminfo = f"MemTotal: 25165824 kB\nMemAvailable:   {available_gib * 2**20} kB\nHugePages_Total: 0\n"
    for name, text in {"proc/meminfo": meminfo, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def container(limit: str, used: int = 0, cached: int = 0) -> dict[str, str]:
    files = {"memory.max": limit, "memory.current": str(used), "memory.stat": f"anon 5\ninactive_file {cached}"}
    return {f"sys/fs/cgroup/{name}": f"{text}\n" for name, text in files.items()}


@pytest.mark.parametrize(
    ("files", "free", "available"),
    [
        ({}, 16, 16),
        (container("max"), 16, 16),
        (container(limit=str(8 * GIB), used=3 * GIB, cached=GIB), 16, 6),  # the limit less what is used
        (container(limit=str(8 * GIB), used=3 * GIB, cached=GIB), 2, 2),
        (container(limit="5", used=7), 16, 0),
        ({"proc/self/status": "Name: x\nVmRSS:\t 1048576 kB\n"}, 16, 17),  # what the process uses already is included
    ],
)
def test_available_memory_is_that_of_machine_and_container(
    tmp_path: Path, files: dict[str, str], free: int, available: int
) -> None:
    assert available_gib(CPU, tmp_path) is None  # without /proc
    assert available_gib(CPU, machine(tmp_path, files, free)) == available


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="Linux")
def test_on_this_machine_it_is_below_the_installed_memory() -> None:
    free = available_gib(CPU)
    assert free is not None
    assert 0 < free < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_it_falls_with_what_is_allocated() -> None:
    device = torch.device("cuda")
    before = available_gib(device)
    kept = torch.ones(2**28, device=device)
    after = available_gib(device)
    assert before is not None
    assert after is not None
    assert before - after >= kept.nbytes / GIB


@pytest.mark.slow
def test_on_a_cpu_the_peak_is_of_resident_memory() -> None:
    before = peak_resident_gib()
    assert 0.02 < before < 1024
    touched = np.ones(int((before + 0.25) * GIB / 8))
    assert peak_resident_gib() >= before + 0.2
    del touched
    assert peak_resident_gib() >= before + 0.2  # a peak, not the present value


@pytest.mark.slow
def test_the_memory_of_the_parent_process_is_not_counted() -> None:
    large = np.ones(2**28)  # 2 GiB
    script = "from hgpo.runs.metrics import peak_resident_gib; print(peak_resident_gib())"
    found = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    assert 0.02 < float(found.stdout) < 1.5
    assert large[-1] == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_the_peak_is_of_tensors() -> None:
    kept = torch.ones(2**28, device="cuda")  # 1 GiB
    assert peak_memory_gib(kept.device) >= 1.0
