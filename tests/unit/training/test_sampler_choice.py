"""Which sampler `policy.backend = "auto"` comes to, on a pretended CUDA device: nothing here runs vLLM or a GPU."""

from __future__ import annotations

import importlib.util
import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

import pretend_device
from corridor_runs import quiet, recipe
from hgpo.assemble import train
from hgpo.cli import doctor
from hgpo.config import Config, load_config
from hgpo.policies import vllm
from hgpo.policies.backends import make_policy
from hgpo.policies.language_model import LanguageModel
from hgpo.policies.local import TransformersPolicy
from hgpo.runs.folder import open_run_directory
from hgpo.runs.metrics import GIB
from hgpo.training.load import choose_sampler, make_backend_policy
from hgpo.training.run_plan import check_memory, estimate_memory, summarise_model
from hgpo.utils.progress import Reporter
from tiny_models import WORDS, save_tiny_model, tiny_model

CUDA, CARD = torch.device("cuda"), 80
SIZES = {"hidden_size": 32, "layers": 2, "heads": 2, "max_tokens": 8_192}


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch says that there is a card of 80 GiB."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (70 * GIB, CARD * GIB))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "Pretended")


@pytest.fixture(params=[True, False], ids=["vLLM", "no vLLM"])
def installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether vLLM is installed."""
    _install(monkeypatch, request.param)
    return bool(request.param)


def _install(monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    real = importlib.util.find_spec
    found = SimpleNamespace(origin="vllm/__init__.py") if installed else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: found if name == "vllm" else real(name, *rest))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "model", [" ".join(WORDS)], **SIZES)


def settings(folder: Path, *overrides: str) -> Config:
    return load_config(None, [f"policy.model={str(folder)!r}", *overrides])


@pytest.mark.usefixtures("cuda")
def test_on_cuda_auto_is_vllm_where_it_is_installed_and_a_line_says_so(folder: Path, installed: bool) -> None:
    chosen, line = choose_sampler(settings(folder).policy)
    if installed:
        assert chosen.backend == "vllm"
        assert line.startswith("Sampler: vLLM (policy.backend = auto on CUDA) with 30% of the GPU memory")
        assert "not measured on GPUs. To use transformers instead, set policy.backend=transformers" in line
    else:
        assert chosen.backend == "transformers"
        assert line.startswith(
            "Note: generation will be slow: policy.backend = auto uses vLLM on CUDA, but vLLM is not"
        )
        assert 'pip install "hgpo[vllm]"' in line


def test_on_a_cpu_auto_is_transformers_without_a_word(folder: Path, installed: bool) -> None:
    chosen, line = choose_sampler(settings(folder, "policy.device=cpu").policy)
    assert (chosen.backend, line) == ("transformers", "")


@pytest.mark.usefixtures("cuda", "installed")
@pytest.mark.parametrize("named", ["transformers", "vllm", "server"])
def test_a_backend_that_was_named_is_taken_without_a_word(folder: Path, named: str) -> None:
    policy = settings(folder, f"policy.backend={named}").policy
    assert choose_sampler(policy) == (policy, "")


@pytest.mark.usefixtures("cuda")
def test_options_of_the_other_sampler_decide(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, True)
    chosen, line = choose_sampler(settings(folder, "policy.options.max_batch_size=8").policy)
    assert chosen.backend == "transformers"
    assert line.startswith("Note: generation will be slow: policy.backend = auto does not use vLLM: ")
    assert "max_batch_size" in line
    chosen, line = choose_sampler(settings(folder, "policy.options.gpu_memory_utilization=0.45").policy)
    assert chosen.backend == "vllm"
    assert "with 45% of the GPU memory" in line


@pytest.mark.usefixtures("cuda", "installed")
def test_a_tiny_model_needs_none() -> None:
    chosen, line = choose_sampler(load_config(None, ["warm_start.enabled=true"]).policy)
    assert chosen.backend == "transformers"
    assert line == "Sampler: transformers (policy.backend = auto): a tiny model does not need vLLM"


@pytest.mark.usefixtures("cuda")
def test_a_run_prints_the_line_and_stores_the_choice(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    monkeypatch.setattr("hgpo.assemble._complete", lambda run, *rest: run)
    config = recipe(tmp_path, f"policy.model={str(folder)!r}", "policy.lora.rank=0", "policy.max_prompt_tokens=512")
    screen = io.StringIO()
    assert config.policy.backend == "auto"
    run = train(config, Reporter(Console(file=screen, width=400)))
    stored = open_run_directory(run.path)[1]
    assert stored.policy.backend == ("vllm" if installed else "transformers")
    assert stored.recomputes_log_probs is installed
    [line] = [line for line in screen.getvalue().splitlines() if "policy.backend = auto" in line]
    assert ("Sampler: vLLM" in line) is installed


def test_settings_that_were_not_resolved_sample_with_transformers() -> None:
    policy = make_backend_policy(load_config(None, ["warm_start.enabled=true"]).policy, tiny_model())
    assert isinstance(policy, TransformersPolicy)
    assert not load_config(None, ["warm_start.enabled=true"]).recomputes_log_probs


# ---- memory --------------------------------------------------------------------------------------------------------


def phases(config: Config) -> dict[str, dict[str, float]]:
    return estimate_memory(summarise_model(config.policy), config.policy, config.training, config.warm_start, CUDA)


@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize(("options", "share"), [((), 0.3), (("policy.options.gpu_memory_utilization=0.5",), 0.5)])
def test_the_share_of_the_card_counts_while_sampling_and_not_during_updates(
    folder: Path, options: tuple[str, ...], share: float
) -> None:
    found = phases(settings(folder, "policy.backend=vllm", *options))
    own = phases(settings(folder, "policy.backend=transformers"))
    assert found["sampling"]["vLLM"] == pytest.approx(share * CARD)
    assert found["the updates"] == own["the updates"]
    assert found["sampling"]["weights"] == own["sampling"]["weights"]


@pytest.mark.usefixtures("cuda")
def test_the_printed_estimate_has_it(folder: Path) -> None:
    screen, config = io.StringIO(), settings(folder, "policy.backend=vllm")
    reporter = Reporter(Console(file=screen, width=400))
    check_memory(summarise_model(config.policy), config.policy, config.training, config.warm_start, reporter)
    assert "GiB for sampling (vLLM 24.0" in screen.getvalue()
    assert "70.0 GiB available" in screen.getvalue()


@pytest.mark.usefixtures("cuda")
def test_doctor_says_what_is_missing(installed: bool) -> None:
    finding = doctor._device_finding()
    assert finding.found == "CUDA: Pretended"
    assert ('pip install "hgpo[vllm]"' in finding.remedy) is not installed


# ---- sleep ---------------------------------------------------------------------------------------------------------


class PretendedEngine:
    """Writes down what it is called with."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def sleep(self, level: int) -> None:
        self.calls.append(f"sleep {level}")

    def wake_up(self, tags: list[str]) -> None:
        self.calls.append(f"wake {' '.join(tags)}")

    def collective_rpc(self, name: str, kwargs: dict[str, Any]) -> None:
        assert "model.embed_tokens.weight" in dict(kwargs["weights_iterator"])
        self.calls.append(name)

    def apply_model(self, change: Any) -> None:
        pass

    def reset_prefix_cache(self) -> bool:
        return True


