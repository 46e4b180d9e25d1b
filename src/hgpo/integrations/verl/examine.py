"""`hgpo doctor --engine verl`: what the engine meets on this machine, without starting anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hgpo.config import Config, ConfigError, load_config
from hgpo.integrations.verl.mapping import on_cpu
from hgpo.integrations.verl.start_check import Machine, findings_here, look
from hgpo.integrations.verl.versions import Finding, gpu_pins, installed_version, package_findings, require_verl

_GIB = 2**30


def examine(recipe: Path | None, overrides: Sequence[str]) -> list[Finding]:
    """What is to be said of this machine, and of the recipe on it where there is one.

    Raises:
        ConfigError: the recipe cannot be read, or verl refuses its settings.
    """
    machine = look()
    if recipe is None:
        return [verl_finding(), gpu_finding(machine, needed=False), *_packages(machine)]
    config = load_config(recipe, [*overrides, 'run.engine="verl"'])
    found = [verl_finding(), gpu_finding(machine, needed=not on_cpu(config))]
    if not machine.gpus:
        found += _packages(machine)
    return found if found[0].fatal else found + _of_recipe(config, machine)


def verl_finding() -> Finding:
    """Whether there is a verl that is known."""
    try:
        return Finding("verl", require_verl())
    except ConfigError as error:
        return Finding("verl", installed_version("verl") or "missing", str(error), fatal=True)


def gpu_finding(machine: Machine, *, needed: bool) -> Finding:
    """The GPUs of a machine, with their memory."""
    if machine.gpus:
        return Finding("GPUs", ", ".join(f"{size / _GIB:.1f} GiB" for size in machine.gpus))
    found = "none" if machine.gpus is not None else "none that nvidia-smi shows"
    return Finding("GPUs", found, "without one: policy.device=cpu, for trying things out", fatal=needed)


def _packages(machine: Machine) -> list[Finding]:
    return package_findings(machine.versions, gpu_pins(), set())


def _of_recipe(config: Config, machine: Machine) -> list[Finding]:
    from hgpo.integrations.verl.launch import composed

    return findings_here(config, composed(config), machine)
