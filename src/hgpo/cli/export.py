"""`hgpo export`: a run's policy as an ordinary Hugging Face folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hgpo.training.load import RunPolicies

DESCRIPTION = """\
Write the policy of a run as a folder that plain transformers loads: weights, tokenizer, and a model card with the
settings and every evaluation of the run. Optimiser and generators stay with the run. A run that trained an adapter
(policy.lora) exports only the adapter, or with --merge the whole model with the adapter merged into its weights.

examples:
  hgpo export runs/quickstart -o my-policy
  hgpo export runs/quickstart --checkpoint 40 -o my-policy-40
  hgpo export runs/lora -o my-policy --merge                       one model out of base and adapter, in float32
  hf upload me/my-policy my-policy --private                       upload it, where you are logged in (`hf auth login`)
"""
_OF_THE_RUN = {"optimizer.safetensors", "warm_start.json", "adapter_base.json", "critic"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.description = DESCRIPTION
    parser.add_argument("run", type=Path, metavar="RUN", help="a run directory")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="folder to write, new or empty"
    )
    parser.add_argument("--checkpoint", default="newest", help="newest, start, or an update's number (default: newest)")
    parser.add_argument("--merge", action="store_true", help="merge the adapter into the base weights")


def run(arguments: argparse.Namespace) -> int:
    """Carry out the command."""
    import sys

    from hgpo.runs.folder import open_run_directory
    from hgpo.utils.files import publish, scratch_folder
    from hgpo.utils.text import visible_lines

    output: Path = arguments.output.resolve() if arguments.output.is_symlink() else arguments.output
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ValueError(f"--output: {output} exists already and is not an empty folder; choose another name")
    if output.resolve() == Path.cwd():
        raise ValueError(f"--output: {output} is the current folder; name a new one")
    run_directory, config = open_run_directory(arguments.run)
    from hgpo.evaluation.model_card import model_card
    from hgpo.training.checkpoint import saving  # loads PyTorch, so the run is opened before
    from hgpo.training.load import RunPolicies

    policies = RunPolicies(run_directory, config.policy, config.warm_start.enabled, config.run.seed)
    folder = _weights_folder(policies, arguments.checkpoint)
    with scratch_folder(output) as partial, saving(output):
        _write_policy(partial, folder, policies, merge=arguments.merge)
        (partial / "README.md").write_text(model_card(run_directory, config, folder.name), encoding="utf-8")
        publish(partial, output)
    said = f"The policy of {arguments.run}, checkpoint {folder.name}, is in {output}"
    sys.stdout.write(f"{visible_lines(said)}\n")
    return 0


def _write_policy(partial: Path, folder: Path, policies: RunPolicies, *, merge: bool) -> None:
    """Weights and tokenizer of the checkpoint in `folder`."""
    import shutil

    from hgpo.policies.loading import is_adapter
    from hgpo.policies.weights import merge_adapter
    from hgpo.runs.checkpoints import listed_files

    if is_adapter(folder) and merge:
        language_model, _ = policies.language_model(folder.name)
        merge_adapter(language_model.model).save_pretrained(partial)
        language_model.tokenizer.save_pretrained(partial)
        return
    if is_adapter(folder) and (policies.warm_start or Path(policies.settings.model).exists()):
        raise ValueError(
            f"{policies.run.path} trained an adapter whose base weights exist on this machine only: add --merge"
        )
    for name in listed_files(folder):  # other files, and what links lead to, are not of the run
        if not _OF_THE_RUN.intersection(Path(name).parts):
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, partial / name)


def _weights_folder(policies: RunPolicies, checkpoint: str) -> Path:
    """The folder of a checkpoint's complete weights; for the start, the start policy's folder if the run made one."""
    from hgpo.runs.checkpoints import check_bytes
    from hgpo.runs.folder import RunDirectoryError

    folder = policies.folder(checkpoint)
    if folder is not None:
        check_bytes(folder)
        return folder
    if not policies.run.start.is_dir():
        raise RunDirectoryError(
            f"{policies.run.path} started from {policies.settings.model} and did not change it; nothing to export"
        )
    return Path(policies.start_source())
