"""``hgpo doctor``: what is installed, what runs here, what is missing and how to get it."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

DESCRIPTION = """\
Check this machine: Python, packages, devices, environments, and data. Ends with status 1 if training cannot run.

example:
  hgpo doctor
"""
PACKAGES = {
    "numpy": ("advantages", "pip install hgpo"),
    "pyarrow": ("advantages", "pip install hgpo"),
    "torch": ("train", 'pip install "hgpo[train]"'),
    "transformers": ("train", 'pip install "hgpo[train]"'),
    "tokenizers": ("train", 'pip install "hgpo[train]"'),
    "safetensors": ("train", 'pip install "hgpo[train]"'),
    "jinja2": ("train", 'pip install "hgpo[train]"'),
}
REPORT_PACKAGES = {
    "vl-convert-python": ("hgpo inspect", 'pip install "hgpo[report]"'),
    "igraph": ("hgpo inspect", 'pip install "hgpo[report]"'),
    "matplotlib": ("hgpo inspect --figures", 'pip install "hgpo[report]"'),
}
"""Training runs without these."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.description = DESCRIPTION


def run(_: argparse.Namespace) -> int:
    """Carry out the verb."""
    from rich.console import Console
    from rich.table import Table

    rows = [("Python", platform.python_version(), "")]
    missing = False
    for package, (purpose, remedy) in (PACKAGES | REPORT_PACKAGES).items():
        found = _version(package)
        missing |= found is None and package in PACKAGES
        rows.append((package, found or "missing", "" if found else f"needed for {purpose}: {remedy}"))
    rows.append(_device())
    rows.append(("CPU cores", str(os.cpu_count()), ""))
    rows += _registries()
    rows.append(_alfworld_data())
    table = Table("what", "found", "what to do")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    sys.stdout.write("Training does not run here.\n" if missing else "Training runs here.\n")
    return int(missing)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _device() -> tuple[str, str, str]:
    if _version("torch") is None:
        return ("device", "unknown", "install torch first")
    import torch

    if torch.cuda.is_available():
        return ("device", f"CUDA: {torch.cuda.get_device_name()}", "")
    return ("device", "CPU", "tiny policies train on it; an LLM wants a GPU")


def _registries() -> list[tuple[str, str, str]]:
    from hgpo.agents.prompts import template_names
    from hgpo.envs.registry import names as environment_names
    from hgpo.estimators import names as estimator_names

    return [
        ("environments", ", ".join(environment_names()), ""),
        ("prompt templates", ", ".join(template_names()), ""),
        ("estimators", ", ".join(estimator_names()), ""),
    ]


def _alfworld_data() -> tuple[str, str, str]:
    folder = os.environ.get("ALFWORLD_DATA")
    if folder and os.path.isdir(os.path.expanduser(folder)):
        return ("ALFWorld games", folder, "")
    return (
        "ALFWorld games",
        "generated only",
        "for the real ones: pip install alfworld, alfworld-download, then export ALFWORLD_DATA=the folder",
    )
