"""What a file of steps is: its names, its formats, its columns and its version."""

from __future__ import annotations

from pathlib import Path

from hgpo.files import check_writable
from hgpo.storage.problems import StorageError

SCHEMA_VERSION = 1
UPDATE_KEY = b"hgpo_update"
"""In the metadata of a parquet file that training wrote: which update its steps are of."""
VERSION_KEY = b"hgpo_schema_version"
FORMATS = ("auto", "hgpo", "verl", "trajectories")
BATCH_COLUMNS = ("group", "trajectory", "step", "observation", "reward")
OPTIONAL_BATCH_COLUMNS = ("action", "prompt", "penalty", "value", "next_observation", "success")
SUFFIXES = (".parquet", ".jsonl")


def suffix_of(path: Path) -> str:
    """ ".parquet" or ".jsonl", in whatever case `path` spells it.

    Raises:
        StorageError: it ends in something else; the message names both.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise StorageError(f"{path}: the name of a rollout file ends in {' or '.join(SUFFIXES)}; choose one of them")
    return suffix


def other_version(version: object) -> str:
    """What is said of steps of another schema version."""
    return (
        f"schema version {version}; this release reads {SCHEMA_VERSION}: write it again with this release, or read it "
        "with the release that wrote it"
    )


def check_output(path: Path, overwrite: bool) -> None:
    """Refuse what cannot be written to, before anything is computed.

    Raises:
        StorageError: the name ends in neither .parquet nor .jsonl, is a folder's, or something is there that is not to
            be overwritten.
        OSError: nothing can be written there.
    """
    suffix_of(path)
    if path.is_dir():
        raise StorageError(f"{path} is a folder; give the name of a file")
    if path.exists() and not overwrite:
        raise StorageError(f"{path} exists already; choose another name or add --force")
    check_writable(path)
