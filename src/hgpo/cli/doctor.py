"""`hgpo doctor`: what is installed, what runs here, what is missing and how to get it."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from hgpo.integrations.verl.estimates import Finding

DESCRIPTION = """\
Check this machine: hgpo, Python, packages, verl, devices, environments, and data. Ends with status 1 if training
cannot run; training needs neither the report's packages nor verl nor real data.

With --engine verl, check what that engine needs: packages and GPUs; with a recipe also the CPUs that Ray places
(TransferQueue, placement groups) and estimates of GPU and host memory. Ends with status 1 if verl would not start.

examples:
  hgpo doctor
  hgpo doctor --engine verl verl/profiles/24gb-1.5b-lora
  hgpo doctor --engine verl verl/alfworld verl.gpus_per_node=8
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
OPTIONAL_PACKAGES = {
    "vl-convert-python": ("hgpo inspect", 'pip install "hgpo[report]"'),
    "igraph": ("hgpo inspect", 'pip install "hgpo[report]"'),
    "openai": ("hgpo eval --server", 'pip install "hgpo[server]"'),
    "websockets": ("hgpo serve-env, environments at openenv:URL", 'pip install "hgpo[openenv]"'),
    "matplotlib": ("hgpo compare --figure", 'pip install "hgpo[report]"'),
}
"""Training runs without these."""
Row: TypeAlias = tuple[str, str, str]
"""What was looked for, what was found, what to do about it."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.description = DESCRIPTION
    parser.add_argument("recipe", nargs="?", type=Path, help="with --engine: a TOML file with settings")
    parser.add_argument("overrides", nargs="*", metavar="section.name=value", help="settings that replace the recipe's")
    parser.add_argument("--engine", choices=["verl"], help="check the requirements of this engine")


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb."""
    if arguments.engine is None and arguments.recipe is not None:
        raise ValueError("a recipe is checked only with --engine verl; the built-in trainer checks when it starts")
    return _examine_engine(arguments) if arguments.engine else _examine_machine()


def _examine_engine(arguments: argparse.Namespace) -> int:
    findings = engine_findings(arguments.recipe, arguments.overrides)
    _show([(finding.what, finding.found, finding.remedy) for finding in findings])
    starts = not any(finding.fatal for finding in findings)
    sys.stdout.write("verl starts here.\n" if starts else "verl does not start here.\n")
    return int(not starts)


def engine_findings(recipe: Path | None, overrides: Sequence[str]) -> list[Finding]:
    """What a run on verl needs and whether this machine has it; with a recipe, also whether the run would start here.

    Raises:
        ConfigError: the recipe cannot be read, or verl rejects its settings.
    """
    from hgpo.config import ConfigError, load_config
    from hgpo.integrations.verl.config import on_cpu
    from hgpo.integrations.verl.estimates import Finding, cost_findings
    from hgpo.integrations.verl.preflight import check_here, inspect_machine, package_findings, require_verl

    machine = inspect_machine()
    config = None if recipe is None else load_config(recipe, [*overrides, 'run.engine="verl"'])
    try:
        found = [Finding("verl", require_verl())]
    except ConfigError as error:
        found = [Finding("verl", _version("verl") or "missing", str(error), fatal=True)]
    if machine.gpus:
        found.append(Finding("GPUs", ", ".join(f"{size / 2**30:.1f} GiB" for size in machine.gpus)))
    else:
        visible = "none" if machine.gpus is not None else "none that nvidia-smi lists"
        needed = config is not None and not on_cpu(config.policy)
        remedy = "without a GPU: policy.device=cpu, for small experiments"
        found.append(Finding("GPUs", visible, remedy, fatal=needed))
    if config is None or not machine.gpus:
        found += package_findings(machine, set())
    if config is None or found[0].fatal:
        return found
    from hgpo.integrations.verl.launch import compose

    found += check_here(compose(config), machine, config.policy)
    return found if config.verl.evaluate_only else found + cost_findings(config)


def _examine_machine() -> int:
    if _version("torch") is not None:
        sys.stderr.write("Checking this machine; loading PyTorch takes a few seconds ...\n")
        sys.stderr.flush()
    device, torch_loads = _device_row()
    packages = {package: _version(package) for package in PACKAGES | OPTIONAL_PACKAGES}
    rows = [
        ("hgpo", _version("hgpo") or "not installed", ""),
        ("Python", platform.python_version(), ""),
        *(
            (package, packages[package] or "missing", "" if packages[package] else f"needed for {purpose}: {remedy}")
            for package, (purpose, remedy) in (PACKAGES | OPTIONAL_PACKAGES).items()
        ),
        _verl_row(),
        device,
        ("CPU cores", str(os.cpu_count()), ""),
        *_registry_rows(),
        _alfworld_data_row(),
        ("WebShop shops", "generated", "for the official catalogue: option data_dir = its folder"),
    ]
    _show(rows)
    trains = torch_loads and all(packages[package] is not None for package in PACKAGES)
    sys.stdout.write("Training runs here.\n" if trains else "Training does not run here.\n")
    return int(not trains)


def _show(rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for heading in ("what", "found", "what to do"):
        table.add_column(heading, overflow="fold")  # a command that one would copy is wrapped, never cut
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _verl_row() -> Row:
    """Whether `--engine verl` runs; asked without loading verl."""
    from hgpo.config import ConfigError
    from hgpo.integrations.verl.preflight import require_verl

    try:
        return ("verl", require_verl(), "")
    except ConfigError as error:
        return ("verl", _version("verl") or "missing", str(error))


def _device_row() -> tuple[Row, bool]:
    """What tensors are computed on, and whether torch loads at all."""
    if _version("torch") is None:
        return ("device", "unknown", "install torch first"), False
    try:
        import torch

        found = f"CUDA: {torch.cuda.get_device_name()}" if torch.cuda.is_available() else "CPU"
    except Exception as error:  # a broken installation may raise anything
        reason = f"torch is installed but cannot be loaded ({type(error).__name__}: {error})"
        return ("device", "unknown", f"{reason}: pip install --force-reinstall torch"), False
    if found == "CPU":
        return ("device", found, "tiny policies train on a CPU; use a GPU for an LLM"), True
    from hgpo.policies.backends import BACKENDS

    missing = BACKENDS.get("vllm").missing()
    return ("device", found, f"generation is slow without vLLM: {missing}" if missing else ""), True


def _registry_rows() -> list[Row]:
    from hgpo.agents.prompts import template_names
    from hgpo.envs.registry import names as environment_names
    from hgpo.estimators import names as estimator_names
    from hgpo.policies.backends import BACKENDS

    return [
        ("environments", ", ".join(environment_names()), ""),
        ("prompt templates", ", ".join(template_names()), ""),
        ("estimators", ", ".join(estimator_names()), ""),
        ("policy backends", ", ".join(BACKENDS.names()), ""),
    ]


def _alfworld_data_row() -> Row:
    folder = os.environ.get("ALFWORLD_DATA")
    if folder and os.path.isdir(os.path.expanduser(folder)):
        return ("ALFWorld games", folder, "")
    return (
        "ALFWorld games",
        f"generated only; ALFWORLD_DATA={folder} is no folder" if folder else "generated only",
        "for the real games: pip install alfworld, alfworld-download, then export ALFWORLD_DATA=the folder",
    )
