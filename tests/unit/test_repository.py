"""What lies in the repository: nothing large, nothing that a script can make again."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LARGEST_FILE, LARGEST_SUM = 2**20, 16 * 2**20  # bytes


@pytest.fixture(scope="module")
def tracked():
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    return [ROOT / name for name in listed.decode().split("\0") if name]


def is_start_policy(file):
    """Whether it is the weights of one of our own tiny policies, with which trainings are compared (decision 031)."""
    return file.name == "model.safetensors" and file.is_relative_to(ROOT / "benchmarks" / "starts")


def test_no_file_is_large(tracked):
    large = {file.name: file.stat().st_size for file in tracked if file.is_file() and not is_start_policy(file)}
    assert {name: size for name, size in large.items() if size > LARGEST_FILE} == {}
    assert sum(large.values()) < LARGEST_SUM


def test_no_weights_wheels_or_runs_are_tracked(tracked):
    made = {".safetensors", ".gguf", ".whl", ".bin", ".pt", ".tar", ".xz", ".npy"}
    weights = [file for file in tracked if file.suffix in made and "tests" not in file.parts]
    assert [file for file in weights if not is_start_policy(file)] == []


def test_start_policies_of_benchmarks_are_small(tracked):
    assert sum(file.stat().st_size for file in tracked if is_start_policy(file)) < 2_500_000
