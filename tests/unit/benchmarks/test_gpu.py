"""The GPU script: its comparisons on tiny models, and the whole of it with tiny sizes on a CPU."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import gpu
from gpu_parity import changed_by_update, half_of_the_tokens, relative_difference
from tiny_models import tiny_model, tiny_samples

ROOT = Path(__file__).parents[3]


def test_an_update_of_the_same_weights_is_the_same_and_of_others_is_not() -> None:
    model, samples = tiny_model().model, tiny_samples(12)
    one_W, _ = changed_by_update(copy.deepcopy(model), samples, "float32")
    same_W, _ = changed_by_update(copy.deepcopy(model), samples, "float32")
    other_W, _ = changed_by_update(tiny_model(seed=1).model, samples, "float32")
    assert relative_difference(same_W, one_W) == 0
    assert relative_difference(other_W, one_W) > 0.2


def test_too_little_memory_changes_nothing_but_rounding() -> None:
    model, samples = tiny_model().model, tiny_samples(12)
    options = {"micro_batch_tokens": 10**4, "share_prefixes": False}
    expected_W, _ = changed_by_update(copy.deepcopy(model), samples, "float32", **options)
    with half_of_the_tokens(model):
        found_W, metrics = changed_by_update(model, samples, "float32", **options)
    assert metrics["out_of_memory"] >= 1
    assert relative_difference(found_W, expected_W) < 1e-4


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for CUDA where there is none")
def test_without_a_gpu_it_says_how_to_test_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--model", str(tmp_path), "-o", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        gpu.main()
    assert "--device cpu --tiny" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_parts_with_tiny_sizes_on_a_cpu(tmp_path: Path) -> None:
    words = ["--device", "cpu", "--tiny", "--limits", "900", "900", "900", "--work", str(tmp_path), "-o", str(tmp_path)]
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    found = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert list(found["parity"]) == ["float32", "bfloat16", "resume", "out of memory"]
    assert list(found["speed"]) == ["samplers", "tiny, lora"]
    assert found["training"]["hgpo"]["updates"] == 2
