"""`hgpo doctor`: what is installed, what runs here, what is missing and how to get it."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hgpo.config import ConfigError, load_config
from hgpo.envs.base import expanded_path
from hgpo.integrations.verl.estimates import Finding, cost_findings
from hgpo.integrations.verl.preflight import (
    Machine,
    check_here,
    inspect_machine,
    installed_version,
    package_findings,
    require_verl,
)
from hgpo.runs.trust import WRITTEN_OPTION

DESCRIPTION = """\
Check this machine: hgpo, Python, packages, verl, devices, environments, and data. Ends with status 1 if training
cannot run; training needs neither the report's packages nor verl nor real data.

With --engine verl, check what that engine needs: packages and GPUs; with a recipe also its paths of data, the CPUs that
Ray places (TransferQueue, placement groups) and estimates of GPU and host memory, GPU hours and disk. Ends with status
1 if verl would not start.

examples:
  hgpo doctor
  hgpo doctor --engine verl verl/profiles/24gb-1.5b-lora
  hgpo doctor --engine verl verl/alfworld verl.gpus_per_node=8
"""
PACKAGES = dict.fromkeys(("numpy", "pyarrow"), ("advantages", "pip install hgpo")) | dict.fromkeys(
    ("torch", "transformers", "tokenizers", "safetensors", "jinja2"), ("train", 'pip install "hgpo[train]"')
)
OPTIONAL_PACKAGES = {
    "vl-convert-python": ("hgpo inspect", 'pip install "hgpo[report]"'),
    "igraph": ("hgpo inspect", 'pip install "hgpo[report]"'),
    "openai": ("hgpo eval --server", 'pip install "hgpo[server]"'),
    "websockets": ("hgpo serve-env, environments at openenv:URL", 'pip install "hgpo[openenv]"'),
    "matplotlib": ("hgpo compare --figure", 'pip install "hgpo[report]"'),
}
"""Training runs without these."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.description = DESCRIPTION
    parser.add_argument("recipe", nargs="?", type=Path, metavar="RECIPE", help="with --engine: a recipe's name or file")
    parser.add_argument("overrides", nargs="*", metavar="section.name=value", help="settings that replace the recipe's")
    parser.add_argument("--engine", choices=["verl"], help="check the requirements of this engine")


def run(arguments: argparse.Namespace) -> int:
    """Carry out the command."""
    if arguments.engine is None and arguments.recipe is not None:
        raise ValueError(
            "a recipe needs --engine verl; the built-in trainer checks one with `hgpo train RECIPE --dry-run`"
        )
    findings = engine_findings(arguments.recipe, arguments.overrides) if arguments.engine else machine_findings()
    _show(findings)
    works = not any(finding.fatal for finding in findings)
    what, does = ("verl", "start") if arguments.engine else ("Training", "run")
    sys.stdout.write(f"{what} can{'' if works else 'not'} {does} on this machine.\n")
    return int(not works)


def engine_findings(recipe: Path | None, overrides: Sequence[str]) -> list[Finding]:
    """What a run on verl needs and whether this machine has it; with a recipe, also whether the run would start here.

    Raises:
        ConfigError: the recipe cannot be read, or verl rejects its settings.
    """
    from hgpo.integrations.verl.config import on_cpu

    machine = inspect_machine()
    config = None if recipe is None else load_config(recipe, [*overrides, 'run.engine="verl"'])
    found = [_verl_finding()]
    if config is None or not on_cpu(config.policy):
        found += _gpu_findings(machine, of_recipe=config is not None)
    if config is not None:
        found += _data_findings(config.environment.options)
    if config is None:
        return found
    if found[0].fatal:
        return [*found, Finding("estimates", "none: memory, GPU hours and disk are estimated where verl is installed")]
    from hgpo.integrations.verl.launch import compose

    found += check_here(compose(config), machine, config.policy)
    return found if config.verl.evaluate_only else found + cost_findings(config)


def _data_findings(options: Mapping[str, Any]) -> list[Finding]:
    """Paths of data among an environment's options that do not exist."""
    found = []
    for name, value in options.items():
        if name != WRITTEN_OPTION and isinstance(value, str) and value.startswith(("$", "~", "/")):
            try:
                problem = "" if expanded_path(value).exists() else f"{value} does not exist"
            except FileNotFoundError as error:
                problem = str(error)
            if problem:
                found.append(Finding(f"environment.options.{name}", problem, fatal=True))
    return found