def started(monkeypatch: pytest.MonkeyPatch, language_model: LanguageModel) -> tuple[Any, PretendedEngine, Any]:
    engine, given = PretendedEngine(), {}
    monkeypatch.setattr(vllm, "_start", lambda model, arguments: given.update(arguments) or engine)
    return vllm.make_vllm_policy(language_model), engine, given


@pytest.mark.skipif(not pretend_device.AVAILABLE, reason="this PyTorch has no devices in Python")
def test_on_an_accelerator_vllm_sleeps_until_it_takes_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretend_device.pretend_device() as device:
        plain = tiny_model()
        language_model = plain.changed(lambda model: model.to(device))
        policy, engine, given = started(monkeypatch, language_model)
        assert given["enable_sleep_mode"]
        assert engine.calls == ["reload_weights"]
        policy.release_memory()
        policy.release_memory()
        policy.take_weights(language_model.model)
        policy.take_weights(language_model.model)
    assert engine.calls[1:] == ["sleep 2", "wake weights", "reload_weights", "wake kv_cache", "reload_weights"]


def test_on_a_cpu_it_cannot_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, engine, given = started(monkeypatch, tiny_model())
    policy.release_memory()
    policy.take_weights(policy.language_model.model)
    assert not given["enable_sleep_mode"]
    assert engine.calls == ["reload_weights", "reload_weights"]


def test_memory_is_not_freed_while_requests_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, *_ = started(monkeypatch, tiny_model())
    policy._waiting["0"] = None
    with pytest.raises(RuntimeError, match=r"vLLM cannot free its memory while requests are open \(1\)"):
        policy.release_memory()


def test_a_start_that_fails_names_the_other_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*rest: Any) -> None:
        raise NotImplementedError("Model architectures ['Odd'] are not supported")

    _install(monkeypatch, True)
    monkeypatch.setattr(vllm, "_start", fail)
    with pytest.raises(ValueError, match=r"does not start \(NotImplementedError: .*set policy\.backend=transformers"):
        make_policy("vllm", tiny_model())


@pytest.mark.slow
def test_a_training_frees_the_samplers_memory_before_each_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def noting(name: str, real: Any = lambda self, *rest, **options: None) -> Any:
        def noted(self: Any, *rest: Any, **options: Any) -> Any:
            calls.append(name)
            return real(self, *rest, **options)

        return noted

    monkeypatch.setattr(TransformersPolicy, "__init__", noting("made", TransformersPolicy.__init__))
    monkeypatch.setattr(TransformersPolicy, "generate", noting("sampled", TransformersPolicy.generate))
    monkeypatch.setattr(TransformersPolicy, "release_memory", noting("freed"), raising=False)
    monkeypatch.setattr(TransformersPolicy, "take_weights", noting("taken"))
    train(recipe(tmp_path, "training.updates=2", "warm_start.max_updates=2"), quiet())
    order = " ".join(name for name, before in zip(calls, ["", *calls], strict=False) if name != before)
    assert re.fullmatch("made freed( taken sampled freed)+ made( sampled freed taken){2} sampled", order)
