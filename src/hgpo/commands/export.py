"""`hgpo export`: a run's policy as an ordinary Hugging Face folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hgpo.config import Config
    from hgpo.runs.folder import RunDirectory

DESCRIPTION = """\
Write the policy of a run as a folder that plain transformers loads: weights, tokenizer, and a model card with the
settings and every evaluation of the run. Optimiser and generators stay with the run.

examples:
  hgpo export runs/quickstart -o my-policy
  hgpo export runs/quickstart --checkpoint 40 -o my-policy-40
  hgpo export runs/quickstart -o my-policy --push me/my-policy     upload it as well, where you are logged in
"""
_OF_THE_RUN = ("trainer_state.json", "optimizer.safetensors", "warm_start.json")


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.description = DESCRIPTION
    parser.add_argument("run", type=Path, help="a run directory")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="folder to write, new or empty"
    )
    parser.add_argument("--checkpoint", default="newest", help="newest, start, or an update's number (default: newest)")
    parser.add_argument(
        "--push", metavar="NAME", help="also upload it to the Hugging Face hub under this name, private"
    )


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb."""
    import shutil
    import sys

    from hgpo.runs.checkpoints import publish
    from hgpo.runs.folder import open_run_directory
    from hgpo.runs.model_card import model_card

    output: Path = arguments.output
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ValueError(f"--output: {output} exists already and is not an empty folder; choose another name")
    if arguments.push is not None:
        _refuse_without_login(arguments.push)
    run_directory, config = open_run_directory(arguments.run)
    folder, checkpoint = _checkpoint_folder(run_directory, config, arguments.checkpoint)
    partial = output.with_name(f".{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(folder, partial, ignore=shutil.ignore_patterns(*_OF_THE_RUN))
    (partial / "README.md").write_text(model_card(run_directory, config, checkpoint), encoding="utf-8")
    publish(partial, output)
    sys.stdout.write(f"The policy of {arguments.run}, checkpoint {checkpoint}, is in {output}\n")
    if arguments.push is not None:
        _push(output, arguments.push)
        sys.stdout.write(f"and on the hub as {arguments.push}\n")
    return 0


def _checkpoint_folder(run_directory: RunDirectory, config: Config, checkpoint: str) -> tuple[Path, str]:
    """Where the weights are, checked, and what was meant by `checkpoint`."""
    from hgpo.runs.checkpoints import named_checkpoint, numbered, read_trainer_state
    from hgpo.runs.folder import RunDirectoryError

    if checkpoint == "start":
        if run_directory.start.is_dir():
            return run_directory.start, checkpoint
        raise RunDirectoryError(
            f"{run_directory.path} began with {config.policy.model}, unchanged; there is nothing to export"
        )
    folder = named_checkpoint(run_directory.checkpoints, checkpoint)
    if folder is None:
        there = ", ".join(path.name for path in numbered(run_directory.checkpoints)) or "none"
        raise RunDirectoryError(f"{run_directory.path} has no checkpoint {checkpoint!r}; there are: {there}")
    read_trainer_state(folder)
    return folder, folder.name


def _refuse_without_login(name: str) -> None:
    from huggingface_hub import get_token

    if get_token() is None:
        raise ValueError(f"--push {name}: you are not logged in to the Hugging Face hub; run `hf auth login` first")


def _push(folder: Path, name: str) -> None:
    from huggingface_hub import HfApi

    api = HfApi()
    api.create_repo(name, private=True, exist_ok=True)
    api.upload_folder(repo_id=name, folder_path=folder)