def _gpu_findings(machine: Machine, *, of_recipe: bool) -> list[Finding]:
    """The GPUs, and the packages for them unless `check_here` names these: for a recipe on a machine with GPUs."""
    if machine.gpus:
        found = [Finding("GPUs", ", ".join(f"{size / 2**30:.1f} GiB" for size in machine.gpus))]
        return found if of_recipe else found + package_findings(machine, set())
    visible = "none" if machine.gpus is not None else "none that nvidia-smi lists"
    remedy = "without a GPU: policy.device=cpu, for small experiments"
    packages = [replace(finding, fatal=finding.fatal and of_recipe) for finding in package_findings(machine, set())]
    return [Finding("GPUs", visible, remedy, fatal=of_recipe), *packages]


def machine_findings() -> list[Finding]:
    """What is installed and registered here; fatal is only what the built-in trainer cannot do without."""
    from hgpo.agents.base import AGENTS
    from hgpo.agents.prompts import TEMPLATES
    from hgpo.envs.registry import names as environment_names
    from hgpo.estimators import names as estimator_names
    from hgpo.policies.backends import BACKENDS
    from hgpo.rollout.state_keys import STATE_KEYS

    if installed_version("torch") is not None:
        sys.stderr.write("Checking this machine; loading PyTorch takes a few seconds ...\n")
        sys.stderr.flush()
    packages = []
    for package, (purpose, install) in (PACKAGES | OPTIONAL_PACKAGES).items():
        if found := installed_version(package):
            packages.append(Finding(package, found))
        else:
            packages.append(Finding(package, "missing", f"needed for {purpose}: {install}", fatal=package in PACKAGES))
    return [
        Finding("hgpo", installed_version("hgpo") or "not installed"),
        Finding("Python", platform.python_version()),
        *packages,
        replace(_verl_finding(), fatal=False),
        _device_finding(),
        Finding("CPU cores", str(os.cpu_count())),
        Finding("environments", ", ".join(environment_names())),
        Finding("agents", ", ".join(AGENTS.names())),
        Finding("prompt templates", ", ".join(TEMPLATES.names())),
        Finding("state keys", ", ".join(STATE_KEYS.names())),
        Finding("estimators", ", ".join(estimator_names())),
        Finding("policy backends", ", ".join(BACKENDS.names())),
        _games_finding(),
        Finding("WebShop shops", "generated", "for the official catalogue: environment.options.data_dir=FOLDER"),
    ]


def _show(findings: Sequence[Finding]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for heading in ("what", "found", "what to do"):
        table.add_column(heading, overflow="fold")  # a command that one would copy is wrapped, never cut
    for finding in findings:
        table.add_row(*map(escape, (finding.what, finding.found, finding.remedy)))
    Console().print(table)


def _verl_finding() -> Finding:
    """Whether `--engine verl` runs; asked without loading verl."""
    try:
        return Finding("verl", require_verl())
    except ConfigError as error:
        return Finding("verl", installed_version("verl") or "missing", str(error), fatal=True)


def _device_finding() -> Finding:
    """What tensors are computed on; fatal if torch cannot be loaded."""
    from hgpo.policies.backends import BACKENDS

    if installed_version("torch") is None:
        return Finding("device", "unknown", "install torch first", fatal=True)
    try:
        import torch

        if not torch.cuda.is_available():
            return Finding("device", "CPU", "tiny policies train on a CPU; use a GPU for an LLM")
        found = f"CUDA: {torch.cuda.get_device_name()}"
    except Exception as error:  # a broken installation may raise anything
        reason = f"torch is installed but cannot be loaded ({type(error).__name__}: {error})"
        return Finding("device", "unknown", f"{reason}: pip install --force-reinstall torch", fatal=True)
    missing = BACKENDS.get("vllm").missing()
    return Finding("device", found, f"generation is slow without vLLM: {missing}" if missing else "")


def _games_finding() -> Finding:
    folder = os.environ.get("ALFWORLD_DATA")
    if folder and os.path.isdir(os.path.expanduser(folder)):
        return Finding("ALFWorld games", folder)
    return Finding(
        "ALFWorld games",
        f"generated only; ALFWORLD_DATA={folder} is no folder" if folder else "generated only",
        "for the original games: pip install alfworld && alfworld-download, then export ALFWORLD_DATA=FOLDER",
    )
