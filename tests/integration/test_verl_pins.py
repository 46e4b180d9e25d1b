"""What a user with GPUs is told to install: it agrees with verl's own pins, and it resolves."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints-verl-gpu.txt"
_OLDEST, _BELOW = (3, 11), (3, 13)


def gpu_pins() -> dict[str, str]:
    """What the installed verl pins for GPUs."""
    pinned = re.compile(r'([A-Za-z0-9_.-]+)==([^;\s]+)\s*;\s*extra == "(vllm|fsdp|flash-attn-cu130torch211)"')
    return {match[1].lower(): match[2] for line in requires("verl") or [] if (match := pinned.match(line))}


def constrained() -> dict[str, str]:
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    matches = (re.match(r"([\w.-]+)==([^;\s]+)", line) for line in lines)
    return {match[1]: match[2] for match in matches if match}


def test_the_constraints_are_verls_own_pins() -> None:
    pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")
    pins = gpu_pins()
    found = constrained()
    assert {"torch", "vllm", "transformers"} <= pins.keys() & found.keys()
    assert {name: found[name] for name in pins.keys() & found.keys()} == {
        name: pins[name] for name in pins.keys() & found.keys()
    }
    assert f"flash-attn=={pins['flash-attn']}" in (ROOT / "docs" / "verl.md").read_text(encoding="utf-8")


def test_flash_attention_is_left_to_a_build_of_its_own() -> None:
    """Its source imports torch as it is built, which pip's isolated builds do not have; so no extra may ask for it."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert "flash-attn" not in constrained()
    assert extras["verl-gpu"] == ["hgpo[verl,lora]", "verl[vllm]"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="vLLM for GPUs is for Linux")
@pytest.mark.parametrize("python", [f"{_OLDEST[0]}.{_OLDEST[1]}", f"{_BELOW[0]}.{_BELOW[1] - 1}"])
def test_the_gpu_installation_resolves(tmp_path: Path, python: str) -> None:
    """uv resolves it in seconds, since it reads the metadata of a wheel without downloading the wheel."""
    uv = [sys.executable, "-m", "uv"]
    (tmp_path / "six.in").write_text("six", encoding="utf-8")
    reachable = [*uv, "pip", "compile", "--quiet", str(tmp_path / "six.in")]
    if subprocess.run(reachable, capture_output=True, check=False, timeout=120).returncode:
        pytest.skip("no package registry is reachable")
    command = [*uv, "pip", "compile", "--quiet", "--no-annotate", "--no-header", "--python-version", python]
    command += ["-c", str(CONSTRAINTS), "--extra", "verl-gpu", str(ROOT / "pyproject.toml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    resolved = dict(line.split("==") for line in done.stdout.split() if "==" in line)
    expected = {name: constrained()[name] for name in ("torch", "vllm", "transformers", "verl")}
    assert {name: resolved[name] for name in expected} == expected
